"""What the ledger remembers of deletions and requests, within one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select

from s3t.ledger import schema
from s3t.ledger.state import Copy, LogEntry, RequestRow
from s3t.ledger.statements import CONFIRMED, KEY_DESTROYED, note, now, select_in, upsert, write_note


class History:
    """The log, requests by their keys, and notes. Nothing of a snapshot."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def log(self, generations: Collection[int] | None = None) -> list[LogEntry]:
        """Entries of generations, or of all of them, in their order."""
        table = schema.generations
        rows: Sequence[Any] = (
            self._connection.execute(select(table)).all()
            if generations is None
            else select_in(self._connection, select(table), table.c.generation, generations)
        )
        entries = (
            LogEntry(
                generation=row.generation,
                records=row.records,
                accepted_at=row.accepted_at,
                effective_at=row.effective_at,
                erased_at=row.erased_at,
            )
            for row in rows
        )
        return sorted(entries, key=lambda entry: entry.generation)

    def unfinished(self) -> list[LogEntry]:
        """Entries of generations that are not erased yet, in their order."""
        log = schema.generations
        waiting = self._connection.execute(select(log.c.generation).where(log.c.erased_at.is_(None))).scalars().all()
        return self.log(waiting) if waiting else []

    def mark_of(self, generation: int) -> str | None:
        """What tells a generation from another with the same number: "" if an older version wrote it, None if there is
        no such generation."""
        table = schema.generations
        row = self._connection.execute(select(table.c.mark).where(table.c.generation == generation)).first()
        return None if row is None else row.mark or ""

    def deleted_since(self, generation: int) -> dict[int, tuple[str, list[bytes]]]:
        """For each generation after one its mark, and the tokens that it has taken."""
        table, log = schema.deleted, schema.generations
        taken: dict[int, list[bytes]] = {}
        for row in self._connection.execute(select(table).where(table.c.generation > generation)):
            taken.setdefault(row.generation, []).append(row.token)
        made = select(log.c.generation, log.c.mark).where(log.c.generation > generation).order_by(log.c.generation)
        return {
            row.generation: (row.mark or "", sorted(taken.get(row.generation, ())))
            for row in self._connection.execute(made)
        }

    def request(self, key: bytes) -> RequestRow | None:
        """A request that came with an idempotency key."""
        table, log = schema.requests, schema.generations
        row = self._connection.execute(select(table).where(table.c.key == key)).first()
        if row is None:
            return None
        made = self._connection.execute(select(log.c.generation).where(log.c.request == key))
        return RequestRow(
            content=row.content,
            names=row.names,
            deleted=row.deleted,
            generations=frozenset(entry.generation for entry in made),
        )

    def note_request(self, key: bytes, *, content: bytes, names: int, deleted: int) -> None:
        """Note how far a request with an idempotency key has come."""
        row = {"key": key, "content": content, "names": names, "deleted": deleted}
        upsert(self._connection, schema.requests, [row])

    def touch(self) -> None:
        """Write something, so that the end of the transaction waits for the disk."""
        write_note(self._connection, CONFIRMED, to=note(self._connection, CONFIRMED) + 1)

    def key_destroyed_at(self) -> float | None:
        """When the run's secret was destroyed, in seconds since the epoch; None if it was not."""
        return note(self._connection, KEY_DESTROYED) or None

    def note_key_destroyed(self) -> None:
        """Note that the run's secret is destroyed."""
        write_note(self._connection, KEY_DESTROYED, to=int(now(self._connection)))

    def copies(self) -> list[Copy]:
        """Files outside the run that hold records, as far as init knew."""
        rows = self._connection.execute(select(schema.copies).order_by(schema.copies.c.path))
        return [Copy(path=Path(row.path), cache=Path(row.cache), host=row.host) for row in rows]

    def forget_copies(self, copies: Iterable[Copy]) -> None:
        """Note that copies outside the run are gone."""
        for copy in copies:
            self._connection.execute(delete(schema.copies).where(schema.copies.c.path == str(copy.path)))
