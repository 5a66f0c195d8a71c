"""The best policy of repair for small shards, solved exactly: a Markov decision process up to relabelling of slices.

A state is a forest. A hit of a slice, all alike, cuts its chains; then stages are trained one after another, until none
is worth its cost. Deciding needs no history, for lifetimes of stages have no memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from s3t.core import AsNeeded, Chains, Order, StageCosts, depths_after_hit, lacking, leaves, prefixes_of, without
from s3t.core.growth import depth_of
from s3t.errors import PlanningError

MOST_SLICES, MOST_CHAINS = 5, 3
_FORBIDDEN = -1e12
_SETTLED, _ROUNDS = 1e-9, 100_000


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """A shard in the long run."""

    mean_depth: float
    """Slices that serve after each repair."""
    cost: float
    """Cost of the repair after a hit of the shard, in the mean."""

    def gain(self, price: float) -> float:
        """Mean depth less the cost at a price in slices."""
        return self.mean_depth - price * self.cost


def optimum(costs: StageCosts, *, price: float, least_after_hit: int = 1, chains: int = 2) -> Repaired:
    """The policy with the greatest mean depth less price times cost, for uniform hits.

    >>> found = optimum(StageCosts((1.0, 2.0, 3.0)), price=0.1)
    >>> round(found.mean_depth, 6), round(found.cost, 6)
    (3.0, 5.0)

    Args:
        costs: by depth, of L depths, 2 to 5.
        least_after_hit: slices that serve right after any one hit, at least: 1, the shard is never dead; 0: no demand.
        chains: most chains of a forest, at most 3; a further one takes the place of another.
    """
    slices = costs.slices
    _check(slices, chains)
    world = _world(slices, chains)
    allowed = world.after_hit >= least_after_hit
    if not allowed.any():
        most = int(world.after_hit.max())
        what = f"{chains} chains of {slices} slices keep at most {most} after any hit, not {least_after_hit}"
        raise PlanningError("the shard to solve", what)
    train = price * np.asarray([0.0, *costs.by_depth])[world.grown_depth]
    value = np.zeros(len(world.depth))
    for _ in range(_ROUNDS):
        stop = np.where(allowed, world.depth + value[world.hit].mean(axis=1), _FORBIDDEN)
        best = _best(world, stop, train)
        change = best - value
        value = best - best[0]
        if change.max() - change.min() < _SETTLED:
            break
    return _in_the_long_run(world, _choices(world, stop, best, train), costs)


def repaired(policy: AsNeeded, costs: StageCosts) -> Repaired:
    """A policy in the long run, for uniform hits, without simulation.

    >>> found = repaired(AsNeeded(depth=2), StageCosts((1.0, 2.0, 3.0)))
    >>> round(found.mean_depth, 6), round(found.cost, 6)
    (2.0, 2.0)
    """
    slices = costs.slices
    _check(slices, policy.spares + 1)
    world = _world(slices, policy.spares + 1)
    number = {chains: place for place, chains in enumerate(world.states)}
    plans = {chains: policy.planned(chains, slices=slices) for chains in map(leaves, world.states)}
    choices = [(number[canonical(plan)], tuple(lacking(chains, plan))) for chains, plan in plans.items()]
    return _in_the_long_run(world, choices, costs)


def canonical(chains: Iterable[Order]) -> Chains:
    """A forest with its slices renamed: the same for all forests that differ by names alone.

    >>> canonical([(3, 1), (2,)]) == canonical([(0,), (1, 2)]) == ((0, 1), (2,))
    True
    """

    def renamed(ordered: Iterable[Order]) -> Chains:
        names: dict[int, int] = {}
        return tuple(tuple(names.setdefault(index, len(names)) for index in chain) for chain in ordered)

    found = leaves(chains)
    ways = (way for way in permutations(found) if list(map(len, way)) == list(map(len, found)))
    return min(map(renamed, ways))


Choices = list[tuple[int, tuple[Order, ...]]]
"""For each state after a hit, the state after the repair and the prefixes that it trains."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _World:
    """S states of forests of L slices, and T ways to grow one by a stage.

    Attributes:
        states: canonical forests.
        depth: S, slices that serve.
        after_hit: S, least slices that serve after one hit.
        hit: S x L, state after a hit of each slice.
        grown_from: T, ascending.
        grown_to: T.
        grown_depth: T, depth of the stage.
    """

    states: tuple[Chains, ...]
    depth: NDArray[np.float64]
    after_hit: NDArray[np.int64]
    hit: NDArray[np.int64]
    grown_from: NDArray[np.int64]
    grown_to: NDArray[np.int64]
    grown_depth: NDArray[np.int64]


