"""Comparison of methods, shards and slices on a sample of the user's records: what each scores, and what it costs.

Each system is a run in a folder that is removed in the end. A first part of the sample is trained on; records of it
leave in one random order for all systems. The scores are of other records, which no run holds.
"""

from __future__ import annotations

import hashlib
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from s3t.core import Secret, method_named, place_of
from s3t.deletion.unfinished import passing_folder
from s3t.errors import DataError, InputError, NoLiveShardError, RecipeError, TrainingError
from s3t.events import Event, Progress, WorkNote, WorkStart, WorkStep, silent, telling
from s3t.models.source import layer_count, model_folder
from s3t.recipe import Recipe, RepairAsNeeded, recipe_from
from s3t.records.ingest import ingest_sample
from s3t.records.public import features_of
from s3t.records.reading import Data
from s3t.results.base import Result, as_html
from s3t.run import Run
from s3t.tasks import Target
from s3t.tuning import with_values
from s3t.wording import counted, duration

SHARES = (0.05, 0.2)
"""Shares of the records that are deleted."""
OWN = "your recipe"
"""Name of the recipe's own system."""
HELD_OUT = 5
"""One record of so many is held out."""
LEAST = 20
"""Least number of records to train on: one of them is 5 %."""
SINGLES = 5
"""Deletions whose times are measured, one after the other."""
RESAMPLES, NOISE = 100, 0.05
"""Bootstrap samples of the records to score on; a system that is the better one in more of them may be as good."""
T = TypeVar("T")
_FOLDER = "s3t-compare"
_SECRET = Secret(salt="s3t compare")
"""Secret of the hashes that choose the sample: the same records each time. The hashes are not stored."""
PARTS = ("method", "head", "partition", "sequences")
"""Parts of a recipe that make a system."""
_OF_ITS_OWN: Any = {
    **dict.fromkeys(("method", "head", "partition", "sequences", "ledger", "store", "engine"), True),
    "prediction": {"ensemble", "select", "validation", "sisa_weight", "prototypes_alone"},
    "deletion": {"repair"},
    "ridge": True,
}
"""Fields of a recipe that no other system takes over."""


class Point(Result):
    """Scores and repair after some deletions."""

    deleted: int
    """Records deleted, of those trained on."""
    before: float | None
    """Score before the repair; null where nothing answers."""
    after: float | None
    """Score after the repair; null where nothing answers."""
    repair_seconds: float


class ComparedSystem(Result):
    """A system, and what was measured of it. Times are of this machine."""

    name: str
    recipe: dict[str, Any]
    """Lines of the recipe that make the system."""
    points: tuple[Point, ...]
    """After no deletion, and after 5 and 20 % of the records."""
    train_seconds: float
    train_hours: float
    """Hours to train on all records of the data, as if the time grew with their number."""
    hours_a_year: float
    """Hours to train on all records, and to repair after each deletion of a year by itself."""
    delete_milliseconds: float
    """Median of deletions of one record, without the repair."""
    answer_milliseconds: float
    """Time of an input, answered in a batch."""
    stored_bytes: int
    """Bytes of the trained stages."""

    @property
    def score(self) -> float:
        """Score after the last deletions and their repair."""
        score = self.points[-1].after
        return -math.inf if score is None else score


class Comparison(Result):
    """Result of `compare`. Scores are the task's own; higher is better, so an error is negative."""

    systems: tuple[ComparedSystem, ...]
    left_out: dict[str, str]
    """Systems that were not measured, and why."""
    records: int
    """Records of the data."""
    trained_on: int
    scored_on: int
    """Records that were held out, or are those to evaluate on."""
    guess: float | None
    """Best score of the same answer to every input; null for language models."""
    best: str | None
    """The advised system; null where none is better than a guess."""
    advice: str

    def __repr__(self) -> str:
        """The advice."""
        return f"Comparison({self.advice})"

    def _repr_html_(self) -> str:
        def row(system: ComparedSystem) -> dict[str, Any]:
            scores = {f"{point.deleted} deleted": (point.before, point.after) for point in system.points}
            costs = ("train_hours", "hours_a_year", "delete_milliseconds", "answer_milliseconds", "stored_bytes")
            return {"system": system.name} | scores | {name: getattr(system, name) for name in costs}

        return as_html(self.advice, {"scores before and after the repair, and costs": [*map(row, self.systems)]})


