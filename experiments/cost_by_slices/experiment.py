"""Repairs of systems with ever more slices, at the same share of slices that serve, after every request."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from experiments.runner import Row
from experiments.settings import Settings
from s3t.core import AsNeeded, FixedOrders, StageCosts
from s3t.orders import Setting, select
from s3t.planning.bounds import least_cost
from s3t.planning.simulation import Deletions, Life, simulate_repairs

FOREST, SISA_FOREST, FIXED, SISA = "forest", "SISA, as needed", "fixed orders", "SISA, one order"
SYSTEMS = (FOREST, SISA_FOREST, FIXED, SISA)


class Config(Settings):
    """Systems that differ in their number of slices."""

    shards: int = Field(ge=1)
    """m."""
    slices: tuple[int, ...]
    """L's."""
    layers: int = Field(ge=1)
    """Of the model."""
    share: float = Field(gt=0, le=1)
    """Of the slices, that serve in the mean."""
    budget: int = Field(ge=1)
    """B, of fixed orders."""
    selector: str
    """Of fixed orders."""
    requests: int = Field(ge=1)
    """That come."""
    trials: int = Field(ge=2)
    """Simulated systems."""
    paper_times_less: float
    """Time that the paper's S3T takes less than SISA."""


def points(config: Config) -> list[Row]:
    """One a system and number of slices."""
    return [{"slices": slices, "system": system} for slices in config.slices for system in SYSTEMS]


def measure(config: Config, point: Row) -> Row:
    """Mean depth, cost of the repairs in full trainings, and share of the requests that leave a shard dead.

    A full training passes each record forward and backward through all layers once. Fixed orders are repaired as soon
    as fewer slices than a number are left: the least number at which the share serves in the mean.
    """
    slices, asked = point["slices"], config.share * point["slices"]
    costs = costs_of(config, slices, whole=point["system"] in (SISA, SISA_FOREST))
    deletions = Deletions.uniform(config.shards, slices)
    if point["system"] in (FOREST, SISA_FOREST):
        policy = AsNeeded(depth=round(asked))
        grown = simulate_repairs(
            policy, deletions, costs=costs, over=config.requests, trials=config.trials, seed=config.seed
        )
        return {
            "below": None,
            "depth": float(grown.mean_depth.mean()),
            "cost": float(grown.cost.mean()),
            "dead_share": grown.dead_share,
            "bound": least_cost(costs, policy.depth) * config.requests,
        }
    budget = config.budget if point["system"] == FIXED else 1
    orders = select(config.selector, Setting(slices=slices, budget=budget, seed=config.seed))

    def life(below: int) -> Life:
        return simulate_repairs(
            FixedOrders([orders] * config.shards),
            deletions,
            costs=costs,
            over=config.requests,
            below=below,
            trials=config.trials,
            seed=config.seed,
        )

    low, high = 1, slices
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if life(middle).mean_depth.mean() >= asked else (middle + 1, high)
    found = life(low)
    return {
        "below": low,
        "depth": float(found.mean_depth.mean()),
        "cost": float(found.cost.mean()),
        "dead_share": None,
        "bound": None,
    }


def costs_of(config: Config, slices: int, *, whole: bool) -> StageCosts:
    """Costs in full trainings of all m L slices. A stage of SISA trains all layers."""
    return StageCosts.declared(slices, one_block=whole).in_trainings(config.shards)


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """How many times less the forest's repairs cost than each other system's, by number of slices."""
    cost = {(row["slices"], row["system"]): row["cost"] for row in rows}
    less = {
        system: {str(slices): cost[slices, system] / cost[slices, FOREST] for slices in config.slices}
        for system in SYSTEMS[1:]
    }
    return {
        "cost": {system: {str(slices): cost[slices, system] for slices in config.slices} for system in SYSTEMS},
        "times_less_than": less,
        "slices_where_the_paper_is_reached": next(
            (slices for slices in config.slices if less[SISA][str(slices)] >= config.paper_times_less), None
        ),
        "above_the_bound_at_most": max(row["cost"] / row["bound"] - 1 for row in rows if row["bound"]),
        "dead_at_most": max(row["dead_share"] for row in rows if row["dead_share"] is not None),
    }
