"""Trials of a recipe: each makes a run on public records, trains it, and measures it on others."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from s3t.errors import DataError, InputError, RecipeError, TrainingError
from s3t.extras import how_to_install
from s3t.progress import SILENT, Progress, telling
from s3t.recipe import Recipe, recipe_from
from s3t.recipe.loading import to_yaml
from s3t.records.ingest import Records, ingest
from s3t.records.public import features_of, public_digest
from s3t.records.requests import normal_form
from s3t.records.rows import contents
from s3t.run import Run
from s3t.tuning.space import Choice, with_values
from s3t.wording import counted


def refuse_private(public: Sequence[tuple[str, Records]], private: Sequence[str | Path], recipe: Recipe) -> None:
    """Compare records that are said to be public with private ones.

    Args:
        public: name of each public data set, and its records from `ingest`.
        private: files of records, compared by content; or folders of runs, which are asked by id for what they hold or
            have held.
    """
    problems: list[str] = []
    for where in map(Path, private):
        if where.is_dir():
            problems += _known_to(where, public)
        else:
            private_rows = set(contents(ingest(where, recipe).rows, features_of(public[0][1].rows)))
            for name, records in public:
                own = contents(records.rows, features_of(records.rows))
                shared = [row for row, content in enumerate(own) if content in private_rows]
                problems += _problem(name, records, shared, f"are in {where}")
    if problems:
        raise DataError("the public data", problems)


def _known_to(run: Path, public: Sequence[tuple[str, Records]]) -> list[str]:
    problems: list[str] = []
    with Run.open(run) as opened:
        for name, records in public:
            ids = records.rows["record"].to_pylist()
            private_ids = {normal_form(place.name) for place in opened.locate(records=ids) if place.state != "unknown"}
            shared = [row for row, record in enumerate(ids) if record in private_ids]
            problems += _problem(name, records, shared, f"are or were in the run {run}")
    return problems


def _problem(name: str, records: Records, rows: list[int], where: str) -> list[str]:
    if not rows:
        return []
    lines = records.positions.named(rows)
    return [f"{len(rows)} records of {name} {where} ({lines}); a choice by them would reveal them: take them out"]


def check_declared(private: Sequence[str | Path], *, declared: bool) -> None:
    """Checks that private records are named, or all data declared public."""
    if not private and not declared:
        raise InputError(
            "the public data",
            "nothing says that no private record is among them: name the private data or its runs, to compare "
            "with, or declare that there are none",
        )


SALT = "tune"
"""Salt of trial runs. Their records are public, and every trial must split them alike."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A recipe that was tried."""

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
    """Result of tuning."""

    trials: tuple[Trial, ...]
    recipe: Mapping[str, Any]
    """Recipe of the best trial, without a salt."""

    @property
    def best(self) -> Trial:
        """The trial with the best score, the first of several."""
        return max((trial for trial in self.trials if trial.score is not None), key=lambda trial: trial.score or 0.0)

    def to_yaml(self) -> str:
        """The recipe, as `s3t init` takes it."""
        return to_yaml(dict(self.recipe), allow_unicode=True)

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t tune --json`."""
        return {
            "best": self.best.number,
            "score": self.best.score,
            "recipe": dict(self.recipe),
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
    check_declared(private, declared=declared_public)
    base = recipe_from(recipe)
    fields = base.model_dump(mode="json", exclude_unset=True, exclude={"partition": {"salt"}})
    public = [(str(path), ingest(path, base)) for path in (data, validation)]
    refuse_private(public, private, base)
    _check_space(fields, space, sampler)
    about = hashlib.sha256(
        json.dumps(
            [fields, [repr(choice) for choice in space], [public_digest(records.rows) for _, records in public]]
        ).encode()
    ).hexdigest()
    study = _study(folder, about, space, sampler=sampler, seed=seed)
    heard = progress or SILENT
    with telling(heard, f"tuning: {counted(trials, 'trial')}", max(0, trials - len(_done(study)))):
        while (remaining := trials - len(_done(study))) > 0 and not _exhausted(study):
            study.optimize(
                lambda trial: _score(trial, study, space, fields, data=data, validation=validation, folder=folder),
                n_trials=remaining,
                catch=(RecipeError, TrainingError),
                callbacks=[lambda _study, _trial: heard.advance(1)],
            )
    tuning = Tuning(trials=tuple(map(_trial, _done(study))), recipe={})
    if all(trial.score is None for trial in tuning.trials):
        problems = sorted({trial.problem or "" for trial in tuning.trials}) or ["no trial was asked for"]
        raise InputError("the space", [f"no trial could be trained: {problem}" for problem in problems])
    return Tuning(trials=tuning.trials, recipe=with_values(fields, tuning.best.values))


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
    values = {choice.field: _drawn(trial, choice) for choice in space}
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


def _done(study: Any) -> list[Any]:
    """Finished trials, also those that could not be trained."""
    return [trial for trial in study.trials if "seconds" in trial.user_attrs]


def _exhausted(study: Any) -> bool:
    """True if all points of a grid were tried; a stopped trial is repeated."""
    waiting = any(trial.state.name == "WAITING" for trial in study.trials)
    return hasattr(study.sampler, "is_exhausted") and study.sampler.is_exhausted(study) and not waiting


def _drawn(trial: Any, choice: Choice) -> Any:
    if choice.kind == "one of":
        return trial.suggest_categorical(choice.field, choice.values)
    low, high = choice.values
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(choice.field, low, high, log=choice.kind == "log")
    return trial.suggest_float(choice.field, low, high, log=choice.kind == "log")


def _trial(trial: Any) -> Trial:
    return Trial(
        number=trial.number,
        values=trial.params,
        score=trial.value,
        seconds=trial.user_attrs.get("seconds", 0.0),
        problem=trial.user_attrs.get("problem"),
    )
