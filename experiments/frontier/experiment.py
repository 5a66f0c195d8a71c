"""Every method, with trained and with ridge heads, before and after deletions; and models merged into one.

A row is one training. Its records leave in a random order; one repair comes after the last of them. Times are CPU
seconds of one thread, so that other work may run beside, but for deletions, which wait for the disk.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import Field

import s3t
from experiments.chance import interval
from experiments.frontier.models import measures, ridge_heads, trained_heads
from experiments.runner import Row
from experiments.runs import recipe_of, untrained
from experiments.settings import SeededSettings, SlicedTaskSettings
from experiments.tasks import Task, task
from s3t.core import AsNeeded, Stage
from s3t.results.changes import Training

T = TypeVar("T")
MONTHS = 12
ANSWERED = 256
"""Inputs whose answer is timed."""
GONE = -2
"""Scores before the repair."""
SINGLES = 5
"""Deletions that are timed."""


class Config(SeededSettings):
    """Tasks, and what they have in common."""

    tried: int
    """Records to be tried on, at most."""
    rank: int = Field(ge=1)
    """Of LoRA."""
    shards: int = Field(ge=1)
    """Of methods that have several."""
    shares: tuple[float, ...]
    """Shares of the records that are gone, one after the other."""
    monthly: float
    """Share of the records that is deleted in each month of a year, and repaired at its end."""
    systems: tuple[str, ...]
    """Methods; with `, merged` their shards answer as one model, with `, chains` they have a main chain and a spare."""
    without_classes: tuple[str, ...]
    """Tasks that have no class means, so no protosisa."""
    tasks: dict[str, SlicedTaskSettings]
    """By name."""


def points(config: Config) -> list[Row]:
    """One a training; all tasks under a seed before the next seed."""
    return [
        {"task": name, "system": system, "train_seed": seed}
        for seed in config.seeds
        for name in config.tasks
        for system in config.systems
        if not system.startswith("protosisa") or name not in config.without_classes
    ]


def measure(config: Config, point: Row) -> Row:
    """Train, delete, repair. Scores are by the task's own metric, None where nothing answers."""
    setting, system, seed = config.tasks[point["task"]], point["system"], point["train_seed"]
    found = task(point["task"], records=setting.records, tried=config.tried, made_up=config.made_up)
    order = list(found.train["id"])
    random.Random(seed).shuffle(order)
    recipe, shallow = _recipe(config, setting, found, system, seed), {}
    with untrained(recipe, found) as run:
        run.parts.loaded.get()  # loading the model is no part of the times
        training, seconds = _timed(run.train)
        states, answer_ms = [_scores(run, found)], _answer_ms(run, found)
        costs = _costs(run, training, seconds, config.monthly)
        if system == "s3t":
            for head, logits in (("trained", trained_heads(run)), ("ridge", ridge_heads(run))):
                shallow[head] = measures(run, found.test, logits, depth=1)[found.metric]
        deleting, gone = [], 0
        for share in config.shares:
            names, gone = order[gone : (last := max(1, round(share * len(order))))], last
            for name in names[:SINGLES]:
                began = time.perf_counter()
                run.delete(records=[name], repair=False)
                deleting.append(1e3 * (time.perf_counter() - began))
            if names[SINGLES:]:
                run.delete(records=names[SINGLES:], repair=False)
            run.repair(hours=0)  # heads alone
            states.append(_scores(run, found))
        _, repair_seconds = _timed(run.repair)
        states.append(_scores(run, found))
        stored = run.status(full=True).stored_bytes
    return {
        "metric": found.metric,
        "guess": found.guess,
        "records": len(order),
        "tried": len(found.test),
        "scores": {head: [state.get(head) for state in states] for head in costs},
        "costs": costs,
        "repair_seconds": repair_seconds,
        "delete_ms": statistics.median(deleting),
        "answer_ms": answer_ms,
        "bytes": stored,
        **({"depth_1": shallow} if shallow else {}),
    }


def _recipe(config: Config, setting: SlicedTaskSettings, found: Task, system: str, seed: int) -> dict[str, Any]:
    system, _, form = system.partition(", ")
    if system == "ridge":
        training = {"threads": 1, "seed": seed}
        return {**found.recipe, "method": "ridge", "training": training, "partition": {"salt": "experiments"}}
    whole = system == "full"
    recipe = recipe_of(
        found,
        setting.training(config.training, seed=seed),
        slices=1 if whole else setting.slices,
        shards=1 if whole else config.shards,
        layers_per_slice=found.layers if whole else None,
        method=None if system == "s3t" else system,
        rank=config.rank,
        chains=AsNeeded(depth=setting.slices) if form == "chains" else None,
    )
    return recipe | {"head": "ridge"} | ({"prediction": {"ensemble": form}} if form == "merged" else {})


def _scores(run: s3t.Run, found: Task) -> dict[str, float]:
    """Of ridge heads, where no model lives the base model's; and of the trained heads of the same models."""
    scores = {"ridge": run.evaluate(found.test, per_depth=False).metrics[found.metric]}
    if run.recipe.readouts == "each" and run.inventory().members():
        scores["trained"] = measures(run, found.test, trained_heads(run))[found.metric]
    return scores