def systems_of(recipe: Recipe, *, records: int, layers: int) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Recipes to compare, by name, as their fields; and the problems of those that do not fit the task."""
    few = 1, min(3, layers)
    many = min(4, max(2, records // 200)), min(4, layers)
    changes: dict[str, dict[str, Any]] = {"ridge": {"method": "ridge"}, "full": {"method": "full"}}
    ways: dict[str, dict[str, Any]] = {"": {}}
    if not recipe.task.target.over_vocabulary:
        ways[", head: ridge"] = {"head": "ridge"}
        ways[", merged"] = {"head": "ridge", "prediction.ensemble": "merged"}
        changes["full, head: ridge"] = {"method": "full", "head": "ridge"}
    for (shards, slices), (way, answers) in product((few, many), ways.items()):
        if shards == 1 and way == ", merged":
            continue
        cut, size = {"partition": {"shards": shards, "slices": slices}}, f"{shards} x {slices}{way}"
        changes[f"sisa {size}"] = {"method": "sisa", **cut, **answers}
        changes[f"s3t {size}"] = {"method": "s3t", **cut, **answers, "adapter.layers_per_slice": layers // slices}
    places: Any = {"partition": {"salt", "group"}, "ledger": True, "store": True, "engine": True}
    own = recipe.model_dump(mode="json", exclude_unset=True, exclude=places)
    kept = recipe.model_dump(mode="json", exclude_unset=True, exclude=_OF_ITS_OWN)
    if recipe.method == method_named(recipe.method.name):
        own["method"] = recipe.method.name
    found, shapes, problems = {OWN: own}, [_shape(recipe)], dict[str, str]()
    if recipe.partition.group is not None:
        problems["partition.group"] = "all records are deleted alike, and go to slices by their hash alone"
    for name, change in changes.items():
        fields = with_values(kept, change)
        if "ridge" in (change["method"], change.get("head")) and "training" in fields:  # which has no weights
            fields["training"] = {name: value for name, value in fields["training"].items() if name != "class_weight"}
        try:
            shape = _shape(recipe_from(fields))
        except RecipeError as error:
            problems[name] = "; ".join(error.problems)
            continue
        if shape not in shapes:
            found[name] = fields
            shapes.append(shape)
    return found, problems


def _shape(recipe: Recipe) -> tuple[Any, ...]:
    """Values that are equal if two recipes make the same system."""
    method, repair = recipe.method, recipe.deletion.repair
    chains = repair if isinstance(repair, RepairAsNeeded) else recipe.budget
    width = getattr(recipe.adapter, method.width) if method.trains else None
    return method, recipe.head, recipe.partition.shards, recipe.partition.slices, chains, width, recipe.prediction


def _passes(recipe: Recipe) -> float:
    """About how often a training goes through all records."""
    readouts = {"": 0, "each": recipe.partition.shards + 1, "mean": 2}[recipe.readouts] / 5  # one of the base model
    return recipe.budget * (recipe.partition.slices + 1) / 2 + readouts if recipe.method.trains else 0.1


class _Sample(NamedTuple):
    rows: pa.Table
    """Records to train on."""
    order: list[str]
    """Their ids, in the order of their deletion."""
    held_out: pa.Table
    total: int
    """Records of the data."""
    target: Target
    labels: tuple[str, ...]
    salt: str
    """Secret of all runs: the same records lie in the same slices again."""
    fields: dict[str, Any]
    """Fields of a recipe that reads records as these are kept."""

    @classmethod
    def of(cls, recipe: Recipe, data: Data, evaluate: Data | None, count: int, seed: int) -> _Sample:
        (rows, _, _, labels), total = ingest_sample(data, recipe, count, secret=_SECRET)
        if evaluate is None:
            owners = zip(rows["record"].to_pylist(), rows["subject"].to_pylist(), strict=True)
            places = [place_of(*owner, secret=_SECRET, shards=1, slices=HELD_OUT).slice for owner in owners]
            rows, held_out = (rows.filter(pa.array([(place == 0) == out for place in places])) for out in (False, True))
        else:
            known = recipe.model_copy(update={"labels": list(labels)}) if labels else recipe
            (held_out, *_), _ = ingest_sample(evaluate, known, count, secret=_SECRET, with_owners=False)
        if rows.num_rows < LEAST or not held_out.num_rows:
            raise DataError("the sample", f"has {rows.num_rows} records to train on, of at least {LEAST}; give more")
        order = sorted(rows["record"].to_pylist())
        random.Random(seed).shuffle(order)  # noqa: S311 - the same order again
        features = [name for name in features_of(rows) if name != "label"]
        columns = dict(zip(features, features, strict=True)) | {"id": "record", "label": "label"}
        if recipe.columns.subject is not None:
            columns["subject"] = "subject"
        salt = hashlib.sha256(repr((order, rows.to_pylist())).encode()).hexdigest()
        fields: dict[str, Any] = {"columns": columns, "label_names": None, "retention": None}
        if labels:
            fields["labels"] = list(labels)
        return cls(rows, order, held_out, total, recipe.task.target, labels, salt, fields)

    def answers(self, run: Run, rows: pa.Table) -> Sequence[Any] | None:
        """Answers to inputs; None where nothing answers."""
        try:
            return run.score(rows).log_probabilities if self.target.over_vocabulary else run.predict(rows).predicted
        except NoLiveShardError:
            return None

    def score(self, answers: Sequence[Any] | None, places: Sequence[int] | None = None) -> float | None:
        """Score of answers to all records that are held out, or to those at some places."""
        if answers is None:
            return None
        expected = self.target.expected(self.held_out)
        if places is not None:
            answers, expected = [answers[place] for place in places], [expected[place] for place in places]
        score = self.target.score(self.target.metrics(answers, expected, self.labels))
        return score if math.isfinite(score) else None


def compare(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    *,
    data: Data,
    evaluate: Data | None = None,
    records: int = 2000,
    minutes: float = 30,
    deletions_per_month: float = 10,
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Train systems on a sample of the data, delete a part of it, repair, and say which to take.

    Args:
        recipe: gives all in which systems do not differ, and one system of its own.
        data: as for `Run.create`.
        evaluate: records to score on; None: a fifth of the sample, by keyed hash of the subject, else of the id.
        records: size of the sample, by keyed hash of the ids.
        minutes: time limit; systems that do not fit are left out. The recipe's own, after those that train none, has
            half of it; then those that train least come first.
        deletions_per_month: how many deletions there will be, each with a repair.
        seed: of the order of deletions.
        folder: where a temporary folder holds the runs; None: beside the data.
        progress: hears of it.

    Raises:
        InputError: with all problems of recipe and data; too few records; or no system could be measured.
    """
    checks = [
        (not 0 < minutes <= 10**6, f"{minutes:g} minutes: give more than 0, up to a million"),
        (not 25 <= records <= 10**7, f"a sample of {records} records: give 25 to ten million"),
        (not 0 <= deletions_per_month <= 10**9, f"{deletions_per_month:g} deletions per month: give 0 to a billion"),
    ]
    if problems := [problem for is_wrong, problem in checks if is_wrong]:
        raise InputError("the comparison", problems)
    base, heard, until = recipe_from(recipe), progress or silent, time.monotonic() + 60 * minutes
    sample = _Sample.of(base, data, evaluate, records, seed)
    layers = layer_count(model_folder(base.base_model, revision=base.revision))
    found, left_out = systems_of(base, records=sample.rows.num_rows, layers=layers)
    made = {
        name: recipe_from(with_values(fields | sample.fields, {"partition.salt": sample.salt}))
        for name, fields in found.items()
    }
    passes = {name: _passes(recipe) for name, recipe in made.items()}
    speeds: dict[str, float] = {}
    systems: list[ComparedSystem] = []
    answers: dict[str, Sequence[Any] | None] = {}
    place = folder or (Path(data).absolute().parent if isinstance(data, str | Path) else Path.cwd())
    what = f"comparing {counted(len(found), 'system')} on {counted(sample.rows.num_rows, 'record')}"
    too_short = f"the time of {duration(60 * minutes)} is too short; give more minutes"
    with telling(heard, what, sum(map(_steps, passes.values()))):
        for name in sorted(found, key=lambda name: (made[name].method.trains, name != OWN, passes[name])):
            began, method = time.monotonic(), made[name].method.name
            limit = (began + until) / 2 if name == OWN else until
            if began + speeds.get(method, 0.0) * passes[name] > limit:
                left_out[name] = too_short
                continue
            heard(WorkNote(what=name))
            try:
                with passing_folder(place, _FOLDER) as runs:
                    share = _share(heard, limit, _steps(passes[name]))
                    values, answers[name] = _measured(runs / "run", made[name], sample, share)
            except _OutOfTimeError:
                left_out[name] = too_short
                continue
            except (RecipeError, TrainingError) as error:
                left_out[name] = "; ".join(getattr(error, "problems", [str(error)]))
                continue
            speeds[method] = (time.monotonic() - began) / passes[name]
            year = values["train_hours"] + 12 * deletions_per_month * values.pop("repair_hours")
            lines = lines_of(found[name], own=found[OWN])
            systems.append(ComparedSystem(name=name, recipe=lines, hours_a_year=year, **values))
    if not systems:
        raise InputError("the comparison", [f"{name}: {problem}" for name, problem in left_out.items()])
    guess, best, advice = _advice(systems, answers, sample, seed)
    return Comparison(
        systems=tuple(systems),
        left_out=left_out,
        records=sample.total,
        trained_on=sample.rows.num_rows,
        scored_on=sample.held_out.num_rows,
        guess=guess,
        best=best,
        advice=advice,
    )


