"""Systems of the same budget and other orders: trained once, deletions replayed over their answers."""

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
from experiments.settings import SeededSettings, TaskSettings
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
    tasks: dict[str, TaskSettings]
    """By name."""


def points(config: Config) -> list[Row]:
    """One a system."""
    return [
        {"task": name, "train_seed": seed, "budget": budget, "selector": selector}
        for name in config.tasks
        for seed in config.seeds
        for budget in config.budgets
        for selector in config.selectors
    ]


def measure(config: Config, point: Row) -> Row:
    """Accuracy after every number of deletions, while the system answers; and how many systems do."""
    setting = config.tasks[point["task"]]
    found = task(point["task"], records=setting.records, tried=config.tried, made_up=config.made_up)
    recipe = recipe_of(
        found,
        setting.training(config.training, seed=point["train_seed"]),
        shards=config.shards,
        slices=config.slices,
        budget=point["budget"],
        selector=point["selector"],
        salt=f"experiments {point['train_seed']}",
    )
    answers = own_orders(recipe, found)
    judge = Judge(of_prefixes(answers.logits, answers.orders), expected_of(found))
    return curves(judge, config.deletions, answers.sizes, rounds=config.rounds, seed=config.seed)


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """For every task and budget, accuracies with a dead system counted as never right, and the points between them."""
    found: dict[str, dict[str, Any]] = {}
    ours, paper = config.selectors[-1], config.selectors[0]
    for name in config.tasks:
        for budget in config.budgets:
            of = {
                selector: [
                    counted(row)
                    for row in rows
                    if (row["task"], row["budget"], row["selector"]) == (name, budget, selector)
                ]
                for selector in config.selectors
            }
            at = [str(count) for count in config.deletions]
            by_seed = [
                [100 * (one - other) for one, other in zip(*pair, strict=True)]
                for pair in zip(of[ours], of[paper], strict=True)
            ]
            apart = [statistics.fmean(values) for values in zip(*by_seed, strict=True)]
            found.setdefault(name, {})[f"B={budget}"] = {
                "accuracy": {
                    selector: {
                        count: statistics.fmean(values)
                        for count, values in zip(at, zip(*own, strict=True), strict=True)
                    }
                    for selector, own in of.items()
                },
                "points_above": dict(zip(at, apart, strict=True)),
                "mean_points_above": statistics.fmean(apart),
                "mean_points_above_by_seed": [statistics.fmean(values) for values in by_seed],
                "interval": interval([statistics.fmean(values) for values in by_seed]),
            }
    return found
