"""The part of the ledger that only remembers: log, requests, marks of deletions, durations, depths."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from typing import Any

from sqlalchemy import func, select

from s3t.core import Place, Stage
from s3t.ledger import schema
from s3t.ledger.exports import ExportRows
from s3t.ledger.rows import KEY_DESTROYED, LATE, Rows
from s3t.ledger.schema import place_at, row_of, stage_at
from s3t.ledger.state import Deletions, DepthChange, RequestRow
from s3t.results.log import LogEntry

MOST_DEPTHS = 10_000
"""Changes that are remembered: the newest."""


class History:
    """The ledger's memory, within one transaction. Nothing of it is in a snapshot."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def log(self, generations: Collection[int] | None = None) -> list[LogEntry]:
        """Entries of some generations, or of all, in order."""
        table = schema.generations
        if generations is None:
            return self._entries(self._rows.read(table))
        return self._entries(self._rows.read_in(table, table.c.generation, generations))

    def unfinished(self) -> list[LogEntry]:
        """Entries of generations that are not erased yet, in order."""
        return self._entries(self._rows.read(schema.generations, erased_at=None))

    def _entries(self, rows: Iterable[Any]) -> list[LogEntry]:
        waited_for = ExportRows(self._rows).waited_for()
        entries = (LogEntry(**row._mapping, to_withdraw=waited_for.get(row.generation, ())) for row in rows)
        return sorted(entries, key=lambda entry: entry.generation)

    def count_since(self, time: float) -> int:
        """Number of deletions that were asked for since then, in seconds since the epoch."""
        table = schema.generations
        lately = select(func.count()).where(table.c.received_at > time, table.c.generation > 0)
        return int(self._rows.connection.execute(lately).scalar_one())

    def marks(self) -> dict[int, str]:
        """The random mark of each generation, which tells it from another history's with the same number.

        Rows are not checked: a mark does not become equal to the witness's by chance.
        """
        table = schema.generations
        return {row.generation: row.mark for row in self._rows.unchecked(table.c.generation, table.c.mark)}

    def deleted_since(self, generation: int) -> Deletions:
        """The deletions after one."""
        table, log = schema.deleted, schema.generations
        made = self._rows.read(log, log.c.generation > generation)
        return _deletions(made, self._rows.read(table, table.c.generation > generation))

    def remember(self, tokens: Collection[bytes], *, generation: int) -> None:
        """Note tokens as deleted, whether or not the ledger knew them; `note_asked` says of which somebody asked it."""
        self._rows.upsert(schema.deleted, ({"token": token, "generation": generation, "asked": 0} for token in tokens))

    def note_asked(self, tokens: Collection[bytes]) -> Deletions:
        """Note that somebody asked for the deletion of what was deleted: it does not come back by itself. Returns the
        deletions of those of which that was not known, with their tokens alone."""
        table, log = schema.deleted, schema.generations
        late = [row for row in self._rows.read_in(table, table.c.token, tokens) if not row.asked]
        self._rows.upsert(table, ({**row._mapping, "asked": 1} for row in late))
        made = self._rows.read_in(log, log.c.generation, {row.generation for row in late})
        return {number: (mark, tokens, ()) for number, (mark, _, tokens) in _deletions(made, late).items()}

    def note_late(self, number: int | None = None) -> int:
        """Note that such late requests are known up to a number, by default one more; returns it."""
        number = self._rows.note(LATE) + 1 if number is None else max(number, self._rows.note(LATE))
        self._rows.write_note(LATE, to=number)
        return number

    def request(self, key: bytes) -> RequestRow | None:
        """The request with an idempotency key, if there was one."""
        for row in self._rows.read(schema.requests, key=key):
            made = frozenset(each.generation for each in self._rows.read(schema.generations, request=key))
            return RequestRow(content=row.content, names=row.names, deleted=row.deleted, generations=made)
        return None

    def note_request(self, key: bytes, *, content: bytes, names: int, deleted: int) -> None:
        """Note the progress of a request with an idempotency key."""
        row = {"key": key, "content": content, "names": names, "deleted": deleted}
        self._rows.upsert(schema.requests, [row])

    def key_destroyed_at(self) -> float | None:
        """Time at which the run's secret was destroyed, in seconds since the epoch; None if it was not."""
        return self._rows.note(KEY_DESTROYED) or None

    def note_key_destroyed(self) -> None:
        self._rows.write_note(KEY_DESTROYED, to=int(self._rows.now()))

    def durations(self) -> dict[Stage, float]:
        """Seconds that the training of each live stage took."""
        rows = self._rows.read(schema.durations)
        return {stage_at(row.shard, row.prefix): float(row.seconds) for row in rows}

    def training_seconds(self) -> float:
        """Seconds that the training of all live stages of models took, summed by the database."""
        table = schema.durations
        models = ~table.c.prefix.contains(":")  # what other kinds are is before a colon
        total = select(func.sum(table.c.seconds)).where(models)
        return self._rows.connection.execute(total).scalar_one() or 0.0

    def note_depths(self, shards: Collection[int], *, before: Collection[Stage], after: Collection[Stage]) -> None:
        """Note the depths of some shards, where the live stages before and after a change give them another one.

        A shard's depth here is that of its deepest live chain that holds a record. With `prediction.select: validation`
        another prefix may serve; which one follows from records, so a history of it would outlive them.
        """
        table, time = schema.depths, self._rows.now()
        slices = select(schema.slices).where(schema.slices.c.records > 0)
        filled = {place_at(row) for row in self._rows.select_in(slices, schema.slices.c.shard, shards)}
        was, is_now = _deepest(before, shards, filled), _deepest(after, shards, filled)
        changes = [
            DepthChange(changed_at=time, shard=shard, depth_before=was[shard], depth=is_now[shard])
            for shard in sorted(shards)
            if was[shard] != is_now[shard]
        ]
        if changes:
            self._rows.upsert(table, map(row_of, changes))
            newest = select(table.c.changed_at).order_by(table.c.changed_at.desc()).offset(MOST_DEPTHS - 1).limit(1)
            self._rows.delete(table, table.c.changed_at < newest.scalar_subquery())


def _deletions(made: Iterable[Any], deleted: Iterable[Any]) -> Deletions:
    """Deletions by their rows of the log, and those of tokens."""
    taken: dict[int, tuple[list[bytes], list[bytes]]] = {row.generation: ([], []) for row in made}
    for row in sorted(deleted, key=lambda row: row.token):
        asked, others = taken.get(row.generation, ([], []))
        (asked if row.asked else others).append(row.token)
    return {row.generation: (row.mark, *taken[row.generation]) for row in sorted(made, key=lambda row: row.generation)}


def _deepest(alive: Collection[Stage], shards: Collection[int], filled: Set[Place]) -> dict[int, int]:
    """For each shard the slices of its deepest live chain that holds a record, or of its ridge head; 0 without one."""
    found, of_ridge = dict.fromkeys(shards, 0), {shard: set[int]() for shard in shards}
    for stage in alive:
        if stage.shard not in found:
            continue
        if stage.kind == "statistics" and stage.places[0] in filled:  # a ridge head has all of them
            of_ridge[stage.shard].update(stage.prefix)
            found[stage.shard] = len(of_ridge[stage.shard])
        if stage.kind != "model" or stage.depth <= found[stage.shard]:
            continue
        if not filled.isdisjoint(stage.places) and all(each in alive for each in stage.chain):
            found[stage.shard] = stage.depth
    return found
