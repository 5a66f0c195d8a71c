"""How fast orders are chosen and systems simulated, against plain loops, and what `survival` gains.

    python -m benchmarks.sequences [--json] [--systems 200] [--rounds 5] [--without-survival]

Alternates, in one run, what s3t does and the same written down as plainly as it is said:

    bms          the paper's Algorithm 2: for every order and every slice it lacks, the score of the longer order is
                 computed from its beginning; scipy's matching, as in s3t. 64 orders of 64 slices, Dirichlet prior
    simulation   one deletion after another, and the depths of the orders of its shard, until every shard is dead;
                 5 shards of 32 slices, 8 orders each. s3t simulates 10,000 systems, the loop as many as --systems
                 says, and its time is scaled to 10,000
    survival     seconds at several (slices, orders), from (16, 4) to (256, 8); depth after 1, 2, 4 and 8 deletions
                 beside that of the paper's selectors, and as a share of what all L! orders keep

Times are seconds of the processor, medians of the rounds; survival is run once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment

from benchmarks.machine import describe
from experiments.laws import deletion_rate
from experiments.retained import retained
from s3t.core import Order
from s3t.orders import SELECTORS, Setting, bms, cyclic, scores
from s3t.planning.bounds import full_budget_depth
from s3t.planning.simulation import Deletions, simulate

SEED = 0
SHARDS, SLICES, BUDGET, SYSTEMS = 5, 32, 8, 10_000
AFTER = (1, 2, 4, 8)
COMPARED = ("cyclic-adjacent", "cyclic", "bms", "survival")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--systems", type=int, default=200, help="systems that the plain loop simulates")
    parser.add_argument("--rounds", type=int, default=5, help="times that the two alternate")
    parser.add_argument("--without-survival", action="store_true", help="leave out what takes a minute")
    options = parser.parse_args()
    result: dict[str, Any] = {"seed": SEED, "bms": compare_bms(options.rounds)}
    note("simulation")
    result["simulation"] = compare_simulation(options.rounds, options.systems)
    sizes = () if options.without_survival else ((16, 4), (16, 16), (32, 8), (64, 64), (128, 16), (256, 8))
    result["survival"] = [compare_survival(slices, budget) for slices, budget in sizes]
    result["machine"] = describe()
    if options.json:
        print(json.dumps(result))
    else:
        show(result)


def compare_bms(rounds: int) -> dict[str, Any]:
    """The two at 64 slices; and s3t's alone at 512."""
    note("bms")
    setting, large = with_prior(64), with_prior(512)
    times = alternate(rounds, s3t=lambda: bms(setting), plain=lambda: plain_bms(setting))
    found = {name: total_score(choose(setting), setting) for name, choose in (("s3t", bms), ("plain", plain_bms))}
    return {
        "slices": 64,
        **{f"{name}_seconds": seconds for name, seconds in times.items()},
        "times_as_fast": times["plain"] / times["s3t"],
        **{f"{name}_score": score for name, score in found.items()},
        "same_orders": bms(setting) == plain_bms(setting),
        "s3t_seconds_at_512": timed(lambda: bms(large)),
    }


def with_prior(slices: int) -> Setting:
    prior = np.random.default_rng(SEED).dirichlet(np.ones(slices))
    return Setting(slices=slices, budget=slices, prior=tuple(prior.tolist()))


def plain_bms(setting: Setting) -> tuple[Order, ...]:
    """Algorithm 2, line by line."""
    slices, prior = setting.slices, setting.probabilities
    orders: list[Order] = [(top,) for top in range(slices)]
    for _ in range(slices - 1):
        weights = np.full((slices, slices), -np.inf)
        for row, order in enumerate(orders):
            for index in range(slices):
                if index not in order:
                    weights[row, index] = plain_score((*order, index), prior, setting.deletions)
        chosen = linear_sum_assignment(weights, maximize=True)[1].tolist()
        orders = [(*order, index) for order, index in zip(orders, chosen, strict=True)]
    ranked = sorted(orders, key=lambda order: -plain_score(order, prior, setting.deletions))
    return tuple(ranked[: setting.budget])


def plain_score(order: Order, prior: tuple[float, ...], deletions: int) -> float:
    score, hit = 0.0, 0.0
    for depth, index in enumerate(order, start=1):
        hit += prior[index]
        score += depth * max(1 - hit, 0.0) ** deletions
    return score


def total_score(orders: tuple[Order, ...], setting: Setting) -> float:
    return float(scores(orders, setting.probabilities, setting.deletions).sum())


def compare_simulation(rounds: int, systems: int) -> dict[str, Any]:
    orders = [cyclic(Setting(slices=SLICES, budget=BUDGET))] * SHARDS
    deletions = Deletions.uniform(SHARDS, SLICES)
    found: dict[str, Any] = {}

    def ours() -> None:
        found["s3t"] = simulate(orders, deletions, trials=SYSTEMS, seed=SEED).deletion_rate

    def plain() -> None:
        generator = random.Random(SEED)
        found["plain"] = np.array([plain_system(orders, generator) for _ in range(systems)])

    times = alternate(rounds, s3t=ours, plain=plain)
    scaled = times["plain"] * SYSTEMS / systems
    return {
        "systems": SYSTEMS,
        "s3t_seconds": times["s3t"],
        "plain_systems": systems,
        "plain_seconds": times["plain"],
        "plain_seconds_scaled_to_all_systems": scaled,
        "times_as_fast": scaled / times["s3t"],
        "deletion_rate": {
            "exact": deletion_rate([{order[0] for order in chosen} for chosen in orders], deletions).mean,
            **{name: mean_and_error(values) for name, values in found.items()},
        },
    }


