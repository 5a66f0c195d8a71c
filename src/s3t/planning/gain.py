"""Gain by orders added to a run: the depth that its shards keep after deletions, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3t.planning.retention import retention
from s3t.sequences import Order

AFTER = (1, 2, 4, 8, 16)
"""Deletions in a shard."""
_TRIALS = 20_000
_NO_GAIN = 1e-6
"""Slices; less is rounding."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The expected depth of a shard, mean over the shards, under the current orders and with new ones added.

    Shards count as fully trained: `repair` restores what deletions have cost, with the current orders alone.
    """

    deletions: tuple[int, ...]
    """Numbers of deletions in the shard."""
    before: tuple[float, ...]
    """Expected depth in slices, for each number of deletions."""
    after: tuple[float, ...]

    @property
    def is_none(self) -> bool:
        """True if the new orders add no survival at all."""
        return all(new - old < _NO_GAIN for old, new in zip(self.before, self.after, strict=True))

    def to_json(self) -> dict[str, Any]:
        """The gain in the document of `s3t extend --json`."""
        return {
            "deletions": list(self.deletions),
            "expected_depth_before": list(self.before),
            "expected_depth_after": list(self.after),
        }


def gain(
    old: Sequence[Sequence[Order]],
    new: Sequence[Sequence[Order]],
    *,
    priors: Sequence[Sequence[float] | None] | None = None,
    deletions: Sequence[int] = AFTER,
) -> Gain:
    """Compare the orders of all shards before and after orders are added.

    With all three rotations of three slices every surviving set of slices has an order already:

    >>> rotations = [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    >>> found = gain([rotations], [[*rotations, (0, 2, 1)]])
    >>> found.is_none, [round(depth, 1) for depth in found.after[:2]]
    (True, [2.0, 1.3])

    Args:
        priors: for each shard, the probabilities of its slices; None: uniform.
    """

    @cache  # most shards have the same orders
    def depths(orders: tuple[Order, ...], prior: tuple[float, ...] | None) -> Floats:
        # All on the same simulated histories, so that no gain is due to chance.
        return retention(orders, deletions, prior=prior, trials=_TRIALS).expected_depth

    declared = [None if prior is None else tuple(prior) for prior in priors or [None] * len(old)]
    before, after = (
        np.mean([depths(tuple(orders), prior) for orders, prior in zip(shards, declared, strict=True)], axis=0)
        for shards in (old, new)
    )
    return Gain(deletions=tuple(deletions), before=tuple(before.tolist()), after=tuple(after.tolist()))
