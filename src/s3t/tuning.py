"""Choosing a recipe's numbers on public data, by Optuna; private records are refused.

Each trial makes a run on public records, trains it, and measures it on others.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from s3t.deletion.unfinished import remove_run
from s3t.errors import DataError, InputError, RecipeError, TrainingError
from s3t.events import Progress, WorkStep, silent, telling
from s3t.extras import how_to_install
from s3t.recipe import Recipe, recipe_from
from s3t.recipe.loading import read_yaml, to_yaml
from s3t.records.ingest import Records, ingest
from s3t.records.public import features_of, public_digest
from s3t.records.requests import normal_form
from s3t.run import Run
from s3t.store.rows import contents
from s3t.wording import counted

FIXED = (
    "task",
    "columns",
    "labels",
    "label_names",
    "partition.salt",
    "partition.group",
    "prediction.validation",
    "ledger",
    "store",
)
"""Fields that say what the data are and where they go: there is nothing to choose."""
SALT = "tune"
"""Salt of trial runs. Their records are public, and every trial must split them alike."""
_HOW = "give a list of values, {between: [LOW, HIGH]} or {log: [LOW, HIGH]}"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A field and its values."""

    field: str
    """Path of the field, as training.learning_rate."""
    kind: Literal["one of", "between", "log"]
    values: tuple[Any, ...]
    """All values; or the lowest and the highest. If both are whole numbers, so are the values between."""

    def drawn(self, trial: Any) -> Any:
        if self.kind == "one of":
            return self.values[
                trial.suggest_categorical(self.field, range(len(self.values)))
            ]  # Optuna takes no mapping
        low, high = self.values
        whole = isinstance(low, int) and isinstance(high, int)
        suggest = trial.suggest_int if whole else trial.suggest_float
        return suggest(self.field, low, high, log=self.kind == "log")


def read_space(content: Mapping[str, Any] | str | Path) -> tuple[Choice, ...]:
    """The choices of a YAML file, or of a mapping of fields to values."""
    where = "the space"
    if isinstance(content, str | Path):
        where = str(content)
        try:
            content = read_yaml(Path(content))
        except ValueError as error:
            raise InputError(where, str(error)) from error
    if not isinstance(content, Mapping) or not content:
        raise InputError(where, f"names no field; for each field that may vary, {_HOW}")
    problems: list[str] = []
    choices = []
    for field, given in content.items():
        try:
            choices.append(_choice(str(field), given))
        except ValueError as error:
            problems.append(f"{field}: {error}")
    if problems:
        raise InputError(where, problems)
    return tuple(choices)


def _choice(field: str, given: Any) -> Choice:
    if any(f"{field}.".startswith(f"{fixed}.") for fixed in FIXED):
        raise ValueError("says what the data are, and cannot be chosen; take it out")
    if isinstance(given, list) and given:
        return Choice(field=field, kind="one of", values=tuple(given))
    if not isinstance(given, Mapping) or len(given) != 1 or not given.keys() <= {"between", "log"}:
        raise ValueError(f"{given!r} is no choice; {_HOW}")
    ((kind, bounds),) = given.items()
    numbers = isinstance(bounds, list) and len(bounds) == 2 and {type(bound) for bound in bounds} <= {int, float}
    if not numbers or not bounds[0] < bounds[1]:
        raise ValueError(f"{kind} takes two numbers, the lower one first")
    if kind == "log" and bounds[0] <= 0:
        raise ValueError("on a log scale, the lower number must be above 0")
    return Choice(field=field, kind=kind, values=tuple(bounds))