def plain_system(orders: list[tuple[Order, ...]], generator: random.Random) -> int:
    """Deletions until every shard is dead."""
    shards, slices = len(orders), len(orders[0][0])
    positions = [[{index: place for place, index in enumerate(order)} for order in chosen] for chosen in orders]
    depths = [[slices] * len(chosen) for chosen in orders]
    dead: set[int] = set()
    deletions = 0
    while len(dead) < shards:
        deletions += 1
        shard, index = generator.randrange(shards), generator.randrange(slices)
        for number, places in enumerate(positions[shard]):
            depths[shard][number] = min(depths[shard][number], places[index])
        if max(depths[shard]) == 0:
            dead.add(shard)
    return deletions


def mean_and_error(values: Any) -> dict[str, float]:
    return {"mean": float(values.mean()), "standard_error": float(values.std() / len(values) ** 0.5)}


def compare_survival(slices: int, budget: int) -> dict[str, Any]:
    setting = Setting(slices=slices, budget=budget)
    limit = full_budget_depth(AFTER, [1 / slices] * slices)
    depths, seconds, exact = {}, {}, True
    for name in COMPARED:
        note(f"{name} at {slices} slices, {budget} orders")
        started = time.process_time()
        orders = SELECTORS[name](setting)
        seconds[name] = time.process_time() - started
        kept = retained(orders, AFTER, seed=SEED)
        depths[name], exact = kept.expected_depth, exact and kept.exact
    ours = depths["survival"].sum()
    return {
        "slices": slices,
        "budget": budget,
        "seconds": seconds["survival"],
        "exact": exact,
        "deletions": list(AFTER),
        "expected_depth": {name: values.tolist() for name, values in depths.items()},
        "all_orders": limit.tolist(),
        "gain_in_summed_depth": {name: float(ours / depths[name].sum()) for name in COMPARED[:-1]},
        "share_of_all_orders": {name: float(values.sum() / limit.sum()) for name, values in depths.items()},
    }


def alternate(rounds: int, **actions: Callable[[], object]) -> dict[str, float]:
    """Median seconds of each action, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            times[name].append(timed(action))
    return {name: float(np.median(values)) for name, values in times.items()}


def timed(action: Callable[[], object]) -> float:
    started = time.process_time()
    action()
    return time.process_time() - started


def note(what: str) -> None:
    print(f"{what} ...", file=sys.stderr, flush=True)


def show(result: dict[str, Any]) -> None:
    console = Console(soft_wrap=True)
    table = Table("", "s3t, s", "plain loop, s", "times as fast", "s3t finds", "the loop finds", "exact")
    one, two = result["bms"], result["simulation"]
    table.add_row(
        "bms, 64 slices: score",
        *(f"{one['s3t_seconds']:.4f}", f"{one['plain_seconds']:.2f}", f"{one['times_as_fast']:.0f}"),
        *(f"{one['s3t_score']:.6f}", f"{one['plain_score']:.6f}", ""),
    )
    rate = two["deletion_rate"]
    found = [f"{rate[name]['mean']:.1f} ± {1.96 * rate[name]['standard_error']:.1f}" for name in ("s3t", "plain")]
    table.add_row(
        f"{two['systems']:,} systems: deletion rate",
        *(f"{two['s3t_seconds']:.3f}", f"{two['plain_seconds_scaled_to_all_systems']:.1f} *"),
        *(f"{two['times_as_fast']:.0f}", *found, f"{rate['exact']:.1f}"),
    )
    console.print(table)
    console.print(f"* {two['plain_systems']} systems in {two['plain_seconds']:.2f} s, scaled")
    console.print(f"bms, 512 slices: {one['s3t_seconds_at_512']:.2f} s")
    for size in result["survival"]:
        table = Table(
            *("deletions in the shard", *map(str, size["deletions"]), "sum", "survival gains", "share of limit"),
            title=f"expected depth, L={size['slices']}, B={size['budget']}; survival took {size['seconds']:.1f} s",
        )
        for name, depths in size["expected_depth"].items():
            gain = size["gain_in_summed_depth"].get(name)
            share = f"{size['share_of_all_orders'][name]:.1%}"
            values = [f"{depth:.2f}" for depth in (*depths, sum(depths))]
            table.add_row(name, *values, f"{gain:.3f}x" if gain else "", share)
        table.add_row("all L! orders", *(f"{depth:.2f}" for depth in (*size["all_orders"], sum(size["all_orders"]))))
        console.print(table)
        console.print(
            "exact" if size["exact"] else "partly from 100,000 simulated histories (standard error below 0.02)"
        )


if __name__ == "__main__":
    main()
