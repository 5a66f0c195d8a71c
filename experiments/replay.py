"""Deletions replayed over what trained prefixes answer: no training, and no two deletion orders alike.

A system is trained once. Which slices a deletion order reaches, and when, decides which prefix of every shard serves;
their logits on the test records are known, so the accuracy after every deletion is a matter of adding up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.runs import Logits, Prefix
from s3t.core import Order

Times = NDArray[np.int64]
"""Shards x slices: after how many deletions each slice loses its first record."""

Dead = NDArray[np.bool_]
"""Shards x slices: which have lost a record."""


Serving = Callable[[int, frozenset[int]], Logits | None]
"""What a shard answers when some of its slices have lost a record; None if it does not."""


def of_prefixes(logits: Mapping[tuple[int, Prefix], Logits], orders: Sequence[Sequence[Order]]) -> Serving:
    """A system of orders: the deepest prefix without a dead slice serves, the first of equals.

    Args:
        logits: of every prefix of every order, by shard and prefix.
        orders: of every shard.
    """

    def serving(shard: int, dead: frozenset[int]) -> Logits | None:
        best: Prefix = ()
        for order in orders[shard]:
            depth = next((place for place, index in enumerate(order) if index in dead), len(order))
            if depth > len(best):
                best = tuple(order[:depth])
        return logits[shard, best] if best else None

    return serving


def first_hits(sizes: Times, generator: np.random.Generator) -> Times:
    """When a random order of all records reaches every slice.

    Args:
        sizes: records of every slice, shards x slices.
        generator: of the order.
    """
    where = generator.permutation(np.repeat(np.arange(sizes.size), sizes.flatten()))
    times = np.full(sizes.size, len(where) + 1, dtype=np.int64)
    np.minimum.at(times, where, np.arange(1, len(where) + 1))
    return times.reshape(sizes.shape)


class Judge:
    """Accuracy of a system's ensemble, the mean of its shards' logits; what was judged once is remembered."""

    def __init__(self, serving: Serving, expected: NDArray[np.int64]) -> None:
        """Know the right answers.

        Args:
            serving: who answers.
            expected: label indices of the test records.
        """
        self._serving = serving
        self._expected = expected
        self._shards: dict[tuple[int, frozenset[int]], Logits | None] = {}

    def accuracy(self, dead: Dead) -> float | None:
        """Of the shards that answer; None if none does."""
        members = [self._of(shard, frozenset(np.flatnonzero(row).tolist())) for shard, row in enumerate(dead)]
        alive = [logits for logits in members if logits is not None]
        if not alive:
            return None
        return float((np.mean(alive, axis=0).argmax(axis=1) == self._expected).mean())

    def _of(self, shard: int, dead: frozenset[int]) -> Logits | None:
        if (shard, dead) not in self._shards:
            self._shards[shard, dead] = self._serving(shard, dead)
        return self._shards[shard, dead]

    def curve(self, times: Times, grid: Sequence[int]) -> list[float | None]:
        """Accuracy after each of some numbers of deletions; None once every shard is dead.

        Args:
            times: of one deletion order.
            grid: numbers of deletions, rising.
        """
        found: list[float | None] = []
        last: tuple[bytes, float | None] | None = None
        for count in grid:
            dead = times <= count
            state = dead.tobytes()
            if last is None or last[0] != state:
                last = (state, self.accuracy(dead))
            found.append(last[1])
        return found


class Ensemble:
    """Accuracy of the mean of shards' logits, by the prefixes that serve; what was judged once is remembered."""

    def __init__(self, logits: Mapping[tuple[int, Prefix], Logits], expected: NDArray[np.int64]) -> None:
        """Take the answers.

        Args:
            logits: of every prefix that may serve, by shard and prefix.
            expected: label indices of the test records.
        """
        self._logits = logits
        self._expected = expected
        self._known: dict[tuple[Order, ...], float] = {}

    def accuracy(self, serving: tuple[Order, ...]) -> float:
        """Of shards that serve with these prefixes. A shard with an empty one does not vote; without any vote: 0."""
        if serving not in self._known:
            votes = [self._logits[shard, prefix] for shard, prefix in enumerate(serving) if prefix]
            right = np.mean(votes, axis=0).argmax(axis=1) == self._expected if votes else np.zeros(1)
            self._known[serving] = float(right.mean())
        return self._known[serving]


def always(times: Times, count: int) -> bool:
    """Every deletion order, after every number of deletions."""
    return True


def sisa_answers(times: Times, count: int) -> bool:
    """Whether a system of one order, which SISA is, still answers: whether some shard's first slice lives."""
    return bool((times[:, 0] > count).any())


def curves(
    judge: Judge,
    grid: Sequence[int],
    sizes: Times,
    *,
    rounds: int,
    seed: int,
    where: Callable[[Times, int], bool] = always,
) -> dict[str, list[float | None]]:
    """Over many deletion orders: the mean accuracy of the systems that are alive, and how many are.

    Args:
        judge: of the system.
        grid: numbers of deletions, rising.
        sizes: records of every slice.
        rounds: deletion orders; the same for every system of such slices.
        seed: of the orders.
        where: whether a deletion order (its times) counts after so many deletions. Means of several systems, each over
            the orders that it survives itself, are of different orders, and flatter who survives few.

    Returns:
        `accuracy` (None where all are dead), `spread` (its standard deviation over the orders), and `alive`.
    """
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(rounds):
        times = first_hits(sizes, generator)
        values = judge.curve(times, grid)
        found.append([value if where(times, count) else None for value, count in zip(values, grid, strict=True)])
    return averaged(found)


def averaged(found: Sequence[Sequence[float | None]]) -> dict[str, list[float | None]]:
    """Curves over many orders as one, see `curves`.

    >>> averaged([[0.5, None], [0.7, None]])["alive"]
    [1.0, 0.0]
    """
    alive = [[value for value in at if value is not None] for at in zip(*found, strict=True)]
    return {
        "accuracy": [float(np.mean(values)) if values else None for values in alive],
        "spread": [float(np.std(values)) if values else None for values in alive],
        "alive": [len(values) / len(found) for values in alive],
    }


def counted(row: Mapping[str, Any]) -> list[float]:
    """The accuracies of a row of `curves`, with a dead system counted as never right.

    >>> counted({"accuracy": [0.5, None], "alive": [0.5, 0.0]})
    [0.25, 0.0]
    """
    return [(value or 0.0) * alive for value, alive in zip(row["accuracy"], row["alive"], strict=True)]
