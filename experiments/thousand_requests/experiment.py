"""Stages timed here; requests replayed over what they cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from benchmarks.variant import Stopwatch, steady
from experiments.laws import deletion_rate
from experiments.requests import Outcome, replay, replay_grown, requests_of, shard_of
from experiments.runner import Row
from experiments.runs import untrained
from experiments.served import SystemSettings
from experiments.settings import Grown
from s3t.core import Order, StageCosts, prefixes_of
from s3t.orders import Setting, select
from s3t.planning.bounds import least_cost
from s3t.planning.simulation import Deletions

SECONDS_A_DAY = 86_400
METHODS = {"s3t": None, "sisa": "sisa", "full": "full"}


class Paper(BaseModel):
    """What the paper says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    times_less_than_sisa: float
    """Total time."""
    times_less_than_full: float
    """Total time."""


class Config(SystemSettings):
    """One task; systems, policies, requests."""

    budgets: tuple[int, ...]
    """B's of s3t."""
    selector: str
    """Of s3t's orders."""
    requests: int = Field(ge=1)
    """That come."""
    rounds: int = Field(ge=1)
    """Random orders of requests."""
    repetitions: int = Field(ge=1)
    """Of the timing."""
    policies: tuple[str, ...]
    """Of repair."""
    grown: tuple[Grown, ...]
    """Policies of repair as needed, of s3t and of SISA."""
    rates: tuple[float, ...]
    """Requests a day."""
    days: int = Field(ge=1)
    """Over which the first training is spread."""
    least_depth: float = Field(ge=0, le=1)
    """Of the slices, in the mean: what a deal must keep."""
    paper: Paper
    """What is compared with."""


def points(config: Config) -> list[Row]:
    """Timings, the systems taking turns."""
    return [{"system": name, "repetition": number} for number in range(config.repetitions) for name in METHODS]


