"""Deletion rate against budget: the exact mean, the paper's logarithm, simulations, first failure, SISA."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from experiments.laws import sisa_bound
from experiments.runner import Row
from experiments.settings import Settings
from experiments.systems import rates
from s3t.orders import Setting, select
from s3t.planning.bounds import paper_bound
from s3t.planning.simulation import Deletions


class Config(Settings):
    """One system, under many budgets."""

    shards: int = Field(ge=1)
    """m."""
    slices: int = Field(ge=1)
    """L, a shard."""
    budgets: tuple[int, ...] = Field(min_length=1)
    """B's, sequences a shard."""
    trials: int = Field(ge=2)
    """Simulated systems a budget."""
    selector: str
    """Whose orders are simulated."""


def points(config: Config) -> list[Row]:
    """One a budget."""
    return [{"budget": budget} for budget in config.budgets]


def measure(config: Config, point: Row) -> Row:
    """In deletions: Lemma 1's sum (`bound`), its order of growth (`logarithm`), SISA's sum, and the system's rates."""
    budget = point["budget"]
    orders = select(config.selector, Setting(slices=config.slices, budget=budget, seed=config.seed))
    full = config.shards * config.slices
    return {
        "bound": paper_bound(config.shards, config.slices, budget),
        "logarithm": full * math.log(config.shards * min(budget, config.slices)),
        "sisa": sisa_bound(config.shards, config.slices),
        **rates(
            [orders] * config.shards,
            Deletions.uniform(config.shards, config.slices),
            trials=config.trials,
            seed=config.seed + budget,
        ),
    }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Gains, and how far the simulation is from the sum."""
    first, last = rows[0], rows[-1]
    half = (first["bound"] + last["bound"]) / 2
    return {
        "sisa": first["sisa"],
        "rate_by_budget": {str(row["budget"]): row["rate"] for row in rows},
        "first_by_budget": {str(row["budget"]): row["first"] for row in rows},
        "gain_at_most": last["rate"] / first["sisa"],
        "half_of_the_growth_by_budget": next(
            budget
            for budget in range(1, config.slices + 1)
            if paper_bound(config.shards, config.slices, budget) >= half
        ),
        "std_at_least": min(row["rate_std"] for row in rows),
        "std_at_most": max(row["rate_std"] for row in rows),
        "simulated_off_at_most": max(abs(row["simulated_rate"] / row["bound"] - 1) for row in rows),
        "simulated_off_in_standard_errors_at_most": max(
            abs(row["simulated_rate"] - row["bound"]) / row["simulated_rate_error"] for row in rows
        ),
        "exact_off_the_bound_at_most": max(abs(row["rate"] / row["bound"] - 1) for row in rows),
        "logarithm_below_the_bound": last["bound"] - last["logarithm"],
    }
