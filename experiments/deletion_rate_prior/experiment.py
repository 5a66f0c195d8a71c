"""Deletion rate and first failure where some slices are likelier to be deleted than others, over many priors."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from pydantic import Field

from experiments.laws import deletion_rate, first_failure
from experiments.quality import Prior, dirichlet
from experiments.runner import Row
from experiments.settings import Settings
from experiments.systems import rates
from s3t.core import Order
from s3t.orders import Setting, select
from s3t.planning.bounds import paper_bound
from s3t.planning.simulation import Deletions

CURVES = ("bms", "least_likely", "cyclic")


class Config(Settings):
    """Systems of one size, each with priors of its own, under many budgets."""

    shards: int = Field(ge=1)
    """m."""
    slices: int = Field(ge=1)
    """L, a shard."""
    budgets: tuple[int, ...]
    """B's, each at most L."""
    systems: int = Field(ge=2)
    """Drawn; every shard has its own prior from the flat Dirichlet distribution."""
    survival_systems: int = Field(ge=0)
    """The first so many have survival's orders, too."""
    survival_budgets: tuple[int, ...]
    """With these budgets."""
    deletions: int = Field(ge=1)
    """t of the paper's score."""
    trials: int = Field(ge=2)
    """Simulated systems a point."""


def points(config: Config) -> list[Row]:
    """One a system and budget."""
    return [{"system": system, "budget": budget} for system in range(config.systems) for budget in config.budgets]


def measure(config: Config, point: Row) -> Row:
    """In deletions, when deletions fall by the priors: the rates of BMS's orders (also simulated), of systems with the
    least likely slices on top, of rotations (which know no prior), and, where it is sought, of survival's orders.

    `uniform` and `uniform_first` are of a uniform prior.
    """
    system, budget = point["system"], point["budget"]
    priors = _priors(config, system)
    deletions = Deletions.from_prior(priors, shards=config.shards)
    chosen = _orders("bms", config, priors, budget)
    least = [np.argsort(prior, kind="stable")[:budget].tolist() for prior in priors]
    every = [range(budget)] * config.shards
    found = {
        f"bms_{name}": value
        for name, value in rates(
            chosen, deletions, trials=config.trials, seed=config.seed + 1000 * system + budget
        ).items()
    }
    found |= _exact("least_likely", least, deletions)
    found |= _exact("cyclic", _tops(_orders("cyclic", config, priors, budget)), deletions)
    found["uniform_rate"] = paper_bound(config.shards, config.slices, budget)
    found["uniform_first"] = first_failure(every, Deletions.uniform(config.shards, config.slices)).mean
    if system < config.survival_systems and budget in config.survival_budgets:
        tops = _tops(_orders("survival", config, priors, budget))
        found |= _exact("survival", tops, deletions)
        found["survival_tops_are_the_least_likely"] = [sorted(top) for top in tops] == [sorted(top) for top in least]
    return found


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Medians and quartiles over the systems (a mean over priors does not exist), and survival's beside them."""
    with_survival = [row for row in rows if "survival_rate" in row]
    return {
        "curves": [
            {
                "budget": budget,
                "uniform_rate": chosen[0]["uniform_rate"],
                "uniform_first": chosen[0]["uniform_first"],
                **{
                    f"{curve}_{what}{end}": float(np.quantile([row[f"{curve}_{what}"] for row in chosen], q))
                    for curve in CURVES
                    for what in ("rate", "first")
                    for end, q in (("_low", 0.25), ("", 0.5), ("_high", 0.75))
                },
            }
            for budget in config.budgets
            for chosen in [[row for row in rows if row["budget"] == budget]]
        ],
        "cases": len(rows),
        "bms_above_uniform_in": sum(row["bms_rate"] > row["uniform_rate"] for row in rows),
        "bms_rate_at_least": min(row["bms_rate"] for row in rows),
        "bms_rate_at_most": max(row["bms_rate"] for row in rows),
        "simulated_off_in_standard_errors_at_most": max(
            abs(row["bms_simulated_rate"] - row["bms_rate"]) / row["bms_simulated_rate_error"] for row in rows
        ),
        "simulated_off_at_most": max(abs(row["bms_simulated_rate"] / row["bms_rate"] - 1) for row in rows),
        "survival_cases": len(with_survival),
        "survival_tops_are_the_least_likely_in": sum(
            row["survival_tops_are_the_least_likely"] for row in with_survival
        ),
        "survival": [
            {
                name: row[name]
                for name in ("system", "budget", "survival_rate", "bms_rate", "survival_first", "bms_first")
            }
            for row in with_survival
        ],
        "bms_below_the_least_likely_in": sum(row["bms_rate"] < row["least_likely_rate"] * (1 - 1e-9) for row in rows),
    }


def _priors(config: Config, system: int) -> list[Prior]:
    return dirichlet(config.slices, number=config.shards * config.systems, seed=config.seed)[
        config.shards * system : config.shards * (system + 1)
    ]


def _orders(selector: str, config: Config, priors: Sequence[Prior], budget: int) -> list[tuple[Order, ...]]:
    return [
        select(
            selector,
            Setting(slices=config.slices, budget=budget, prior=prior, deletions=config.deletions, seed=config.seed),
        )
        for prior in priors
    ]


def _tops(orders: Sequence[Sequence[Order]]) -> list[set[int]]:
    return [{order[0] for order in chosen} for chosen in orders]


def _exact(name: str, tops: Sequence[Collection[int]], deletions: Deletions) -> Row:
    return {
        f"{name}_rate": deletion_rate(tops, deletions).mean,
        f"{name}_first": first_failure(tops, deletions).mean,
    }
