"""Every prefix trained once, by S3T and by SISA; requests and repairs replayed over what the prefixes answer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from experiments.chance import interval
from experiments.replay import Ensemble
from experiments.requests import Change, changes_of_chains, changes_of_orders, repeated_requests_of
from experiments.runner import Row
from experiments.runs import expected_of
from experiments.served import Answers, SystemSettings, every_order, every_order_of_sisa
from experiments.settings import Grown
from s3t.core import Order
from s3t.orders import Setting, select

FOREST, FIXED, SISA, SISA_FOREST = "forests", "fixed orders", "SISA, one order", "SISA, as needed"
RIVALS = (FIXED, SISA, SISA_FOREST)
METHODS = ("s3t", "sisa")
MOMENTS = ("before_next", "after_hit")
"""Moments at which accuracy is read: just before each next request, after the repair; just after a hit, before it."""


class Config(SystemSettings):
    """One task; systems, policies, requests."""

    seeds: tuple[int, ...]
    """Of the trainings, the partitions and the requests."""
    budgets: tuple[int, ...]
    """B's of fixed orders."""
    selector: str
    """Of fixed orders."""
    policies: tuple[str, ...]
    """Of repair, of fixed orders and of SISA's one order; manual: never."""
    chains: tuple[Grown, ...]
    """Policies of repair as needed, of forests and of SISA."""
    requests: int = Field(ge=1)
    """That come. Deleted records are taken to be replaced, so that slices keep their size."""
    rounds: int = Field(ge=1)
    """Random orders of requests."""


class Round(NamedTuple):
    """An order of requests, and the slices' numbers in it, so that nothing hangs on one numbering."""

    slices: tuple[Order, ...]
    """By shard and number, the slice."""
    requests: list[tuple[int, int]]
    """Shard and number of the slice of each."""


class System(NamedTuple):
    """A system under a policy, over one order of requests after another."""

    name: str
    """FOREST or a rival."""
    policy: str
    """Of repair, with the orders or chains."""
    changes: list[Iterator[Change]]
    """What comes of each round."""


def points(config: Config) -> list[Row]:
    """One a seed and method of training."""
    return [{"train_seed": seed, "method": method} for seed in config.seeds for method in METHODS]


def measure(config: Config, point: Row) -> Row:
    """Of every system that this method trains: accuracy at both moments, a dead system counted as never right; share
    of hits that leave the shard dead; and stages that repairs train, by depth. Beside it, seconds of a stage."""
    seed, found = point["train_seed"], config.found()
    own = config.model_copy(update={"seed": seed})
    trained = every_order if point["method"] == "s3t" else every_order_of_sisa
    answers = trained(own, found, salt=f"experiments {seed}")
    generator = np.random.default_rng([config.seed, seed])  # the same requests for every system
    rounds = [_round(answers.sizes, config.requests, generator) for _ in range(config.rounds)]
    ensemble = Ensemble(answers.logits, expected_of(found))
    return {
        "accuracy_of_a_shard": _by_depth(answers, expected_of(found), config.slices),
        "systems": [
            {"system": each.name, "policy": each.policy, **_replayed(each, rounds, ensemble)}
            for each in _systems(config, point["method"], rounds)
        ],
        "seconds": [statistics.median(answers.seconds[depth]) for depth in range(1, config.slices + 1)],
    }


def _round(sizes: NDArray[np.int64], count: int, generator: np.random.Generator) -> Round:
    shards, slices = sizes.shape
    numbered = tuple(tuple(generator.permutation(slices).tolist()) for _ in range(shards))
    requests = repeated_requests_of(sizes, count, generator)
    return Round(numbered, [(shard, numbered[shard].index(index)) for shard, index in requests])


def _systems(config: Config, method: str, rounds: Sequence[Round]) -> Iterator[System]:
    slices, shards = config.slices, config.shards
    for chains in config.chains:
        changes = [changes_of_chains(chains.policy, each.requests, slices=slices, shards=shards) for each in rounds]
        yield System(FOREST if method == "s3t" else SISA_FOREST, str(chains), changes)
    for name, orders in _fixed(config, method).items():
        for policy in config.policies:
            changes = [changes_of_orders(orders, each.requests, shards=shards, policy=policy) for each in rounds]
            yield System(FIXED if method == "s3t" else SISA, f"{name}{policy}", changes)


def _fixed(config: Config, method: str) -> dict[str, Sequence[Order]]:
    """Fixed orders of a shard, by the beginning of their policies' names."""
    if method == "sisa":
        return {"": [tuple(range(config.slices))]}
    return {
        f"B={budget}, ": select(config.selector, Setting(slices=config.slices, budget=budget, seed=config.seed))
        for budget in config.budgets
    }


