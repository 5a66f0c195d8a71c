"""Systems of the same budget and other orders, and forests: trained once, deletions replayed over their answers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from experiments.chance import interval
from experiments.replay import Judge, counted, curves, of_prefixes
from experiments.runner import Row
from experiments.runs import expected_of, recipe_of
from experiments.served import own_orders
from experiments.settings import Grown, SeededSettings, TaskSettings
from experiments.tasks import task


class Config(SeededSettings):
    """Tasks, budgets and selectors."""

    shards: int = Field(ge=1)
    """m."""
    slices: int = Field(ge=1)
    """L."""
    budgets: tuple[int, ...]
    """B's."""
    selectors: tuple[str, ...]
    """The paper's, and ours."""
    tried: int | None
    """Records to be tried on; None: all."""
    rounds: int = Field(ge=1)
    """Random deletion orders."""
    deletions: tuple[int, ...]
    """Numbers of deletions after which accuracy is measured."""
    chains: tuple[Grown, ...] = Field(default=(), exclude_if=lambda chains: not chains)
    """Of forests, which are not repaired here. Results that have none were measured before there were any."""
    tasks: dict[str, TaskSettings]
    """By name."""


def points(config: Config) -> list[Row]:
    """One a system."""
    systems: list[Row] = [
        *({"budget": budget, "selector": selector} for budget in config.budgets for selector in config.selectors),
        *({"selector": str(chains), "chains": chains.model_dump()} for chains in config.chains),
    ]
    return [
        {"task": name, "train_seed": seed, **system}
        for name in config.tasks
        for seed in config.seeds
        for system in systems
    ]


def measure(config: Config, point: Row) -> Row:
    """Accuracy after every number of deletions, while the system answers; how many systems do; and what the system's
    stages cost, in trainings of one order: slices times the blocks that they pass through."""
    setting = config.tasks[point["task"]]
    found = task(point["task"], records=setting.records, tried=config.tried, made_up=config.made_up)
    system: dict[str, Any] = (
        {"chains": Grown.model_validate(point["chains"]).policy}
        if "chains" in point
        else {"budget": point["budget"], "selector": point["selector"]}
    )
    recipe = recipe_of(
        found,
        setting.training(config.training, seed=point["train_seed"]),
        shards=config.shards,
        slices=config.slices,
        salt=f"experiments {point['train_seed']}",
        **system,
    )
    answers = own_orders(recipe, found)
    judge = Judge(of_prefixes(answers.logits, answers.orders), expected_of(found))
    passes = sum(len(prefix) ** 2 for _, prefix in answers.logits) / config.shards
    return {
        **curves(judge, config.deletions, answers.sizes, rounds=config.rounds, seed=config.seed),
        "trainings": passes / sum(depth**2 for depth in range(1, config.slices + 1)),
    }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """For every task and budget, accuracies with a dead system counted as never right, and the points between them; of
    forests the accuracies, and what they and the orders cost."""
    found: dict[str, dict[str, Any]] = {}
    for name in config.tasks:
        own = [row for row in rows if row["task"] == name]
        of_budgets = {f"B={budget}": _of_orders(config, own, budget) for budget in config.budgets}
        found[name] = of_budgets | ({"forests": _of_forests(config, own)} if config.chains else {})
    return found


def _of_orders(config: Config, rows: Sequence[Row], budget: int) -> Row:
    """Of both selectors."""
    of = {
        selector: [counted(row) for row in rows if (row.get("budget"), row["selector"]) == (budget, selector)]
        for selector in config.selectors
    }
    ours, paper = of[config.selectors[-1]], of[config.selectors[0]]
    by_seed = [
        [100 * (one - other) for one, other in zip(*pair, strict=True)] for pair in zip(ours, paper, strict=True)
    ]
    apart = [statistics.fmean(values) for values in zip(*by_seed, strict=True)]
    return {
        "accuracy": {selector: _at(config, own) for selector, own in of.items()},
        "points_above": dict(zip(map(str, config.deletions), apart, strict=True)),
        "mean_points_above": statistics.fmean(apart),
        "mean_points_above_by_seed": [statistics.fmean(values) for values in by_seed],
        "interval": interval([statistics.fmean(values) for values in by_seed]),
    }


def _of_forests(config: Config, rows: Sequence[Row]) -> Row:
    """Of every system in one list: forests, and orders to compare them with."""
    systems: dict[str, list[Row]] = {}
    for row in rows:
        label = f"B={row['budget']}, {row['selector']}" if "budget" in row else row["selector"]
        systems.setdefault(label, []).append(row)
    return {
        label: {
            "accuracy": _at(config, [counted(row) for row in own]),
            "trainings": statistics.fmean(row["trainings"] for row in own),
        }
        for label, own in systems.items()
    }


def _at(config: Config, curves_of_seeds: Sequence[Sequence[float]]) -> dict[str, float]:
    """Means over seeds, by number of deletions."""
    means = map(statistics.fmean, zip(*curves_of_seeds, strict=True))
    return dict(zip(map(str, config.deletions), means, strict=True))
