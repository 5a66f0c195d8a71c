"""Requests that fall on slices, shards that die, and what repairs them. Pure.

A shard's state is the set of its slices that have lost a record since they were last trained, as bits. From it follow
its depth and what it costs to train again what was lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from s3t.core import AsNeeded, Chains, Order, StageCosts, lacking, leaves, without

Ints = NDArray[np.int64]


class Shard(NamedTuple):
    """What every state of a shard means. All shards have the same orders."""

    depth: list[int]
    """By state: slices of the deepest live prefix."""
    cost: list[float]
    """By state: seconds (or what else a stage's cost is counted in) to train the stages that were lost. Of the last
    state, in which all were hit: of all stages."""
    first: float
    """Seconds to train a first stage, after which a dead shard answers again: shallow stages are trained first."""


class Outcome(NamedTuple):
    """Of one order of requests."""

    system_outages: int
    """How often the last shard died."""
    shard_outages: int
    """How often a shard died."""
    dead_shard_share: float
    """Of shards, in the mean over the moments just after a request and before its repair."""
    downtime: float
    """Seconds in which the system could not answer: after each death, until a first stage is trained."""
    shard_downtime: float
    """Seconds in which a shard could not, added up over shards: one first stage each, one shard after the other."""
    compute: float
    """Seconds of training after requests."""
    mean_depth: float
    """Slices that shards serve with, in the mean over shards and requests, after repairs."""


def shard_of(orders: Sequence[Order], seconds: Callable[[int], float]) -> Shard:
    """A shard of orders.

    Args:
        orders: its sequences.
        seconds: of training a stage, by its depth.

    >>> found = shard_of([(0, 1)], {1: 2.0, 2: 3.0}.__getitem__)
    >>> found.depth, found.cost, found.first  # nothing hit; 0; 1; both
    ([2, 0, 1, 0], [0.0, 5.0, 3.0, 5.0], 2.0)
    """
    slices = len(orders[0])
    prefixes = {order[: depth + 1] for order in orders for depth in range(slices)}
    bits = {prefix: sum(1 << index for index in prefix) for prefix in sorted(prefixes)}
    depth, cost = [], []
    for state in range(1 << slices):
        alive = [len(prefix) for prefix, own in bits.items() if not own & state]
        depth.append(max(alive, default=0))
        cost.append(sum((seconds(len(prefix)) for prefix, own in bits.items() if own & state), 0.0))
    return Shard(depth, cost, seconds(1))


class Moment(NamedTuple):
    """A request, and what came of it."""

    where: int
    """The shard that it fell on."""
    died: bool
    """Whether that shard answered before, and does not now."""
    depths: list[int]
    """Of every shard, before any repair."""
    repaired: list[int]
    """The shards that were trained again."""
    cost: float
    """Of training them."""
    states: tuple[int, ...]
    """Of every shard, after the repair."""


def moments(shard: Shard, requests: Sequence[tuple[int, int]], *, shards: int, policy: str) -> Iterator[Moment]:
    """What comes of one request after another.

    Args:
        shard: what states mean.
        requests: shard and slice of each.
        shards: m.
        policy: manual (here: never), on-exhaustion (all shards are trained again once all are dead), `below-depth K` (a
            shard is, once it has fewer than K slices left), or eager (after every request).

    >>> found = moments(shard_of([(0, 1)], lambda depth: depth), [(0, 1), (0, 0)], shards=1, policy="on-exhaustion")
    >>> [(moment.depths, moment.cost, moment.states) for moment in found]
    [([1], 0.0, (2,)), ([0], 3.0, (0,))]
    """
    states, depths = [0] * shards, [shard.depth[0]] * shards
    least = {"manual": 0, "on-exhaustion": 0, "eager": len(shard.depth)}.get(policy)
    if least is None:
        least = int(policy.removeprefix("below-depth "))
    for where, index in requests:
        before = depths[where]
        states[where] |= 1 << index
        depths[where] = shard.depth[states[where]]
        if policy == "on-exhaustion":
            again = [] if any(depths) else list(range(shards))
        else:
            again = [where] if depths[where] < least else []
        hit, cost = list(depths), sum((shard.cost[states[number]] for number in again), 0.0)
        for number in again:
            states[number], depths[number] = 0, shard.depth[0]
        yield Moment(where, before > 0 and hit[where] == 0, hit, again, cost, tuple(states))


def replay(shard: Shard, requests: Sequence[tuple[int, int]], *, shards: int, policy: str) -> Outcome:
    """One order of requests, added up; arguments as of `moments`."""
    system_outages = shard_outages = dead = served = 0
    downtime = shard_downtime = compute = 0.0
    for moment in moments(shard, requests, shards=shards, policy=policy):
        exhausted = not any(moment.depths)
        shard_outages += moment.died
        system_outages += exhausted and moment.died
        dead += moment.depths.count(0)
        dead_ones = sum(moment.depths[number] == 0 for number in moment.repaired)
        shard_downtime += shard.first * dead_ones * (dead_ones + 1) / 2
        downtime += shard.first if exhausted and dead_ones else 0.0
        compute += moment.cost
        served += sum(shard.depth[state] for state in moment.states)
    count = len(requests) * shards
    return Outcome(system_outages, shard_outages, dead / count, downtime, shard_downtime, compute, served / count)


def replay_grown(policy: AsNeeded, costs: StageCosts, requests: Sequence[tuple[int, int]], *, shards: int) -> Outcome:
    """One order of requests, added up, where only what is needed is trained, after each request.

    Args:
        policy: of repair.
        costs: seconds (or what else a stage's cost is counted in) of a stage, by its depth.
        requests: shard and slice of each.
        shards: m.

    >>> found = replay_grown(AsNeeded(depth=1), StageCosts((2.0, 3.0)), [(0, 0), (0, 1)], shards=1)
    >>> found.compute, found.mean_depth, found.shard_outages
    (4.0, 1.0, 0)
    """
    depth, outages = policy.depth, 0
    compute = shard_downtime = served = 0.0
    for change in changes_of_chains(policy, requests, slices=costs.slices, shards=shards):
        left = len(change.hit[change.where])
        outages += left == 0
        shard_downtime += costs.by_depth[0] * (left == 0)
        compute += math.fsum(count * cost for count, cost in zip(change.trained, costs.by_depth, strict=True))
        served += depth * shards
    dead = outages / (len(requests) * shards)
    alone = outages * (shards == 1)
    return Outcome(
        alone, outages, dead, costs.by_depth[0] * alone, shard_downtime, compute, served / (len(requests) * shards)
    )


class Change(NamedTuple):
    """A request, by what shards serve with."""

    where: int
    """The shard that it fell on."""
    hit: tuple[Order, ...]
    """Of every shard, the prefix that serves right after the request, before any repair; empty: the shard is dead."""
    repaired: tuple[Order, ...]
    """Of every shard, the prefix that serves once what has to be is repaired, until the next request."""
    trained: tuple[int, ...]
    """Stages that the repair trains, by depth."""


def changes_of_orders(
    orders: Sequence[Order], requests: Sequence[tuple[int, int]], *, shards: int, policy: str
) -> Iterator[Change]:
    """What comes of one request after another where shards have fixed orders.

    The deepest prefix serves, the first of equals. Arguments are as of `shard_of` and `moments`.

    >>> (change,) = changes_of_orders([(0, 1), (1, 0)], [(0, 0)], shards=1, policy="eager")
    >>> change.hit, change.repaired, change.trained
    (((1,),), ((0, 1),), (1, 2))
    """
    slices = len(orders[0])
    prefixes = list(dict.fromkeys(order[: depth + 1] for order in orders for depth in range(slices)))
    serving: list[Order] = []
    lost: list[list[int]] = []
    for state in range(1 << slices):
        dead = {prefix for prefix in prefixes if any(state >> index & 1 for index in prefix)}
        serving.append(max((prefix for prefix in prefixes if prefix not in dead), key=len, default=()))
        lost.append([sum(len(prefix) == depth for prefix in dead) for depth in range(1, slices + 1)])
    states = (0,) * shards
    shard = shard_of(orders, float)  # its depths say when to repair
    for moment, (where, index) in zip(moments(shard, requests, shards=shards, policy=policy), requests, strict=True):
        hit = [state | (1 << index) * (number == where) for number, state in enumerate(states)]
        states = moment.states
        trained = [sum(lost[hit[number]][depth] for number in moment.repaired) for depth in range(slices)]
        yield Change(
            where, tuple(serving[state] for state in hit), tuple(serving[state] for state in states), tuple(trained)
        )


def changes_of_chains(
    policy: AsNeeded, requests: Sequence[tuple[int, int]], *, slices: int, shards: int
) -> Iterator[Change]:
    """What comes of one request after another where the hit shard is repaired as needed, after each.

    >>> (change,) = changes_of_chains(AsNeeded(depth=2), [(0, 0)], slices=3, shards=1)
    >>> change.hit, change.repaired, change.trained
    (((2,),), ((2, 0),), (1, 1, 0))
    """
    known = dict[tuple[Chains, int], tuple[Order, Chains, tuple[int, ...]]]()

    def hit(chains: Chains, index: int) -> tuple[Order, Chains, tuple[int, ...]]:
        if (chains, index) not in known:
            left = without(chains, index)
            depths = [len(prefix) for prefix in lacking(left, policy.planned(left, slices=slices))]
            trained = tuple(depths.count(depth) for depth in range(1, slices + 1))
            known[chains, index] = left[0] if left else (), grown(left), trained
        return known[chains, index]

    def grown(left: Chains) -> Chains:
        return leaves(
            policy.planned(left, slices=slices)
        )  # of chains as long as the main one a run finds the lesser first

    states = [grown(())] * shards
    for where, index in requests:
        serving = [chains[0] for chains in states]
        serving[where], states[where], trained = hit(states[where], index)
        yield Change(where, tuple(serving), tuple(chains[0] for chains in states), trained)


def requests_of(sizes: Ints, count: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """Random requests for records that are still there.

    Args:
        sizes: records of every slice, shards x slices.
        count: how many.
        generator: of the requests.
    """
    slices = sizes.shape[1]
    where = generator.permutation(np.repeat(np.arange(sizes.size), sizes.flatten()))[:count]
    return [divmod(int(place), slices) for place in where]


def repeated_requests_of(sizes: Ints, count: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """Random requests that fall on slices by their size, as often as they come: as if deleted records were replaced.

    Arguments are as of `requests_of`.
    """
    where = generator.choice(sizes.size, size=count, p=sizes.flatten() / sizes.sum())
    return [divmod(int(place), sizes.shape[1]) for place in where]