def lines_of(fields: Mapping[str, Any], *, own: Mapping[str, Any]) -> dict[str, Any]:
    """Parts that make a recipe's system, and all others that differ in one's own recipe: with them in place of its own
    it is that system. An empty part has its defaults.
    """
    defaults = {part: "trained" if part == "head" else {} for part in own if part not in ("partition", "sequences")}
    there = {part: fields.get(part, defaults.get(part)) for part in (*PARTS, *own, *fields)}
    return {
        part: value
        for part, value in there.items()
        if (value and part in PARTS) or (part not in PARTS and value != own.get(part))
    }


class _OutOfTimeError(Exception):
    """The time limit is over."""


def _steps(passes: float) -> int:
    """Steps of the bar for a training and two repairs, which train nearly all again."""
    return 3 * round(100 * passes)


def _share(heard: Progress, until: float, steps: int) -> Progress:
    """Hears of a run's trainings, and tells of its share of the comparison."""
    total = done = told = 0

    def hear(event: Event) -> None:
        nonlocal total, done, told
        if time.monotonic() > until:
            raise _OutOfTimeError
        if isinstance(event, WorkStart):
            total, done, told = event.total, 0, 0
        elif isinstance(event, WorkStep) and total:
            done += event.count
            now = steps // (1 + len(SHARES)) * done // total
            heard(WorkStep(count=now - told))
            told = now

    return hear


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """A result, and the seconds that it took."""
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def _measured(
    place: Path, recipe: Recipe, sample: _Sample, progress: Progress
) -> tuple[dict[str, Any], Sequence[Any] | None]:
    """Measures of a system, and its answers after the last repair."""
    records, scale = len(sample.order), sample.total / len(sample.order)
    with Run.create(place, recipe=recipe, data=sample.rows, public_data=True) as run:
        run.parts.loaded.get()  # loading the model is no part of the times
        training, inventory = run.train(progress=progress), run.inventory()
        # A deletion hits a stage if it hits one of its slices.
        hit = math.fsum(
            summary.seconds * inventory.records[place] / records
            for summary in training.summaries
            for place in {*summary.stage.places}
        )
        stored = run.status(full=True).stored_bytes
        _, ready = _timed(lambda: sample.answers(run, sample.held_out.slice(0, 1)))  # a head may have to be solved
        answers = sample.answers(run, sample.held_out)
        batch = sample.held_out.slice(0, recipe.prediction.batch_size)
        _, answering = _timed(lambda: sample.answers(run, batch))
        score = sample.score(answers)
        points, deleting, gone = [Point(deleted=0, before=score, after=score, repair_seconds=0.0)], [], 0
        passing: float | None = None
        for share in SHARES:
            last = max(1, round(share * records))
            names, gone = sample.order[gone:last], last
            for name in names[:SINGLES]:
                deleting.append(_timed(partial(run.delete, records=[name], repair=False))[1])
                if passing is None:  # what heads of the models that are left need at once
                    _, passing = _timed(partial(run.repair, hours=0, progress=silent))
            if names[SINGLES:]:
                run.delete(records=names[SINGLES:], repair=False)
            run.repair(hours=0, progress=silent)  # what takes no training
            before = sample.score(sample.answers(run, sample.held_out))
            _, repairing = _timed(lambda: run.repair(progress=progress))
            answers = sample.answers(run, sample.held_out)
            points.append(Point(deleted=gone, before=before, after=sample.score(answers), repair_seconds=repairing))
    values = {
        "points": points,
        "train_seconds": training.seconds,
        "train_hours": (training.seconds * scale + ready) / 3600,
        "repair_hours": ((hit + (passing or 0.0)) * scale + ready) / 3600,
        "delete_milliseconds": 1000 * statistics.median(deleting),
        "answer_milliseconds": 1000 * answering / batch.num_rows,
        "stored_bytes": stored,
    }
    return values, answers


