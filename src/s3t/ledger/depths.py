"""Depths of shards over time, for pictures. They follow from which slices were hit and when stages were trained.

A shard's depth here is that of its deepest live chain that holds a record. With `prediction.select: validation` another
prefix may serve; which one follows from records, so a history of it would outlive them.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import func, select

from s3t.core import Stage
from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.schema import row_of
from s3t.ledger.state import DepthChange

MOST_DEPTHS = 10_000
"""Changes that are remembered: the newest."""
_SPARE = 500
"""Changes that may be there beyond them, so that not every change removes one."""


class Depths:
    """Depths over time, within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def all(self) -> list[DepthChange]:
        """Every change that is remembered, the oldest first."""
        return sorted(self._rows.values(DepthChange), key=lambda change: (change.changed_at, change.shard))

    def note(self, shards: Collection[int], *, before: Collection[Stage], after: Collection[Stage]) -> None:
        """Note the depths of some shards, where the live stages before and after a change give them another one."""
        table, run, time = schema.depths, self._rows.connection.execute, self._rows.now()
        filled = self._filled(shards)
        was, is_now = _deepest(before, shards, filled), _deepest(after, shards, filled)
        changes = [
            DepthChange(changed_at=time, shard=shard, depth_before=was[shard], depth=is_now[shard])
            for shard in sorted(shards)
            if was[shard] != is_now[shard]
        ]
        self._rows.upsert(table, map(row_of, changes))
        if changes and run(select(func.count()).select_from(table)).scalar_one() > MOST_DEPTHS + _SPARE:
            newest = select(table.c.changed_at).order_by(table.c.changed_at.desc()).offset(MOST_DEPTHS - 1).limit(1)
            self._rows.delete(table, table.c.changed_at < run(newest).scalar_one())

    def _filled(self, shards: Collection[int]) -> set[tuple[int, int]]:
        """Slices of some shards that hold a record."""
        table = schema.slices
        held = select(table.c.shard, table.c.slice).where(table.c.records > 0)
        return {(row.shard, row.slice) for row in self._rows.select_in(held, table.c.shard, shards)}


def _deepest(alive: Collection[Stage], shards: Collection[int], filled: Collection[tuple[int, int]]) -> dict[int, int]:
    """For each shard the slices of its deepest chain of live stages that holds a record; 0 without one."""
    found = dict.fromkeys(shards, 0)
    for stage in alive:
        if stage.shard not in found or stage.kind != "model" or stage.depth <= found[stage.shard]:
            continue
        if any((stage.shard, index) in filled for index in stage.prefix) and all(each in alive for each in stage.chain):
            found[stage.shard] = stage.depth
    return found
