"""Greedy construction of orders, then each built anew in turn while that helps. For `survival`."""

from __future__ import annotations

import random

import numpy as np

from s3t.progress import SILENT, Steps
from s3t.sequences.beam import OrderSearch
from s3t.sequences.cyclic import cyclic
from s3t.sequences.hits import Ints, hits_over, uniforms
from s3t.sequences.selector import Order, Setting, completed

MAX_EVALUATIONS = 160_000
"""Prefixes whose continuations are judged, in all."""
MAX_SWEEPS = 12
SHAKING_EVALUATIONS = 4_000
"""Share of them for building two or three orders anew at once, which reaches more than one order at a time."""
_WIDTH = 4
_SAMPLES = 2**14


def most_evaluations(setting: Setting) -> int:
    """Largest number of evaluations that a search of the setting makes; a search that converges makes fewer."""
    builds = (setting.budget - len(setting.given)) * (1 + MAX_SWEEPS)
    return min(builds * setting.slices * _width(setting) + SHAKING_EVALUATIONS, MAX_EVALUATIONS)


def _width(setting: Setting) -> int:
    return _WIDTH if _WIDTH * setting.slices * setting.budget <= MAX_EVALUATIONS // 2 else 1


class Search:
    """Search for the orders of one setting.

    Args:
        setting: the setting.
        steps: hears of evaluations, `most_evaluations` in all.
    """

    def __init__(self, setting: Setting, *, steps: Steps = SILENT) -> None:
        self._setting = setting
        self._steps = steps
        self._to_tell = most_evaluations(setting)
        size = setting.slices * setting.budget
        samples = _SAMPLES if size <= 512 else _SAMPLES // 2 if size <= 2048 else _SAMPLES // 4
        self._hits = hits_over(setting.horizon, setting.probabilities, samples=samples, seed=2 * setting.seed)
        self._beam = OrderSearch(self._hits, setting.worth, width=_width(setting))
        self._tops = _tops(setting)
        self._orders: list[Order] = list(setting.given)
        self._depths: list[Ints] = [self._hits.depths(order) for order in setting.given]

    def run(self) -> tuple[Order, ...]:
        """B distinct orders, the given ones first."""
        self._construct()
        if len(self._orders) == self._setting.budget:
            self._improve()
            self._shake()
        self._tell(self._to_tell)
        return self._filled()

    def _construct(self) -> None:
        best = self._best(self._depths)
        while len(self._orders) < self._setting.budget and not self._spent():
            order = self._build(len(self._orders), best)
            if order is None:
                break  # nothing left to gain: the rest may be any
            self._orders.append(order)
            self._depths.append(self._hits.depths(order))
            best = np.maximum(best, self._depths[-1])

    def _improve(self) -> None:
        free = range(len(self._setting.given), self._setting.budget)
        for _ in range(MAX_SWEEPS):
            changed = False
            after = self._best_of_later()
            before = self._best(self._depths[: free.start])
            for index in free:
                if self._spent():
                    return
                changed |= self._rebuild(index, np.maximum(before, after[index]))
                before = np.maximum(before, self._depths[index])
            if not changed:
                return

    def _shake(self) -> None:
        """Build a few orders anew together, the first of them against a random half of the hits; keep what helps."""
        free = range(len(self._setting.given), self._setting.budget)
        generator = random.Random(self._setting.seed)  # noqa: S311 - nothing secret
        end = min(self._beam.evaluations + SHAKING_EVALUATIONS, MAX_EVALUATIONS)
        best = self._beam.worth_of(self._best(self._depths))
        while len(free) > 1 and self._beam.evaluations < end:
            before = list(self._orders), list(self._depths)
            indices = generator.sample(free, min(len(free), generator.choice((2, 3))))
            half = uniforms(len(self._hits.counts), generator.getrandbits(32)) < 0.5
            for index in indices:
                self._depths[index] = self._best([])  # as if it were not there
            self._replace(indices[0], np.where(half, self._setting.slices, self._rest(indices[0])))
            for index in (*indices[1:], *indices):
                self._rebuild(index, self._rest(index))
            worth = self._beam.worth_of(self._best(self._depths))
            if worth > best:
                best = worth
            else:
                self._orders, self._depths = before

    def _build(self, index: int, rest: Ints) -> Order | None:
        """The order for a place that adds most to `rest`; None if it is one of the others."""
        before = self._beam.evaluations
        order = self._beam.build(rest, top=self._tops[index], taken=self._others(index))
        self._tell(self._beam.evaluations - before)
        return order

    def _tell(self, evaluations: int) -> None:
        count = min(evaluations, self._to_tell)
        self._to_tell -= count
        self._steps.advance(count)

    def _rest(self, index: int) -> Ints:
        """Depths that the other orders reach."""
        return self._best(self._depths[:index] + self._depths[index + 1 :])

    def _replace(self, index: int, rest: Ints) -> None:
        """Put in its place the order that adds most to `rest`."""
        order = self._build(index, rest)
        if order is not None:
            self._orders[index], self._depths[index] = order, self._hits.depths(order)

    def _others(self, index: int) -> set[Order]:
        return {*self._orders[:index], *self._orders[index + 1 :]}

    def _rebuild(self, index: int, rest: Ints) -> bool:
        order = self._build(index, rest)
        if order is None:
            return False
        depths = self._hits.depths(order)
        gain = self._beam.worth_of(np.maximum(rest, depths)) - self._beam.worth_of(
            np.maximum(rest, self._depths[index])
        )
        if gain <= 0:
            return False
        self._orders[index], self._depths[index] = order, depths
        return True

    def _best(self, depths: list[Ints]) -> Ints:
        start: Ints = np.zeros(len(self._hits.counts), dtype=np.int64)
        return np.asarray(np.maximum.reduce([start, *depths]))

    def _best_of_later(self) -> list[Ints]:
        """Depths that the orders after each one reach."""
        reached: list[Ints] = [self._best([])]
        for depths in reversed(self._depths[1:]):
            reached.append(np.maximum(reached[-1], depths))
        return reached[::-1]

    def _spent(self) -> bool:
        return self._beam.evaluations >= MAX_EVALUATIONS

    def _filled(self) -> tuple[Order, ...]:
        if len(self._orders) == self._setting.budget:
            return tuple(self._orders)
        return completed(self._orders, cyclic(self._setting), self._setting.budget)


def _tops(setting: Setting) -> list[int | None]:
    """The slice on top of each order: those with which nothing given begins, the least likely to be deleted first; once
    all are used, any."""
    probabilities = setting.probabilities
    used = {order[0] for order in setting.given}
    fresh = sorted(set(range(setting.slices)) - used, key=lambda index: (probabilities[index], index))
    tops: list[int | None] = [order[0] for order in setting.given]
    return (tops + [*fresh] + [None] * setting.budget)[: setting.budget]