def _advice(
    systems: Sequence[ComparedSystem], answers: Mapping[str, Sequence[Any] | None], sample: _Sample, seed: int
) -> tuple[float | None, str | None, str]:
    """Score of a guess, name of the advised system, and a sentence."""
    count = sample.held_out.num_rows
    places = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count)).tolist()

    def drawn(given: Sequence[Any] | None) -> Any:
        return np.array([sample.score(given, rows) for rows in places], dtype=np.float64)

    best = max(systems, key=lambda system: system.score)
    of_best = drawn(answers[best.name])
    close = [best] + [
        system for system in systems if system is not best and (drawn(answers[system.name]) >= of_best).mean() > NOISE
    ]
    chosen = min(close, key=lambda system: system.hours_a_year)
    guesses = sample.target.guesses(sample.target.expected(sample.held_out))
    scored = [(score, given) for given in guesses if (score := sample.score(given)) is not None]
    guess, given = max(scored, key=lambda pair: pair[0], default=(None, None))
    if given is not None and (drawn(given) >= of_best).mean() > NOISE:
        problem = f"No system is better than a guess ({guess:.4g})"
        remedy = "check labels and columns, and try another base model, more epochs or more records"
        return guess, None, f"{problem}: {remedy}."
    said = f"Take {chosen.name}: after {counted(chosen.points[-1].deleted, 'deletion')} it scores {chosen.score:.4g}, "
    said += "the best" if chosen is best else f"within noise of the best ({best.name}, {best.score:.4g})"
    if len(close) > 1:
        said += f", and takes the fewest hours a year of the {len(close)} that are as good ({chosen.hours_a_year:.2g})"
    if chosen.recipe["method"] == "ridge":
        said += "; it is the simplest, too: no model is trained"
    return guess, chosen.name, f"{said}."