def with_values(fields: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's fields with some of them set.

    >>> with_values({"training": {"epochs": 2}}, {"training.seed": 1, "method": "sisa"})
    {'training': {'epochs': 2, 'seed': 1}, 'method': 'sisa'}
    """
    content = dict(fields)
    for name, value in values.items():
        first, _, rest = name.partition(".")
        inner = content.get(first, {})
        content[first] = (
            with_values(inner if isinstance(inner, Mapping) else {"name": inner}, {rest: value}) if rest else value
        )
    return content


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
    """Fields of the recipe that did not vary, without a salt."""

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
        each = [vars(trial) | {"seconds": round(trial.seconds, 1)} for trial in self.trials]
        return {"best": self.best.number, "score": self.best.score, "recipe": self.recipe, "trials": each}


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
    """Try recipes until so many trials are in the folder, those of earlier calls counted in; a grid has at most one for
    each point.

    The recipe gives the fields that do not vary. A study in the folder is continued. No record of the files or runs of
    `private` may be among the public ones; with `declared_public` the caller declares that there are none. The sampler
    is tpe (Bergstra et al. 2011), or grid, which needs lists of values.
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

    def scored(trial: Any) -> float:
        values = {choice.field: choice.drawn(trial) for choice in space}
        place, started = folder / f"trial-{trial.number}", time.monotonic()
        remove_run(place)
        trial.set_user_attr("values", values)
        try:
            recipe = with_values(fields, values | {"partition.salt": SALT})
            with Run.create(place, recipe=recipe, data=data, public_data=True) as run:
                run.train(progress=silent)
                score = run.recipe.task.target.score(run.evaluate(validation, per_depth=False).metrics)
        except (RecipeError, TrainingError) as error:
            trial.set_user_attr("problem", str(error))
            trial.set_user_attr("seconds", time.monotonic() - started)
            raise
        except BaseException:
            study.enqueue_trial(trial.params)  # the next call begins with it
            raise
        finally:
            remove_run(place)
        trial.set_user_attr("seconds", time.monotonic() - started)
        return score

    with telling(heard, f"tuning: {counted(trials, 'trial')}", max(0, trials - len(_done(study)))):
        while (remaining := trials - len(_done(study))) > 0 and not _exhausted(study):
            study.optimize(
                scored,
                n_trials=remaining,
                catch=(RecipeError, TrainingError),
                callbacks=[lambda _study, _trial: heard(WorkStep(count=1))],
            )
    tuning = Tuning(trials=_done(study), fields=fields)
    if all(trial.score is None for trial in tuning.trials):
        problems = sorted({trial.problem or "" for trial in tuning.trials}) or ["no trial was asked for"]
        raise InputError("the space", [f"no trial could be trained: {problem}" for problem in problems])
    return tuning


def _refuse_private(public: Sequence[tuple[str, Records]], private: Sequence[str | Path], recipe: Recipe) -> None:
    """Compare records that are said to be public with private ones: with a file's by content; with those that a run
    holds or has held by id."""
    problems: list[str] = []
    known: set[Any]
    for where in map(Path, private):
        if is_run := where.is_dir():
            compared = [(name, records, records.rows["record"].to_pylist()) for name, records in public]
            with Run.open(where) as run:
                places = run.locate(records=[record for _, _, ids in compared for record in ids])
            known = {normal_form(place.name) for place in places if place.state != "unknown"}
        else:
            features = features_of(public[0][1].rows)
            compared = [(name, records, list(contents(records.rows, features))) for name, records in public]
            known = set(contents(ingest(where, recipe).rows, features))
        for name, records, each in compared:
            if rows := [row for row, own in enumerate(each) if own in known]:
                what = f"are or were in the run {where}" if is_run else f"are in {where}"
                named = records.problems.positions.named(rows)
                problems.append(
                    f"{len(rows)} records of {name} {what} ({named}); a choice by them would reveal them: take them out"
                )
    if problems:
        raise DataError("the public data", problems)


def _check_space(fields: Mapping[str, Any], space: Sequence[Choice], sampler: str) -> None:
    """Check that every field is one of a recipe, and that a grid has lists of values."""
    ranges = ", ".join(choice.field for choice in space if choice.kind != "one of")
    if sampler == "grid" and ranges:
        raise InputError("the space", f"a grid needs a list of values for {ranges}; or take --sampler tpe")
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
        study.sampler = optuna.samplers.GridSampler(
            {choice.field: range(len(choice.values)) for choice in space}, seed=seed
        )
    else:  # after a stop it shall not draw again what it drew before
        study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
    return study


def _done(study: Any) -> tuple[Trial, ...]:
    """Finished trials, also those that could not be trained."""
    return tuple(
        Trial(
            number=trial.number,
            values=trial.user_attrs["values"],
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