def measure(config: Config, point: Row) -> Row:
    """Seconds of training a stage of one shard, by depth; of `full` those of one training of all records.

    Epochs once all is loaded, and what a stage took to fill the trunk cache: here the first stages of four orders fill
    it, each for its slice and all borders. All four orders of a shard fill no more than that; one order alone fills its
    other slices, too, which is not counted.
    """
    method = METHODS[point["system"]]
    found = config.found()
    whole = method == "full"
    if not whole:
        found = replace(found, train=found.train.iloc[: len(found.train) // config.shards])
    recipe = config.recipe(
        found,
        shards=1,
        slices=1 if whole else config.slices,
        budget=config.slices,
        selector="cyclic",
        layers_per_slice=found.layers // config.slices * config.slices if whole else None,
        method=method,
    )
    watch = Stopwatch()
    with untrained(recipe, found) as run:
        run.train(progress=watch)
    epochs, depths = config.training["epochs"], 1 if whole else config.slices
    timed: dict[int, list[float]] = {depth: [] for depth in range(1, depths + 1)}
    fills: dict[int, list[float]] = {depth: [] for depth in timed}
    for stage, name in zip(watch.report(epochs), watch.stages, strict=True):
        depth = name[0].count(",") + 1
        timed[depth].append(epochs * steady(stage))
        fills[depth].append(stage["fill"])
    filling = [statistics.fmean(fill) for fill in fills.values()]
    return {
        "records": len(found.train),
        "seconds": [statistics.median(times) + fill for times, fill in zip(timed.values(), filling, strict=True)],
        "filling": filling,
    }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """For every system and policy the means over orders of requests; and the ratios that the paper tells of."""
    timed = {name: [row["seconds"] for row in rows if row["system"] == name] for name in METHODS}
    seconds = {name: [statistics.median(at) for at in zip(*times, strict=True)] for name, times in timed.items()}
    records = next(row["records"] for row in rows if row["system"] == "full")
    systems = {"sisa": simulated(config, [tuple(range(config.slices))], seconds["sisa"], records)}
    for budget in config.budgets:
        orders = select(config.selector, Setting(slices=config.slices, budget=budget, seed=config.seed))
        systems[f"s3t, B={budget}"] = simulated(config, orders, seconds["s3t"], records)
    (once,) = seconds["full"]
    demands: dict[str, Callable[[Row], bool]] = {
        f"{100 * config.least_depth:.0f} % of the slices serve": lambda found: (
            found["mean_depth"] >= config.least_depth * config.slices
        ),
        "no shard is ever dead": lambda found: not found["dead_shard_share"],
    }
    full = {"compute": config.requests * once, "training": once}
    return {
        "stage_seconds": seconds,
        "systems": systems,
        "grown": {name: grown(config, seconds[name], records) for name in ("s3t", "sisa")},
        "full": full,
        "against_sisa_and_full": {
            name: ratios(found, systems["sisa"], full) for name, found in systems.items() if name != "sisa"
        },
        "best_deal": {
            demand: {f"{rate:g}": best_deal(config, systems, rate, meets) for rate in config.rates}
            for demand, meets in demands.items()
        },
    }


def best_deal(config: Config, systems: Mapping[str, Any], rate: float, meets: Callable[[Row], bool]) -> Row | None:
    """The system and policy with the least training in a number of days, the first one counted, of those that meet a
    demand and keep up with the requests; None if there is none.

    Args:
        config: says the days.
        systems: as simulated.
        rate: requests a day.
        meets: whether a system under a policy does.
    """
    deals = [
        {
            "system": name,
            "policy": policy,
            "hours": (found["training"] + config.days * rate * found[policy]["compute"] / config.requests) / 3600,
            "mean_depth": found[policy]["mean_depth"],
        }
        for name, found in systems.items()
        for policy in config.policies
        if meets(found[policy]) and rate * found[policy]["compute"] / config.requests <= SECONDS_A_DAY
    ]
    return min(deals, key=lambda deal: float(deal["hours"]), default=None)


def simulated(config: Config, orders: Sequence[Order], seconds: Sequence[float], records: int) -> Row:
    """A system under every policy."""
    shard = shard_of(orders, lambda depth: seconds[depth - 1])
    sizes = np.full((config.shards, config.slices), records // (config.shards * config.slices))
    training = config.shards * shard.cost[-1]
    found: Row = {"training": training, "deletion_rate": _rate(config, orders)}
    for policy in config.policies:
        generator = np.random.default_rng(config.seed)  # the same requests for every system and policy
        outcomes = [
            replay(shard, requests_of(sizes, config.requests, generator), shards=config.shards, policy=policy)
            for _ in range(config.rounds)
        ]
        means: dict[str, float] = {
            name: statistics.fmean(getattr(outcome, name) for outcome in outcomes) for name in Outcome._fields
        }
        found[policy] = means | {
            "compute_and_training": means["compute"] + training,
            "requests_a_day_kept_up_with": SECONDS_A_DAY * config.requests / means["compute"]
            if means["compute"]
            else None,
        }
    return found


def grown(config: Config, seconds: Sequence[float], records: int) -> list[Row]:
    """A system under every policy of repair as needed, with the requests of the others; and the bound of any policy."""
    costs, shards = StageCosts(tuple(seconds)), config.shards
    sizes = np.full((shards, config.slices), records // (shards * config.slices))
    found: list[Row] = []
    for each in config.grown:
        generator = np.random.default_rng(config.seed)
        outcomes = [
            replay_grown(each.policy, costs, requests_of(sizes, config.requests, generator), shards=shards)
            for _ in range(config.rounds)
        ]
        means: dict[str, float] = {
            name: statistics.fmean(getattr(outcome, name) for outcome in outcomes) for name in Outcome._fields
        }
        training = shards * costs.of(prefixes_of(each.policy.planned((), slices=config.slices)))
        bound = config.requests * least_cost(costs, each.depth)
        hours = {"hours": means["compute"] / 3600, "least_hours": bound / 3600}
        found.append({**each.model_dump(), **means, **hours, "training": training})
    return found


def ratios(found: Mapping[str, Any], sisa: Mapping[str, Any], full: Mapping[str, float]) -> Row:
    """Of SISA's and full retraining's numbers to a system's, under retraining on exhaustion."""
    policy = "on-exhaustion"
    ours, theirs = found[policy], sisa[policy]

    def over(one: float, other: float) -> float | None:
        return one / other if other else None

    return {
        "deletion_rate_over_sisa": found["deletion_rate"] / sisa["deletion_rate"],
        "fewer_outages_than_sisa": over(theirs["system_outages"], ours["system_outages"]),
        "less_downtime_than_sisa": over(theirs["downtime"], ours["downtime"]),
        "less_compute_than_sisa": over(theirs["compute"], ours["compute"]),
        "less_compute_than_sisa_with_training": over(theirs["compute_and_training"], ours["compute_and_training"]),
        "less_compute_than_full": over(full["compute"], ours["compute"]),
        "less_compute_than_full_with_training": over(full["compute"] + full["training"], ours["compute_and_training"]),
    }


def _rate(config: Config, orders: Sequence[Order]) -> float:
    """Requests until every shard is dead, expected."""
    tops = [{order[0] for order in orders}] * config.shards
    return deletion_rate(tops, Deletions.uniform(config.shards, config.slices)).mean