def _replayed(system: System, rounds: Sequence[Round], ensemble: Ensemble) -> Row:
    hit, repaired, dead, trained = [], [], 0, []
    for changes, own in zip(system.changes, rounds, strict=True):
        stages: NDArray[np.int64] = np.array(0)
        for change in changes:
            hit.append(ensemble.accuracy(_of_slices(change.hit, own)))
            repaired.append(ensemble.accuracy(_of_slices(change.repaired, own)))
            dead += not change.hit[change.where]
            stages = stages + np.array(change.trained)
        trained.append(stages)
    return {
        "before_next": statistics.fmean(repaired),
        "after_hit": statistics.fmean(hit),
        "dead_share": dead / len(hit),
        "stages": np.mean(trained, axis=0).tolist(),
    }


def _of_slices(serving: tuple[Order, ...], own: Round) -> tuple[Order, ...]:
    """Prefixes of numbers as prefixes of slices."""
    return tuple(tuple(slices[number] for number in prefix) for slices, prefix in zip(own.slices, serving, strict=True))


def _by_depth(answers: Answers, expected: NDArray[np.int64], slices: int) -> list[float]:
    """Accuracy of one shard alone that serves with 1 to L slices, in the mean over shards and prefixes."""
    return [
        statistics.fmean(
            float((own.argmax(axis=1) == expected).mean())
            for (_, prefix), own in answers.logits.items()
            if len(prefix) == depth
        )
        for depth in range(1, slices + 1)
    ]


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Hours of repairs and accuracy of every system, means over seeds; and how far forests are above their rivals at
    equal compute, with an interval over seeds."""
    seconds = stage_seconds(rows)
    placed = [
        {**each, "train_seed": row["train_seed"], "hours": _hours(each["stages"], seconds[row["method"]])}
        for row in rows
        for each in row["systems"]
    ]
    systems: dict[str, dict[str, Any]] = {}
    for each in placed:
        alike = [own for own in placed if (own["system"], own["policy"]) == (each["system"], each["policy"])]
        systems.setdefault(each["system"], {})[each["policy"]] = {
            name: statistics.fmean(own[name] for own in alike) for name in ("hours", *MOMENTS, "dead_share")
        }
    return {
        "stage_seconds": seconds,
        "accuracy_of_a_shard": {
            method: [
                statistics.fmean(at)
                for at in zip(*(row["accuracy_of_a_shard"] for row in rows if row["method"] == method), strict=True)
            ]
            for method in METHODS
        },
        "systems": systems,
        "points_above": {
            rival: {moment: _points_above(config, placed, rival, moment) for moment in MOMENTS} for rival in RIVALS
        },
    }


def stage_seconds(rows: Sequence[Row]) -> dict[str, list[float]]:
    """By method, seconds of a stage of each depth: the median over seeds of each seed's median."""
    return {
        method: [
            statistics.median(at)
            for at in zip(*(row["seconds"] for row in rows if row["method"] == method), strict=True)
        ]
        for method in METHODS
    }


def _hours(stages: Sequence[float], seconds: Sequence[float]) -> float:
    return math.fsum(count * each for count, each in zip(stages, seconds, strict=True)) / 3600


def _points_above(config: Config, placed: Sequence[Row], rival: str, moment: str) -> Row:
    """Of each policy of forests, and in their mean: points by which they are above the rival's frontier."""
    apart: dict[str, list[float]] = {}
    for seed in config.seeds:
        own = [each for each in placed if each["train_seed"] == seed]
        edge = frontier([(each["hours"], each[moment]) for each in own if each["system"] == rival])
        for each in own:
            if each["system"] == FOREST:
                apart.setdefault(each["policy"], []).append(100 * (each[moment] - at(edge, each["hours"])))
    means = [statistics.fmean(values) for values in zip(*apart.values(), strict=True)]
    return {
        name: {"mean": statistics.fmean(values), "interval": interval(values)}
        for name, values in {"all": means, **apart}.items()
    }


def frontier(systems: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The upper hull of (hours, accuracy) up to the highest accuracy: what a mixture of policies reaches, too.

    >>> frontier([(0, 0.0), (1, 0.1), (2, 0.8), (4, 0.9), (6, 0.7)])
    [(0, 0.0), (2, 0.8), (4, 0.9)]
    """
    hull: list[tuple[float, float]] = []
    for hours, accuracy in sorted(systems, key=lambda each: (each[0], -each[1])):
        if hull and accuracy <= hull[-1][1]:
            continue  # dearer, and no better
        while len(hull) > 1 and _below(hull[-2], hull[-1], (hours, accuracy)):
            hull.pop()
        hull.append((hours, accuracy))
    return hull


def _below(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether the middle lies on or below the line through the two others."""
    return (middle[1] - left[1]) * (right[0] - left[0]) <= (right[1] - left[1]) * (middle[0] - left[0])


def at(edge: Sequence[tuple[float, float]], hours: float) -> float:
    """Accuracy on a frontier at a cost; beyond its ends that of the end.

    >>> at([(0, 0.0), (2, 0.8), (4, 0.9)], 1.0), at([(0, 0.0), (2, 0.8), (4, 0.9)], 9.0)
    (0.4, 0.9)
    """
    return float(np.interp(hours, [cost for cost, _ in edge], [accuracy for _, accuracy in edge]))
