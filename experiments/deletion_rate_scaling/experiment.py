"""Deletion rate against budget, against shards and against slices, with SISA's."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from experiments.laws import sisa_bound
from experiments.runner import Row
from experiments.settings import Settings
from experiments.systems import rates
from s3t.orders import Setting, select
from s3t.planning.simulation import Deletions


class Config(Settings):
    """A base system, of which one number at a time is changed."""

    shards: int = Field(ge=1)
    """m of the base system."""
    slices: int = Field(ge=1)
    """L of the base system."""
    budgets: tuple[int, ...]
    """B's of the first panel."""
    small_budget: int = Field(ge=1)
    """B in the other panels, beside B = L."""
    shard_counts: tuple[int, ...]
    """m's of the second panel."""
    slice_counts: tuple[int, ...]
    """L's of the third panel."""
    trials: int = Field(ge=2)
    """Simulated systems a point."""
    selector: str
    """Whose orders are simulated."""


def points(config: Config) -> list[Row]:
    """One a panel, its number, and the budget: `few` is the small one, `all` is B = L."""
    few = config.small_budget
    base = {"shards": config.shards, "slices": config.slices}
    return [
        *({"panel": "budget", **base, "budget": budget} for budget in config.budgets),
        *(
            {"panel": "shards", **base, "shards": shards, "budget": budget}
            for shards in config.shard_counts
            for budget in (few, config.slices)
        ),
        *(
            {"panel": "slices", **base, "slices": slices, "budget": budget}
            for slices in config.slice_counts
            for budget in dict.fromkeys((few, slices))
        ),
    ]


def measure(config: Config, point: Row) -> Row:
    """SISA's rate and the system's, in deletions, and the gain."""
    shards, slices, budget = point["shards"], point["slices"], point["budget"]
    orders = select(config.selector, Setting(slices=slices, budget=budget, seed=config.seed))
    found = rates(
        [orders] * shards,
        Deletions.uniform(shards, slices),
        trials=config.trials,
        seed=config.seed + 1_000_000 * shards + 1_000 * slices + budget,
    )
    sisa = sisa_bound(shards, slices)
    return {"sisa": sisa, **found, "gain": found["rate"] / sisa}


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Gains over SISA in each panel."""

    def gains(panel: str, number: str, budget: str) -> Row:
        chosen = [row for row in rows if row["panel"] == panel]
        small = config.small_budget
        wanted = [row for row in chosen if row["budget"] == (small if budget == "few" else row["slices"])]
        return {str(row[number]): row["gain"] for row in wanted}

    return {
        "sisa": next(row["sisa"] for row in rows),
        "rate_by_budget": {str(row["budget"]): row["rate"] for row in rows if row["panel"] == "budget"},
        "gain_by_budget": {str(row["budget"]): row["gain"] for row in rows if row["panel"] == "budget"},
        "gain_by_shards_with_few": gains("shards", "shards", "few"),
        "gain_by_shards_with_all": gains("shards", "shards", "all"),
        "gain_by_slices_with_few": gains("slices", "slices", "few"),
        "gain_by_slices_with_all": gains("slices", "slices", "all"),
        "simulated_off_at_most": max(abs(row["simulated_rate"] / row["rate"] - 1) for row in rows),
        "simulated_off_in_standard_errors_at_most": max(
            abs(row["simulated_rate"] - row["rate"]) / row["simulated_rate_error"] for row in rows
        ),
    }
