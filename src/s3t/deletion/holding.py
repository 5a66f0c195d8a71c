"""Limits of deletion: the reason for which a request is held for approval. Pure.

A stolen token, or a program that has gone wrong, could delete a whole run in minutes, and nothing brings it back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from s3t.wording import counted


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits within an hour, above which a request is held; None: no limit."""

    records: int | None
    """Records that a caller may delete."""
    share: float | None
    """Share of a shard's records that requests of all callers may take, 0 to 1."""


def why_held(
    limits: Limits, *, losses: Mapping[int, int], present: Mapping[int, int], before: tuple[int, Mapping[int, int]]
) -> str | None:
    """Reason for which a request is held, in words; None if it is not.

    `losses` are the records that the request takes from each shard, `present` all records of each shard, those
    included, and `before` those that the caller, and all callers from each shard, took within the hour before.

    >>> before = 8, {0: 3}
    >>> why_held(Limits(records=10, share=None), losses={0: 2}, present={0: 20}, before=before)
    >>> why_held(Limits(records=10, share=0.2), losses={0: 3}, present={0: 20}, before=before)
    '3 records, 8 by this caller in the hour before: over 10; 1 shard would lose over 20 % within an hour'
    """
    asked, (by_caller, by_shard) = sum(losses.values()), before
    reasons = []
    if asked and limits.records is not None and asked + by_caller > limits.records:
        earlier = f", {by_caller} by this caller in the hour before" if by_caller else ""
        reasons.append(f"{counted(asked, 'record')}{earlier}: over {limits.records}")
    share = math.inf if limits.share is None else limits.share
    over = [
        shard
        for shard, lost in losses.items()
        for gone in [lost + by_shard.get(shard, 0)]
        if lost and gone > share * (present[shard] - lost + gone)
    ]
    if over:  # without numbers: they would tell the caller in which shard a record lies
        reasons.append(f"{counted(len(over), 'shard')} would lose over {100 * share:g} % within an hour")
    return "; ".join(reasons) or None
