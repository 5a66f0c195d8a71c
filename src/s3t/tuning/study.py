"""Trials of a recipe: each makes a run on public records, trains it, and measures it on others."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from s3t.errors import DataError, InputError, RecipeError, TrainingError
from s3t.events import Progress, WorkStep, silent, telling
from s3t.extras import how_to_install
from s3t.recipe import Recipe, recipe_from
from s3t.recipe.loading import to_yaml
from s3t.records.ingest import Records, ingest
from s3t.records.public import features_of, public_digest
from s3t.records.requests import normal_form
from s3t.records.rows import contents
from s3t.run import Run
from s3t.tuning.space import Choice, with_values
from s3t.wording import counted


def _refuse_private(public: Sequence[tuple[str, Records]], private: Sequence[str | Path], recipe: Recipe) -> None:
    """Compare records that are said to be public with private ones: with a file's by content; with those that a run
    holds or has held by id."""
    problems: list[str] = []
    for where in map(Path, private):
        for name, records, rows in (
            _shared_with_run(where, public) if where.is_dir() else _shared(where, public, recipe)
        ):
            if rows:
                what = f"are or were in the run {where}" if where.is_dir() else f"are in {where}"
                problems.append(
                    f"{len(rows)} records of {name} {what} ({records.positions.named(rows)}); a choice by them would "
                    "reveal them: take them out"
                )
    if problems:
        raise DataError("the public data", problems)


def _shared(
    private: Path, public: Sequence[tuple[str, Records]], recipe: Recipe
) -> Iterator[tuple[str, Records, list[int]]]:
    features = features_of(public[0][1].rows)
    known = set(contents(ingest(private, recipe).rows, features))
    for name, records in public:
        yield name, records, [row for row, own in enumerate(contents(records.rows, features)) if own in known]


def _shared_with_run(run: Path, public: Sequence[tuple[str, Records]]) -> Iterator[tuple[str, Records, list[int]]]:
    with Run.open(run) as opened:
        for name, records in public:
            ids = records.rows["record"].to_pylist()
            known = {normal_form(place.name) for place in opened.locate(records=ids) if place.state != "unknown"}
            yield name, records, [row for row, record in enumerate(ids) if record in known]


SALT = "tune"
"""Salt of trial runs. Their records are public, and every trial must split them alike."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    number: int
    values: Mapping[str, Any]
    """Values of the fields that vary."""
    score: float | None
    """Accuracy of the ensemble (a regression's error, negative); None where it could not be trained."""
    seconds: float
    problem: str | None
    """Reason why it could not be trained."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    trials: tuple[Trial, ...]
    fields: Mapping[str, Any]
    """Those of the recipe that did not vary, without a salt."""

    @property
    def best(self) -> Trial:
        """The trial with the best score, the first of several."""
        return max((trial for trial in self.trials if trial.score is not None), key=lambda trial: trial.score or 0.0)

    @property
    def recipe(self) -> dict[str, Any]:
        return with_values(self.fields, self.best.values)

    def to_yaml(self) -> str:
        return to_yaml(self.recipe, allow_unicode=True)

    def to_json(self) -> dict[str, Any]:
        return {
            "best": self.best.number,
            "score": self.best.score,
            "recipe": self.recipe,
            "trials": [
                vars(trial) | {"values": dict(trial.values), "seconds": round(trial.seconds, 1)}
                for trial in self.trials
            ],
        }


def tune(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    space: Sequence[Choice],
    *,
    data: Path,
    validation: Path,
    folder: Path,
    private: Sequence[str | Path] = (),
    declared_public: bool = False,
    trials: int = 20,
    sampler: Literal["tpe", "grid"] = "tpe",
    seed: int = 0,
    progress: Progress | None = None,
) -> Tuning:
    """Try recipes until so many trials are in the folder, those of earlier calls counted in.

    Args:
        recipe: the fields that do not vary.
        folder: the study's folder; a study in it is continued.
        private: files or runs whose records must not be among the public ones.
        declared_public: True: the caller declares that there are none, and nothing is compared.
        trials: number of trials, earlier ones included; a grid has at most one for each point.
        sampler: tpe (Bergstra et al. 2011), or grid, which needs lists of values.
    """
    if not private and not declared_public:
        raise InputError(
            "the public data",
            "nothing says that no private record is among them: name the private data or its runs, to compare "
            "with, or declare that there are none",
        )
    base = recipe_from(recipe)
    fields = base.model_dump(mode="json", exclude_unset=True, exclude={"partition": {"salt"}})
    public = [(str(path), ingest(path, base)) for path in (data, validation)]
    _refuse_private(public, private, base)
    _check_space(fields, space, sampler)
    digests = [public_digest(records.rows) for _, records in public]
    about = hashlib.sha256(json.dumps([fields, [repr(choice) for choice in space], digests]).encode()).hexdigest()
    study = _study(folder, about, space, sampler=sampler, seed=seed)
    heard = progress or silent
    with telling(heard, f"tuning: {counted(trials, 'trial')}", max(0, trials - len(_done(study)))):
        while (remaining := trials - len(_done(study))) > 0 and not _exhausted(study):
            study.optimize(
                lambda trial: _score(trial, study, space, fields, data=data, validation=validation, folder=folder),
                n_trials=remaining,
                catch=(RecipeError, TrainingError),
                callbacks=[lambda _study, _trial: heard(WorkStep(count=1))],
            )
    tuning = Tuning(trials=_done(study), fields=fields)
    if all(trial.score is None for trial in tuning.trials):
        problems = sorted({trial.problem or "" for trial in tuning.trials}) or ["no trial was asked for"]
        raise InputError("the space", [f"no trial could be trained: {problem}" for problem in problems])
    return tuning


def _check_space(fields: Mapping[str, Any], space: Sequence[Choice], sampler: str) -> None:
    """Check that every field is one of a recipe, and that a grid has lists of values."""
    if sampler == "grid" and any(choice.kind != "one of" for choice in space):
        loose = ", ".join(choice.field for choice in space if choice.kind != "one of")
        raise InputError("the space", f"a grid needs a list of values for {loose}; or take --sampler tpe")
    problems: list[str] = []
    for choice in space:
        try:
            recipe_from(with_values(fields, {choice.field: choice.values[0]}), where="the space")
        except RecipeError as error:
            problems += [problem for problem in error.problems if ": no such field" in problem]
    if problems:
        raise InputError("the space", problems)


def _study(folder: Path, about: str, space: Sequence[Choice], *, sampler: str, seed: int) -> Any:
    try:
        import optuna
    except ImportError as error:
        raise InputError("tuning", f"needs Optuna; install it with: {how_to_install('tune')}") from error
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # trials that fail are in the result
    folder.mkdir(parents=True, exist_ok=True)
    storage = JournalStorage(JournalFileBackend(str(folder / "study.log")))
    study = optuna.create_study(storage=storage, study_name="s3t", direction="maximize", load_if_exists=True)
    if study.user_attrs.setdefault("about", about) != about:
        raise InputError(
            str(folder), "holds a study of another recipe, space or data; name another folder, or remove it"
        )
    study.set_user_attr("about", about)
    for trial in study.trials:
        if trial.state == optuna.trial.TrialState.RUNNING:  # its process was killed
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            study.enqueue_trial(trial.params)
    if sampler == "grid":
        study.sampler = optuna.samplers.GridSampler({choice.field: choice.values for choice in space}, seed=seed)
    else:  # after a stop it shall not draw again what it drew before
        study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
    return study


def _score(
    trial: Any,
    study: Any,
    space: Sequence[Choice],
    fields: Mapping[str, Any],
    *,
    data: Path,
    validation: Path,
    folder: Path,
) -> float:
    values = {choice.field: choice.drawn(trial) for choice in space}
    place, started = folder / f"trial-{trial.number}", time.monotonic()
    shutil.rmtree(place, ignore_errors=True)
    try:
        recipe = with_values(fields, values | {"partition.salt": SALT})
        with Run.create(place, recipe=recipe, data=data, public_data=True) as run:
            run.train()
            score = run.recipe.task.target.score(run.evaluate(validation, per_depth=False).metrics)
    except (RecipeError, TrainingError) as error:
        trial.set_user_attr("problem", str(error))
        trial.set_user_attr("seconds", time.monotonic() - started)
        raise
    except BaseException:
        study.enqueue_trial(values)  # the next call begins with it
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)
    trial.set_user_attr("seconds", time.monotonic() - started)
    return score


def _done(study: Any) -> tuple[Trial, ...]:
    """Finished trials, also those that could not be trained."""
    return tuple(
        Trial(
            number=trial.number,
            values=trial.params,
            score=trial.value,
            seconds=trial.user_attrs["seconds"],
            problem=trial.user_attrs.get("problem"),
        )
        for trial in study.trials
        if "seconds" in trial.user_attrs
    )


def _exhausted(study: Any) -> bool:
    """True if all points of a grid were tried; a stopped trial is repeated."""
    waiting = any(trial.state.name == "WAITING" for trial in study.trials)
    return hasattr(study.sampler, "is_exhausted") and study.sampler.is_exhausted(study) and not waiting
