"""Total score and expected depth of BMS's orders, of sorted rotations and of survival's, over priors."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from experiments.quality import JudgeSettings, averaged, dirichlet
from experiments.runner import Row

SELECTORS = ("bms", "sorted-cyclic", "survival")
MEASURES = ("score", "depth")


class Config(JudgeSettings):
    """Shards of many sizes with B = L, and one size with many budgets, under many priors."""

    slice_counts: tuple[int, ...]
    """L's, with B = L."""
    slices: int = Field(ge=1)
    """L with the budgets."""
    budgets: tuple[int, ...]
    """B's, each at most L."""
    priors: int = Field(ge=2)
    """Drawn from the flat Dirichlet distribution."""


def points(config: Config) -> list[Row]:
    """One a size, budget and prior; what takes longest comes last."""
    sizes = dict.fromkeys(
        [*((slices, slices) for slices in config.slice_counts), *((config.slices, budget) for budget in config.budgets)]
    )
    ordered = sorted(sizes, key=lambda size: (size[0] * size[1], size))
    return [
        {"slices": slices, "budget": budget, "prior": prior}
        for slices, budget in ordered
        for prior in range(config.priors)
    ]


def measure(config: Config, point: Row) -> Row:
    """Of each selector's orders: total score, expected depth in slices; and whether BMS's total is above."""
    slices, budget = point["slices"], point["budget"]
    prior = dirichlet(slices, number=config.priors, seed=config.seed)[point["prior"]]
    found: Row = {}
    for selector in SELECTORS:
        found |= config.judge.of(selector, slices=slices, budget=budget, prior=prior)
    return found


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Means and deviations over the priors, and of the ratios to sorted rotation; in how many cases who is better."""
    names = [f"{selector.replace('-', '_')}_{measure}" for measure in MEASURES for selector in SELECTORS]
    ratios = [f"{selector}_{measure}_ratio" for measure in MEASURES for selector in ("bms", "survival")]
    wins = ["bms_score_wins", "bms_depth_wins", "survival_depth_wins"]
    told = [{**row, **_ratios(row)} for row in rows]
    curves = averaged(told, ["slices", "budget"], [*names, *ratios])
    full = [row for row in told if row["slices"] == row["budget"]]
    return {
        "over_slices": [line for line in curves if line["slices"] == line["budget"]],
        "over_budgets": [line for line in curves if line["slices"] == config.slices],
        "cases": len(rows),
        "cases_with_full_budget": len(full),
        **{f"{name}_in": sum(row[name] for row in told) for name in wins},
        **{f"{name}_with_full_budget_in": sum(row[name] for row in full) for name in wins},
        **{f"{name}_at_most": max(row[name] for row in told) for name in ratios},
        **{f"{name}_at_least": min(row[name] for row in told) for name in ratios},
        "exact_depths_up_to": max(row["slices"] for row in rows if row["bms_exact"] and row["survival_exact"]),
    }


def _ratios(row: Row) -> Row:
    found: Row = {
        f"{selector}_{measure}_ratio": row[f"{selector}_{measure}"] / row[f"sorted_cyclic_{measure}"]
        for measure in MEASURES
        for selector in ("bms", "survival")
    }
    return {
        **found,
        "bms_score_wins": row["bms_score"] > row["sorted_cyclic_score"],
        "bms_depth_wins": row["bms_depth"] > row["sorted_cyclic_depth"],
        "survival_depth_wins": row["survival_depth"] > max(row["bms_depth"], row["sorted_cyclic_depth"]),
    }