@cache
def _world(slices: int, chains: int) -> _World:
    number: dict[Chains, int] = {(): 0}
    states: list[Chains] = [()]
    hit, ways = [], []

    def known(forest: Chains) -> int:
        if forest not in number:
            number[forest] = len(states)
            states.append(forest)
        return number[forest]

    place = 0
    while place < len(states):
        forest = states[place]
        hit.append([known(canonical(without(forest, index))) for index in range(slices)])
        ways += [(place, known(grown), depth) for grown, depth in sorted(_grown(forest, slices, chains))]
        place += 1
    columns = np.asarray(ways, dtype=np.int64).T
    return _World(
        states=tuple(states),
        depth=np.asarray([depth_of(forest) for forest in states], dtype=np.float64),
        after_hit=np.asarray([min(depths_after_hit(forest, slices)) for forest in states]),
        hit=np.asarray(hit),
        grown_from=columns[0],
        grown_to=columns[1],
        grown_depth=columns[2],
    )


def _grown(forest: Chains, slices: int, chains: int) -> set[tuple[Chains, int]]:
    """The forests with one stage more, and that stage's depth; where chains are too many, without one of the others."""
    alive = prefixes_of(forest)
    found: set[tuple[Chains, int]] = set()
    for parent in alive | {()}:
        for prefix in ((*parent, index) for index in range(slices) if index not in parent):
            if prefix in alive:
                continue
            grown = leaves((*forest, prefix))
            kept = (
                [grown]
                if len(grown) <= chains
                else [tuple(chain for chain in grown if chain != left) for left in grown if left != prefix]
            )
            found |= {(canonical(each), len(prefix)) for each in kept}
    return found


def _best(world: _World, stop: NDArray[np.float64], train: NDArray[np.float64]) -> NDArray[np.float64]:
    """Value of each state after a hit: stop, or train a stage and decide again."""
    sources, starts = np.unique(world.grown_from, return_index=True)
    value = stop
    while True:
        again = value.copy()
        again[sources] = np.maximum(value[sources], np.maximum.reduceat(value[world.grown_to] - train, starts))
        if np.allclose(again, value, rtol=0, atol=_SETTLED / 10):
            return again
        value = again


def _choices(
    world: _World, stop: NDArray[np.float64], best: NDArray[np.float64], train: NDArray[np.float64]
) -> Choices:
    """The repair from each state that reaches the best value."""
    first = np.searchsorted(world.grown_from, np.arange(len(world.states) + 1))
    found: Choices = []
    for state in range(len(world.states)):
        trained: list[Order] = []
        while stop[state] < best[state] - 1e-7:
            ways = slice(first[state], first[state + 1])
            way = first[state] + int(np.argmax(best[world.grown_to[ways]] - train[ways]))
            trained.append(tuple(range(world.grown_depth[way])))  # of its depth; names do not matter
            state = int(world.grown_to[way])
        found.append((state, tuple(trained)))
    return found


def _in_the_long_run(world: _World, choices: Choices, costs: StageCosts) -> Repaired:
    after = np.asarray([state for state, _ in choices])
    cost = np.asarray([costs.of(prefixes) for _, prefixes in choices])
    slices = world.hit.shape[1]
    share: NDArray[np.float64] = np.zeros(len(after))
    share[after[0]] = 1.0
    reached = after[world.hit].reshape(-1)
    for _ in range(_ROUNDS):
        moved = np.bincount(reached, np.repeat(share / slices, slices), minlength=len(share))
        arrived = (share + moved) / 2  # half of the time nothing happens: no period
        if np.abs(arrived - share).max() < _SETTLED / 100:
            break
        share = arrived
    return Repaired(
        mean_depth=float(share @ world.depth), cost=float((share[:, None] / slices * cost[world.hit]).sum())
    )


def _check(slices: int, chains: int) -> None:
    problems = []
    if not 2 <= slices <= MOST_SLICES:
        problems.append(f"{slices} slices: shards of 2 to {MOST_SLICES} are solved; simulate larger ones")
    if not 1 <= chains <= MOST_CHAINS:
        problems.append(f"{chains} chains: forests of 1 to {MOST_CHAINS} are solved")
    if problems:
        raise PlanningError("the shard to solve", problems)