def _answer_ms(run: s3t.Run, found: Task) -> float:
    """CPU milliseconds of an input, answered in a batch."""
    inputs = found.test.drop(columns="label").head(ANSWERED)
    run.predict(inputs.head(1))  # solves the heads
    return 1e3 * _timed(lambda: run.predict(inputs))[1] / len(inputs)


def _costs(run: s3t.Run, training: Training, seconds: float, monthly: float) -> dict[str, Row]:
    """CPU seconds of the training with each head, and of a month's repair: a stage made of a share of the records
    survives n deletions at random with a probability of (1 - share) ** n.
    """
    records, stages = run.inventory().records, {each.stage: each.seconds for each in training.summaries}
    total = sum(records.values())
    deleted, scale = round(monthly * total), seconds / math.fsum(stages.values())

    def hit(stage: Stage) -> float:
        return 1 - (1 - sum(records[place] for place in {*stage.places}) / total) ** deleted

    def cost(stages: Mapping[Stage, float]) -> Row:
        month = math.fsum(own * hit(stage) for stage, own in stages.items())
        return {"seconds": scale * math.fsum(stages.values()), "month_seconds": scale * month}

    models = {stage: own for stage, own in stages.items() if stage.kind != "readout"}
    return {"ridge": cost(stages), **({"trained": cost(models)} if run.recipe.readouts == "each" else {})}


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """A result, and the CPU seconds that it took."""
    began = time.process_time()
    return work(), time.process_time() - began


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """For every task and system the means over the seeds: scores, their points above full fine-tuning with nothing
    deleted, CPU seconds to train and of a year, and of an answer; and these points in the mean over the tasks.
    """
    tasks: dict[str, Any] = {}
    for name in config.tasks:
        own = [row for row in rows if row["task"] == name]
        by_seed = [_systems([row for row in own if row["train_seed"] == seed]) for seed in config.seeds]
        systems = {
            system: _mean([found[system] for found in by_seed], [found["full"]["scores"][0] for found in by_seed])
            for system in by_seed[0]
        }
        shallow = [row["depth_1"] for row in own if "depth_1" in row]
        tasks[name] = {
            "metric": own[0]["metric"],
            "guess": own[0]["guess"],
            "depth_1": {head: statistics.fmean(each[head] for each in shallow) for head in ("trained", "ridge")},
            "systems": systems,
        }
    names = dict.fromkeys(system for found in tasks.values() for system in found["systems"])
    pooled = {
        when: {
            system: _pooled([found["systems"][system][when] for found in tasks.values() if system in found["systems"]])
            for system in names
        }
        for when in ("apart", "apart_gone", "apart_repaired")
    }
    costs = {name: _costs_beside_full([found["systems"] for found in tasks.values()], name) for name in names}
    return {"tasks": tasks, **pooled, "costs": costs}


def _costs_beside_full(tasks: Sequence[Row], system: str) -> Row:
    """Geometric means, over the tasks that a system takes, of its costs, times those of full fine-tuning."""
    taken = [systems for systems in tasks if system in systems]
    return {
        cost: statistics.geometric_mean(systems[system][cost] / systems["full"][cost] for systems in taken)
        for cost in ("seconds", "year_seconds", "answer_ms")
    }


def _systems(rows: Sequence[Row]) -> dict[str, Row]:
    """What the trainings on a task under a seed have measured, by the name of the system."""
    found: dict[str, Row] = {}
    for row in rows:
        for head in ("trained", "ridge"):
            if head in row["costs"]:
                name = row["system"] + (", ridge head" if head == "ridge" and "trained" in row["costs"] else "")
                found[name] = {"scores": row["scores"][head], "answer_ms": row["answer_ms"], **row["costs"][head]}
    return found


def _mean(found: Sequence[Row], full: Sequence[float]) -> Row:
    """Means over the seeds of a system's measures."""

    def apart(state: int) -> Row:
        points = [100 * (own["scores"][state] - best) for own, best in zip(found, full, strict=True)]
        return {"mean": statistics.fmean(points), "interval": interval(points), "by_seed": points}

    states = zip(*(own["scores"] for own in found), strict=True)
    mean = {name: statistics.fmean(own[name] for own in found) for name in ("seconds", "month_seconds", "answer_ms")}
    return {
        "scores": [None if None in scores else statistics.fmean(scores) for scores in states],
        "apart": apart(0),
        "apart_gone": None if any(own["scores"][GONE] is None for own in found) else apart(GONE),
        "apart_repaired": apart(-1),
        **mean,
        "year_seconds": mean["seconds"] + MONTHS * mean["month_seconds"],
    }


def _pooled(apart: Sequence[Row | None]) -> Row | None:
    """In the mean over the tasks; None where nothing answers on one of them."""
    if None in apart:
        return None
    points = [statistics.fmean(at) for at in zip(*(own["by_seed"] for own in apart if own), strict=True)]
    return {"mean": statistics.fmean(points), "interval": interval(points)}
