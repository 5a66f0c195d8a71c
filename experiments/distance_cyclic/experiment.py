"""Mean distance between orders, and the depth that they keep, for every budget."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from experiments.quality import JudgeSettings
from experiments.runner import Row

SELECTORS = ("cyclic", "cyclic-adjacent", "survival")


class Range(BaseModel):
    """Whole numbers, both ends among them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: int = Field(ge=1)
    """The smallest."""
    last: int
    """The largest."""


class Config(JudgeSettings):
    """One shard, under every budget."""

    slices: int = Field(ge=1)
    """L."""
    budgets: Range
    """B's."""
    draws: int = Field(ge=2)
    """Of random orders a budget."""


def points(config: Config) -> list[Row]:
    """One a budget."""
    return [{"budget": budget} for budget in range(config.budgets.first, config.budgets.last + 1)]


def measure(config: Config, point: Row) -> Row:
    """Distance in positions and depth in slices, of each selector's orders; the counting bound on the distance."""
    size = {"slices": config.slices, "budget": point["budget"]}
    found: Row = {"bound": counting_bound(**size)}
    for selector in SELECTORS:
        found |= config.judge.of(selector, **size)
    start = config.seed + config.draws * point["budget"]
    return {**found, **config.judge.of_random(**size, seeds=range(start, start + config.draws))}


def counting_bound(*, slices: int, budget: int) -> float:
    """No B orders of L slices have a larger mean distance: at a position, some slice is in B/L orders or more.

    >>> counting_bound(slices=3, budget=3), counting_bound(slices=3, budget=4)
    (3.0, 2.5)
    """
    if budget < 2:
        return 0.0
    often, rest = divmod(budget, slices)
    alike = rest * (often + 1) * often // 2 + (slices - rest) * often * (often - 1) // 2
    return slices * (1 - alike / (budget * (budget - 1) // 2))


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Who reaches the bound where, and what it is worth."""
    pairs = [row for row in rows if row["budget"] > 1]

    def reached(name: str) -> int:
        return sum(abs(row[f"{name}_distance"] - row["bound"]) < 1e-7 for row in pairs)

    # Two different random orders agree at a position with the chance 1/L, but for the chance that they are the same.
    expected = (config.slices - 1) / (1 - 1 / math.factorial(config.slices))

    def below_random(name: str) -> int:
        return sum(row[f"{name}_distance"] < expected - 1e-7 for row in pairs)

    def largest(name: str, other: str) -> Row:
        best = max(pairs, key=lambda row: row[name] / row[other])
        return {"budget": best["budget"], name: best[name], other: best[other], "ratio": best[name] / best[other]}

    by_budget = {str(row["budget"]): row for row in rows}
    shown = [str(budget) for budget in (2, 3, 4, 5, 10, 20, 60, 120) if str(budget) in by_budget]
    return {
        "budgets_above_1": len(pairs),
        "cyclic_reaches_the_bound_at": reached("cyclic"),
        "cyclic_adjacent_reaches_the_bound_at": reached("cyclic_adjacent"),
        "survival_reaches_the_bound_at": reached("survival"),
        "random_expected": expected,
        "cyclic_below_random_at": below_random("cyclic"),
        "cyclic_adjacent_below_random_at": below_random("cyclic_adjacent"),
        "cyclic_adjacent_below_random_by": max(expected - row["cyclic_adjacent_distance"] for row in pairs),
        "survival_below_random_at": below_random("survival"),
        "cyclic_over_random_distance": largest("cyclic_distance", "random_distance"),
        "cyclic_over_random_depth": largest("cyclic_depth", "random_depth"),
        "survival_over_cyclic_depth": largest("survival_depth", "cyclic_depth"),
        "cyclic_over_adjacent_depth": largest("cyclic_depth", "cyclic_adjacent_depth"),
        "survival_below_cyclic_distance": largest("cyclic_distance", "survival_distance"),
        "deepest": rows[-1]["survival_depth"],
        "budget_of_the_deepest": {
            name: next(
                (row["budget"] for row in rows if row[f"{name}_depth"] >= 0.999 * rows[-1]["survival_depth"]), None
            )
            for name in ("cyclic", "cyclic_adjacent", "survival", "random")
        },
        **{
            what: {budget: by_budget[budget][what] for budget in shown}
            for what in ("bound", "cyclic_distance", "random_distance", "survival_distance")
        },
        **{
            what: {budget: by_budget[budget][what] for budget in shown}
            for what in ("cyclic_depth", "cyclic_adjacent_depth", "random_depth", "survival_depth")
        },
    }
