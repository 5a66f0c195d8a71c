"""Rows with a keyed check, by which a flipped bit is noticed before the row decides anything.

Every table that decides what is deleted, erased or in use has a column `mac`: an HMAC over the table's name and the
row's other values, under a key that derives from the run's secret. A row whose check fails is refused where it is
read. A missing row, or one that an index hides, has no check: unknown names are searched for in the slices
(`deletion/lookup.py`), and the audit compares tables with their indexes and with the slices.

The key is destroyed with the run's secret; without it nothing is checked.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, Row, Table, bindparam, delete, insert, select, update
from sqlalchemy.dialects import sqlite

from s3t.errors import IntegrityError
from s3t.ledger import schema
from s3t.ledger.statements import CHANGES, KEY_DESTROYED, chunks, select_in

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

MAC = "mac"
_MAC_BYTES = 16
_NOTE = select(schema.notes).where(schema.notes.c.name == bindparam("name"))
"""Made once: every answer asks it."""


class Rows:
    """Reads and writes rows, within one transaction.

    Args:
        key: the checks' key; None if rows cannot be checked.
    """

    def __init__(self, connection: Connection, key: bytes | None = None) -> None:
        self.connection = connection
        self._key = key

    def read(self, table: Table, *conditions: Any) -> list[Row[Any]]:
        """Whole rows of a table."""
        return self.checked(table, self.connection.execute(select(table).where(*conditions)))

    def read_in(self, table: Table, column: Any, values: Collection[Any]) -> list[Row[Any]]:
        """Whole rows whose column is among any number of values; raises as `read`."""
        with _odd_values(table):
            return self.checked(table, select_in(self.connection, select(table), column, values))

    def unchecked(self, table: Table) -> list[Row[Any]]:
        """Every row of a table, damaged ones included; raises IntegrityError if they cannot be read."""
        with _odd_values(table):
            return list(self.connection.execute(select(table)))

    def unchecked_columns(self, *columns: Column[Any]) -> list[tuple[Any, ...]]:
        """Values of some columns in every row, damaged ones included; raises as `unchecked`."""
        with _odd_values(columns[0].table):
            return [tuple(row) for row in self.connection.execute(select(*columns))]

    def checked(self, table: Table, rows: Iterable[Row[Any]]) -> list[Row[Any]]:
        """Rows that begin with all columns of a table; raises as `read`."""
        with _odd_values(table):
            read = list(rows)
        if (wrong := self.wrong(table, read)) and not self._key_destroyed():
            raise damaged(table, len(wrong))
        return read

    def wrong(self, table: Table, rows: Iterable[Row[Any]]) -> list[Row[Any]]:
        """The rows that are not as they were written."""
        if self._key is None or MAC not in table.c:
            return []
        count = len(table.c) - 1  # the check is the last column
        return [row for row in rows if row[count] != self.mac(table, tuple(row[:count]))]

    def insert(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        for chunk in chunks(self._sealed(table, rows)):
            self.connection.execute(insert(table), chunk)

    def upsert(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert whole rows, or replace those with the same primary key."""
        statement = self._upsertable(table)
        keys = [column.name for column in table.primary_key]
        others = {column.name: statement.excluded[column.name] for column in table.c if column.name not in keys}
        statement = statement.on_conflict_do_update(index_elements=keys, set_=others)
        for chunk in chunks(self._sealed(table, rows)):
            self.connection.execute(statement, chunk)

    def _upsertable(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        if self.connection.dialect.name == "sqlite":
            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql  # here: most runs have SQLite

        return postgresql.insert(table)

    def change(self, table: Table, changes: Iterable[tuple[Row[Any], Mapping[str, Any]]]) -> int:
        """Change values of rows that were read whole, but not their primary keys; returns the number of rows."""
        rows = self._sealed(table, [{**row._mapping, **values} for row, values in changes])
        if not rows:
            return 0
        keys = [column.name for column in table.primary_key]
        others: dict[str, Any] = {name: bindparam(f"new_{name}") for name in rows[0] if name not in keys}
        statement = update(table).where(*(table.c[name] == bindparam(f"at_{name}") for name in keys)).values(others)
        named = [{f"{'at' if name in keys else 'new'}_{name}": row[name] for name in row} for row in rows]
        return sum(self.connection.execute(statement, chunk).rowcount for chunk in chunks(named))

    def remove(self, table: Table, row: Row[Any]) -> None:
        """Remove a row that was read whole."""
        key = (table.c[column.name] == row._mapping[column.name] for column in table.primary_key)
        self.connection.execute(delete(table).where(*key))

    def note(self, name: str) -> int:
        """A named number of the ledger; 0 before it was first written."""
        rows = self.checked(schema.notes, self.connection.execute(_NOTE, {"name": name}))
        return int(rows[0].value) if rows else 0

    def notes(self, *names: str) -> tuple[int, ...]:
        """Some named numbers; each 0 before it was first written."""
        values = {row.name: int(row.value) for row in self.read_in(schema.notes, schema.notes.c.name, names)}
        return tuple(values.get(name, 0) for name in names)

    def raise_note(self, name: str) -> None:
        """Add 1 to a named number."""
        self.write_note(name, to=self.note(name) + 1)

    def write_note(self, name: str, *, to: int) -> None:
        """Write a named number."""
        self.upsert(schema.notes, [{"name": name, "value": to}])

    def note_change(self) -> None:
        """Tell all readers that earlier snapshots are outdated."""
        self.raise_note(CHANGES)

    def generation_now(self) -> int:
        """The present generation."""
        table = schema.generations
        newest = select(table).order_by(table.c.generation.desc()).limit(1)
        rows = self.checked(table, self.connection.execute(newest))
        if not rows:
            raise damaged(table, 1)
        return int(rows[0].generation)

    def _sealed(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        names = [column.name for column in table.c if column.name != MAC]
        whole = [{name: row.get(name) for name in names} for row in rows]
        if MAC in table.c:
            for row in whole:
                row[MAC] = None if self._key is None else self.mac(table, tuple(row.values()))
        return whole

    def mac(self, table: Table, values: tuple[Any, ...]) -> bytes:
        """The check of a row's values, in the order of the table's columns."""
        # ascii() of numbers, bytes, texts and None is the same on every machine, and of no two rows the same.
        content = f"{table.name}{values!a}".encode()
        return hmac.digest(self._key or b"", content, sha256)[:_MAC_BYTES]

    def _key_destroyed(self) -> bool:
        """True if the run's secret was destroyed since the key was read: rows are then written without checks."""
        note = select(schema.notes.c.value).where(schema.notes.c.name == KEY_DESTROYED)
        return self.connection.execute(note).first() is not None


CHECKED = tuple(table for table in schema.metadata.sorted_tables if MAC in table.c)
"""Tables whose rows have a check."""


@contextmanager
def _odd_values(table: Table) -> Iterator[None]:
    """Turn errors of the database's driver into damage: a flipped bit may give a value another type."""
    try:
        yield
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        raise damaged(table, 1) from error


def damaged(table: Table, rows: int) -> IntegrityError:
    """The error for rows that are not as they were written."""
    what = "a row" if rows == 1 else f"{rows} rows"
    return IntegrityError(
        f"{what} of the ledger's table `{table.name}` changed outside of s3t: the check fails, so nothing is decided "
        "by it. Run `s3t reconcile RUN`, which mends what the slices and the memory of "
        "deletions tell, and says what has to come from a backup"
    )
