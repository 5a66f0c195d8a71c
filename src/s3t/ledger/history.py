"""The part of the ledger that only remembers: log, requests, marks of deletions, durations, copies outside the run."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import select

from s3t.core import Stage
from s3t.ledger import schema
from s3t.ledger.exports import ExportRows
from s3t.ledger.rows import KEY_DESTROYED, Rows
from s3t.ledger.schema import stage_at
from s3t.ledger.state import Clone, RequestRow
from s3t.results.log import LogEntry


class History:
    """The ledger's memory, within one transaction. Nothing of it is in a snapshot."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def log(self, generations: Collection[int] | None = None) -> list[LogEntry]:
        """Entries of some generations, or of all, in order."""
        table = schema.generations
        read = self._rows.read
        rows = read(table) if generations is None else self._rows.read_in(table, table.c.generation, generations)
        waited_for = ExportRows(self._rows).waited_for()
        names = LogEntry.model_fields.keys() - {"to_withdraw"}
        entries = (
            LogEntry(**{name: row._mapping[name] for name in names}, to_withdraw=waited_for.get(row.generation, ()))
            for row in rows
        )
        return sorted(entries, key=lambda entry: entry.generation)

    def unfinished(self) -> list[LogEntry]:
        """Entries of generations that are not erased yet, in order."""
        table = schema.generations
        waiting = select(table.c.generation).where(table.c.erased_at.is_(None))
        return self.log(self._rows.connection.execute(waiting).scalars().all())

    def marks(self) -> dict[int, str]:
        """The random mark of each generation, which tells it from another history's with the same number.

        Rows are not checked: a mark does not become equal to the witness's by chance.
        """
        table = schema.generations
        return {row.generation: row.mark for row in self._rows.unchecked(table.c.generation, table.c.mark)}

    def deleted_since(self, generation: int) -> dict[int, tuple[str, list[bytes]]]:
        """Mark and deleted tokens of each generation after one."""
        table, log = schema.deleted, schema.generations
        taken: dict[int, list[bytes]] = {}
        for row in self._rows.read(table, table.c.generation > generation):
            taken.setdefault(row.generation, []).append(row.token)
        made = sorted(self._rows.read(log, log.c.generation > generation), key=lambda row: int(row.generation))
        return {row.generation: (row.mark, sorted(taken.get(row.generation, ()))) for row in made}

    def remember(self, tokens: Collection[bytes], *, generation: int) -> None:
        """Note tokens as deleted, whether or not the ledger knew them."""
        self._rows.upsert(schema.deleted, ({"token": token, "generation": generation} for token in tokens))

    def request(self, key: bytes) -> RequestRow | None:
        """The request with an idempotency key, if there was one."""
        table, log = schema.requests, schema.generations
        rows = self._rows.read(table, table.c.key == key)
        if not rows:
            return None
        row, made = rows[0], self._rows.read(log, log.c.request == key)
        return RequestRow(
            content=row.content,
            names=row.names,
            deleted=row.deleted,
            generations=frozenset(entry.generation for entry in made),
        )

    def note_request(self, key: bytes, *, content: bytes, names: int, deleted: int) -> None:
        """Note the progress of a request with an idempotency key."""
        row = {"key": key, "content": content, "names": names, "deleted": deleted}
        self._rows.upsert(schema.requests, [row])

    def key_destroyed_at(self) -> float | None:
        """Time at which the run's secret was destroyed, in seconds since the epoch; None if it was not."""
        return self._rows.note(KEY_DESTROYED) or None

    def note_key_destroyed(self) -> None:
        """Note that the run's secret is destroyed."""
        self._rows.write_note(KEY_DESTROYED, to=int(self._rows.now()))

    def durations(self) -> dict[Stage, float]:
        """Seconds that the training of each live stage took."""
        rows = self._rows.read(schema.durations)
        return {stage_at(row.shard, row.prefix): float(row.seconds) for row in rows}

    def clones(self) -> list[Clone]:
        """Clones that are being made, or were when their process was killed."""
        return self._rows.values(Clone)

    def note_clone(self, clone: Clone) -> None:
        self._rows.add(clone)

    def forget_clones(self, clones: Iterable[Clone]) -> None:
        self._rows.delete_all(schema.clones, ((str(clone.path),) for clone in clones), schema.clones.c.path)
