"""How fast forests are simulated, against a plain loop, and how fast a repair chooses what to grow.

    python -m benchmarks.forests [--json] [--systems 200] [--rounds 3]

    simulation   10,000 systems of 5 shards of 16 slices over 1,000 deletions, repaired as needed after each, with a
                 main chain of 12 and a spare of 1; beside it deletion after deletion, states being remembered, for
                 as many systems as --systems says, scaled. Both alternate
    choice       after one deletion among 20 shards of 64 slices, with a main chain of 48 and a spare of 1: which stages
                 are trained, and in which order. Every slice of a shard is hit once, after 500 random deletions

Times are of the processor: medians of the rounds; of the choices the median and the longest.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from typing import Any

import numpy as np

from benchmarks.machine import describe
from benchmarks.sequences import alternate, mean_and_error, note, timed
from experiments.requests import replay_grown
from s3t.core import AsNeeded, Forests, StageCosts, prefixes_of, without
from s3t.planning.bounds import cost_of_a_hit
from s3t.planning.simulation import Deletions, simulate_repairs

SEED = 0
SHARDS, SLICES, DELETIONS, SYSTEMS = 5, 16, 1_000, 10_000
POLICY = AsNeeded(depth=12)
MANY_SHARDS, MANY_SLICES, BEFORE = 20, 64, 500
DEEP = AsNeeded(depth=48)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--systems", type=int, default=200, help="systems that the plain loop simulates")
    parser.add_argument("--rounds", type=int, default=3, help="times that the two alternate")
    options = parser.parse_args()
    result: dict[str, Any] = {"seed": SEED, "load_before": os.getloadavg()[0]}
    note("choice")
    result["choice"] = choice(range(MANY_SLICES))
    note("simulation")
    result["simulation"] = compare_simulation(options.rounds, options.systems)
    result["machine"] = describe()
    print(json.dumps(result) if options.json else json.dumps(result, indent=2))


def costs_of(slices: int) -> StageCosts:
    return StageCosts.declared(slices)


def compare_simulation(rounds: int, plain_systems: int, systems: int = SYSTEMS) -> dict[str, Any]:
    costs, found = costs_of(SLICES), dict[str, Any]()

    def ours() -> None:
        deletions = Deletions.uniform(SHARDS, SLICES)
        found["s3t"] = simulate_repairs(POLICY, deletions, costs=costs, over=DELETIONS, trials=systems, seed=SEED).cost

    def plain() -> None:
        generator = random.Random(SEED)
        found["plain"] = np.array([plain_system(costs, generator) for _ in range(plain_systems)])

    times = alternate(rounds, s3t=ours, plain=plain)
    scaled = times["plain"] * systems / plain_systems
    return {
        "systems": systems,
        "s3t_seconds": times["s3t"],
        "plain_systems": plain_systems,
        "plain_seconds": times["plain"],
        "plain_seconds_scaled_to_all_systems": scaled,
        "times_as_fast": scaled / times["s3t"],
        "cost": {
            "exact": DELETIONS * cost_of_a_hit(POLICY, costs),
            **{name: mean_and_error(values) for name, values in found.items()},
        },
    }


def plain_system(costs: StageCosts, generator: random.Random) -> float:
    """Cost of all repairs of a system."""
    requests = [(generator.randrange(SHARDS), generator.randrange(SLICES)) for _ in range(DELETIONS)]
    return replay_grown(POLICY, costs, requests, shards=SHARDS).compute


def choice(hits: range) -> dict[str, Any]:
    """Milliseconds from live stages to the stages that a repair trains, in their order."""
    uniform = ((1 / MANY_SLICES,) * MANY_SLICES,) * MANY_SHARDS
    growth = Forests(policy=DEEP, costs=costs_of(MANY_SLICES), chances=uniform)
    generator = random.Random(SEED)
    shards = [DEEP.planned((), slices=MANY_SLICES)] * MANY_SHARDS
    for _ in range(BEFORE):
        where = generator.randrange(MANY_SHARDS)
        shards[where] = DEEP.planned(without(shards[where], generator.randrange(MANY_SLICES)), slices=MANY_SLICES)
    seconds, stages = [], []
    for index in hits:
        alive = [prefixes_of(chains) for chains in (without(shards[0], index), *shards[1:])]
        seconds.append(timed(lambda alive=alive: stages.append(len(growth.missing(alive)))))  # type: ignore[misc]
    return {
        "shards": MANY_SHARDS,
        "slices": MANY_SLICES,
        "median_milliseconds": 1000 * float(np.median(seconds)),
        "longest_milliseconds": 1000 * max(seconds),
        "most_stages": max(stages),
    }


if __name__ == "__main__":
    main()
