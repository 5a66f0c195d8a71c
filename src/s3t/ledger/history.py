"""What the ledger remembers of deletions and requests, within one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select

from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.soundness import Contents, contents_of, rebuild_indexes, structure_problems
from s3t.ledger.state import Copy, LogEntry, RequestRow
from s3t.ledger.statements import CONFIRMED, FOREIGN, KEY_DESTROYED, now


class History:
    """The log, requests by their keys, and notes. Nothing of a snapshot."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._connection = rows.connection

    def contents(self) -> Contents:
        """All rows, for an audit."""
        return contents_of(self._rows)

    def structure_problems(self) -> list[str]:
        """What the database itself finds wrong with its pages and indexes."""
        return structure_problems(self._connection)

    def rebuild_indexes(self) -> None:
        """Make every index anew from its table."""
        rebuild_indexes(self._connection)

    def log(self, generations: Collection[int] | None = None) -> list[LogEntry]:
        """Entries of generations, or of all of them, in their order."""
        table = schema.generations
        rows: Sequence[Any] = (
            self._rows.read(table)
            if generations is None
            else self._rows.read_in(table, table.c.generation, generations)
        )
        entries = (
            LogEntry(
                generation=row.generation,
                records=row.records,
                received_at=row.received_at,
                accepted_at=row.accepted_at,
                effective_at=row.effective_at,
                erased_at=row.erased_at,
            )
            for row in rows
        )
        return sorted(entries, key=lambda entry: entry.generation)

    def unfinished(self) -> list[LogEntry]:
        """Entries of generations that are not erased yet, in their order."""
        table = schema.generations
        waiting = self._connection.execute(select(table.c.generation).where(table.c.erased_at.is_(None))).scalars()
        return self.log(waiting.all())

    def marks(self) -> dict[int, str]:
        """What tells each generation from another with the same number.

        Rows are not checked: there may be many, and what is like the witness's mark was not changed by chance.
        """
        table = schema.generations
        return dict(self._rows.unchecked_columns(table.c.generation, table.c.mark))

    def foreign_marks(self) -> set[tuple[str, int]]:
        """Marks and generations of another history's deletions (a copy's) that this ledger has made its own."""
        table = schema.notes
        rows = self._rows.read(table, table.c.name.startswith(FOREIGN))
        return {(row.name.removeprefix(FOREIGN), row.value) for row in rows}

    def note_foreign(self, marks: Iterable[tuple[str, int]]) -> None:
        """Note that this ledger has made deletions of another history its own."""
        rows = ({"name": f"{FOREIGN}{mark}", "value": generation} for mark, generation in marks)
        self._rows.upsert(schema.notes, rows)

    def deleted_since(self, generation: int) -> dict[int, tuple[str, list[bytes]]]:
        """For each generation after one its mark, and the tokens that it has taken."""
        table, log = schema.deleted, schema.generations
        taken: dict[int, list[bytes]] = {}
        for row in self._rows.read(table, table.c.generation > generation):
            taken.setdefault(row.generation, []).append(row.token)
        made = sorted(self._rows.read(log, log.c.generation > generation), key=lambda row: int(row.generation))
        return {row.generation: (row.mark, sorted(taken.get(row.generation, ()))) for row in made}

    def request(self, key: bytes) -> RequestRow | None:
        """A request that came with an idempotency key."""
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
        """Note how far a request with an idempotency key has come."""
        row = {"key": key, "content": content, "names": names, "deleted": deleted}
        self._rows.upsert(schema.requests, [row])

    def touch(self) -> None:
        """Write something, so that the end of the transaction waits for the disk."""
        self._rows.write_note(CONFIRMED, to=self._rows.note(CONFIRMED) + 1)

    def key_destroyed_at(self) -> float | None:
        """When the run's secret was destroyed, in seconds since the epoch; None if it was not."""
        return self._rows.note(KEY_DESTROYED) or None

    def note_key_destroyed(self) -> None:
        """Note that the run's secret is destroyed."""
        self._rows.write_note(KEY_DESTROYED, to=int(now(self._connection)))

    def copies(self) -> list[Copy]:
        """Files outside the run that hold records, as far as init knew."""
        rows = sorted(self._rows.read(schema.copies), key=lambda row: str(row.path))
        return [Copy(path=Path(row.path), cache=Path(row.cache), host=row.host) for row in rows]

    def forget_copies(self, copies: Iterable[Copy]) -> None:
        """Note that copies outside the run are gone."""
        for copy in copies:
            self._connection.execute(delete(schema.copies).where(schema.copies.c.path == str(copy.path)))
