"""Systems trained once; requests and repairs replayed over what they answer."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from pydantic import Field

from experiments.replay import Ensemble, Judge, averaged, counted, of_prefixes
from experiments.requests import Shard, changes_of_chains, moments, requests_of, shard_of
from experiments.runner import Row
from experiments.runs import expected_of, trained
from experiments.served import Answers, SystemSettings, every_order, sisa
from experiments.settings import Grown
from experiments.tasks import Task
from s3t.core import Order
from s3t.orders import Setting, select

FOREST = "forests"


class Config(SystemSettings):
    """One task; systems, policies, requests."""

    budgets: tuple[int, ...]
    """B's of s3t."""
    selector: str
    """Of s3t's orders."""
    policies: tuple[str, ...]
    """Of repair."""
    requests: int = Field(ge=1)
    """That come."""
    step: int = Field(ge=1)
    """Requests between two points."""
    rounds: int = Field(ge=1)
    """Random orders of requests."""
    trained_with: tuple[int, ...]
    """Training seeds of the systems that say what fewer records cost."""
    chains: tuple[Grown, ...] = Field(default=(), exclude_if=lambda chains: not chains)
    """Policies of repair as needed. Results that have none were measured before there were any."""

    @property
    def grid(self) -> list[int]:
        """Numbers of requests."""
        return list(range(self.step, self.requests + 1, self.step))

    @property
    def unit(self) -> int:
        """Slices that pass through blocks in a training of one order of s3t in every shard."""
        return self.shards * sum(depth * depth for depth in range(1, self.slices + 1))


def points(config: Config) -> list[Row]:
    """One a system and policy; and systems trained with all records, and without those of all requests."""
    systems: list[Row] = [{"system": "sisa"}, *({"system": "s3t", "budget": budget} for budget in config.budgets)]
    return [
        *(system | {"policy": policy} for system in systems for policy in config.policies),
        *({"system": FOREST, "policy": str(chains), **chains.model_dump()} for chains in config.chains),
        *(
            {"system": "trained", "without": count, "train_seed": seed}
            for count in (0, config.requests)
            for seed in config.trained_with
        ),
    ]


def measure(config: Config, point: Row) -> Row:
    """Accuracy over requests, how many systems answer, and the training, in trainings of one order of s3t."""
    found = config.found()
    if point["system"] == "trained":
        left = replace(found, train=found.train.iloc[point["without"] :])  # they lie in a random order
        recipe = config.recipe(left, budget=1)
        recipe["training"]["seed"] = point["train_seed"]
        with trained(recipe, left) as run:
            return {"accuracy": run.evaluate(left.test, per_depth=False).accuracy}
    if point["system"] == FOREST:
        return _of_forests(
            config, Grown.model_validate({name: point[name] for name in Grown.model_fields if name in point}), found
        )
    answers, orders = _served(config, point, found)
    slices = config.slices
    # Slices that a stage passes times the blocks it passes them through. S3T's starts at its block, from the cache.
    shard = shard_of(orders, lambda depth: float(depth * (slices if point["system"] == "sisa" else depth)))
    judge = Judge(of_prefixes(answers.logits, [orders] * config.shards), expected_of(found))
    generator = np.random.default_rng(config.seed)  # the same requests for every system and policy
    curves, passes = [], []
    for _ in range(config.rounds):
        requests = requests_of(answers.sizes, config.requests, generator)
        costs, accuracies = zip(*_round(config, shard, requests, point["policy"], judge), strict=True)
        passes.append(sum(costs) / config.unit)
        curves.append(accuracies[config.step - 1 :: config.step])
    return averaged(curves) | {"trainings": statistics.fmean(passes)}


def _of_forests(config: Config, chains: Grown, found: Task) -> Row:
    """The same of shards that are repaired as needed. Stages pass through as many slices and blocks as with orders."""
    answers = every_order(config, found)
    ensemble = Ensemble(answers.logits, expected_of(found))
    generator = np.random.default_rng(config.seed)  # the same requests for every system and policy
    curves: list[list[float | None]] = []
    passes = []
    for _ in range(config.rounds):
        requests = requests_of(answers.sizes, config.requests, generator)
        changes = list(changes_of_chains(chains.policy, requests, slices=config.slices, shards=config.shards))
        stages = np.sum([change.trained for change in changes], axis=0)
        passes.append(float(stages @ np.arange(1, config.slices + 1) ** 2) / config.unit)
        curves.append([ensemble.accuracy(change.repaired) for change in changes[config.step - 1 :: config.step]])
    return averaged(curves) | {"trainings": statistics.fmean(passes)}


def _served(config: Config, point: Row, found: Task) -> tuple[Answers, Sequence[Order]]:
    if point["system"] == "sisa":
        answers = sisa(config, found)
        return answers, answers.orders[0]
    setting = Setting(slices=config.slices, budget=point["budget"], seed=config.seed)
    return every_order(config, found), select(config.selector, setting)


def _round(
    config: Config, shard: Shard, requests: Sequence[tuple[int, int]], policy: str, judge: Judge
) -> Iterator[tuple[float, float | None]]:
    """After every request what its repair cost, and how right the system then is."""

    @cache
    def right(states: tuple[int, ...]) -> float | None:
        return judge.accuracy(
            np.array([[state >> index & 1 for index in range(config.slices)] for state in states]) > 0
        )

    for number, moment in enumerate(moments(shard, requests, shards=config.shards, policy=policy), start=1):
        yield moment.cost, None if number % config.step else right(moment.states)


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """The means over every curve, a dead system counted as never right; and what fewer records cost."""
    systems: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["system"] == "trained":
            continue
        systems.setdefault(name_of(row), {})[row["policy"]] = {
            "accuracy": statistics.fmean(counted(row)),
            "answering": statistics.fmean(row["alive"]),
            "trainings": row["trainings"],
        }
    kept = {
        str(count): statistics.fmean(row["accuracy"] for row in rows if row.get("without") == count)
        for count in (0, config.requests)
    }
    return {"systems": systems, "trained_without": kept}


def name_of(row: Row) -> str:
    """What a system is called in the summary.

    >>> name_of({"system": "s3t", "budget": 4}), name_of({"system": "sisa"})
    ('s3t, B=4', 'sisa')
    """
    return ", ".join([row["system"], *([f"B={row['budget']}"] if "budget" in row else [])])
