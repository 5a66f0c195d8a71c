"""Distance, total score and expected depth of BMS's orders, of random ones and of survival's, over priors."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from experiments.quality import JudgeSettings, averaged, dirichlet
from experiments.runner import Row

SELECTORS = ("bms", "survival")
MEASURES = ("distance", "score", "depth")


class Config(JudgeSettings):
    """One shard, under many budgets and priors."""

    slices: int = Field(ge=1)
    """L."""
    budgets: tuple[int, ...]
    """B's, each at most L."""
    priors: int = Field(ge=2)
    """Drawn from the flat Dirichlet distribution."""
    draws: int = Field(ge=2)
    """Of random orders a prior and budget."""


def points(config: Config) -> list[Row]:
    """One a prior and budget."""
    return [{"prior": prior, "budget": budget} for prior in range(config.priors) for budget in config.budgets]


def measure(config: Config, point: Row) -> Row:
    """Of each selector's orders: mean distance in positions, total score, expected depth in slices."""
    prior = dirichlet(config.slices, number=config.priors, seed=config.seed)[point["prior"]]
    found: Row = {}
    for selector in SELECTORS:
        found |= config.judge.of(selector, slices=config.slices, budget=point["budget"], prior=prior)
    start = config.seed + config.draws * (config.priors * point["budget"] + point["prior"])
    seeds = range(start, start + config.draws)
    return {**found, **config.judge.of_random(slices=config.slices, budget=point["budget"], seeds=seeds, prior=prior)}


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Means and deviations over the priors; in how many cases who is better."""
    names = [f"{selector}_{measure}" for measure in MEASURES for selector in (*SELECTORS, "random")]
    curves = averaged(rows, ["budget"], names)
    pairs = [row for row in rows if row["budget"] > 1]
    return {
        "curves": curves,
        "cases": len(rows),
        "cases_with_pairs": len(pairs),
        "bms_distance_is_the_number_of_slices_in": sum(row["bms_distance"] == config.slices for row in pairs),
        "bms_score_above_random_in": sum(row["bms_score"] > row["random_score"] for row in rows),
        "bms_depth_above_random_in": sum(row["bms_depth"] > row["random_depth"] for row in rows),
        "survival_depth_above_bms_in": sum(row["survival_depth"] > row["bms_depth"] for row in rows),
        "survival_score_above_bms_in": sum(row["survival_score"] > row["bms_score"] for row in rows),
        "score_ratio_bms_over_random": {
            str(line["budget"]): line["bms_score"] / line["random_score"] for line in curves
        },
        "depth_ratio_bms_over_random": {
            str(line["budget"]): line["bms_depth"] / line["random_depth"] for line in curves
        },
        "depth_ratio_survival_over_bms": {
            str(line["budget"]): line["survival_depth"] / line["bms_depth"] for line in curves
        },
    }
