"""Rows with a keyed check, by which a flipped bit is noticed before the row decides anything.

Every table that decides what is deleted, erased or in use has a column `mac`: an HMAC over the table's name and the
row's other values, under a key that derives from the run's secret. A row whose check fails is refused where it is
read. A missing row, or one that an index hides, has no check: unknown names are searched for in the slices
(`deletion/lookup.py`), and the audit compares tables with their indexes and with the slices.

The key is destroyed with the run's secret; without it nothing is checked.
"""

from __future__ import annotations

import hmac
import itertools
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Row, Select, Table, bindparam, delete, func, insert, select
from sqlalchemy.dialects import sqlite

from s3t.core import Place
from s3t.errors import IntegrityError
from s3t.ledger import schema
from s3t.ledger.schema import MAC, of_artifact, of_place, order_of, place_at, row_of, table_of, value_of

CHANGES = "changes"
"""Counter, raised whenever anything of a snapshot changes."""
COMMITS = "commits"
"""Counter, raised by every stage that comes into use."""
REMOVALS = "removals"
"""Counter, raised whenever stages go out of use, or their rows change in another way."""
CONFIRMED = "confirmed"
"""Counter, raised by transactions that have nothing else to write and must wait for the disk."""
WALKED = "walked"
"""Newest generation for which erasure went through every place."""
LEARNED = "learned"
"""Newest addition that models are to be trained on."""
LATE = "late"
"""Counter of transactions in which somebody asked for the deletion of what had left already."""
TAUGHT = "taught"
"""Newest addition of which models, once, were trained with nothing missing."""
PUT_LATE = -1
"""In place of the deletion that condemned an artifact: it was put after that, and perhaps after it was removed."""
OVERDUE = "overdue"
"""Records that were too old to stay, and too many to go by themselves, when this was last looked at."""
KEY_DESTROYED = "key_destroyed_at"
"""Time at which the run's secret was destroyed, in whole seconds since the epoch."""
LOST_SESSIONS = "lost_sessions"
"""Number of sessions that have counted as dead: their lease ran out, or their process was gone."""

# SQLite takes 32,766 variables in a statement, PostgreSQL 65,535.
_CHUNK = 10_000
_MAC_BYTES = 16
_NOTES = select(schema.notes)
"""Made once: every answer asks it."""
T = TypeVar("T")


class Rows:
    """Reads and writes rows, within one transaction; without a key rows are not checked.

    Rows are chosen by conditions, and by columns that are equal to a value; None: null.
    """

    def __init__(self, connection: Connection, key: bytes | None = None) -> None:
        self.connection = connection
        self._key = key
        self._changed_notes: set[str] = set()

    def now(self) -> float:
        """Seconds since the epoch; by the clock of the PostgreSQL server, if several hosts share one."""
        if self.connection.dialect.name == "postgresql":
            return float(self.connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
        return time.time()

    def read(self, table: Table, *conditions: Any, **equal: Any) -> list[Row[Any]]:
        """Whole rows of a table."""
        statement = select(table).where(*_where(table, conditions, equal))
        return self.checked(table, self.connection.execute(statement))

    def read_in(self, table: Table, column: Any, values: Collection[Any]) -> list[Row[Any]]:
        """Whole rows whose column is among any number of values."""
        return self.checked(table, self.select_in(select(table), column, values))

    def select_in(self, statement: Select[Any], column: Any, values: Collection[Any]) -> Iterator[Row[Any]]:
        for chunk in chunks(values):
            yield from self.connection.execute(statement.where(column.in_(chunk)))

    def all(self, kind: type[T], *conditions: Any, **equal: Any) -> list[T]:
        """Values of a class that has a table, in the table's order."""
        table = table_of[kind]
        statement = select(table).where(*_where(table, conditions, equal)).order_by(*order_of[kind])
        with _odd_values(table):
            return [value_of(kind, row) for row in self.checked(table, self.connection.execute(statement))]

    def find(self, kind: type[T], *conditions: Any, **equal: Any) -> T | None:
        """The first of those values."""
        return next(iter(self.all(kind, *conditions, **equal)), None)

    def unchecked(self, *columns: Column[Any] | Table) -> list[Row[Any]]:
        """Every row, damaged ones included; raises IntegrityError if they cannot be read."""
        first = columns[0]
        with _odd_values(first if isinstance(first, Table) else first.table):
            return list(self.connection.execute(select(*columns)))

    def checked(self, table: Table, rows: Iterable[Row[Any]]) -> list[Row[Any]]:
        """Rows that begin with all columns of a table; raises IntegrityError if one is not as it was written."""
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
        return [row for row in rows if row[count] != self._mac(table, tuple(row[:count]))]

    def insert(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        for chunk in chunks(self._sealed(table, rows)):
            self.connection.execute(insert(table), chunk)

    def add(self, value: Any) -> None:
        """Insert a value of a class that has a table."""
        self.insert(table_of[type(value)], [row_of(value)])

    def upsert(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert whole rows, or replace those with the same primary key."""
        if self.connection.dialect.name == "sqlite":
            statement: Any = sqlite.insert(table)
        else:
            from sqlalchemy.dialects import postgresql  # here: most runs have SQLite

            statement = postgresql.insert(table)
        keys = [column.name for column in table.primary_key]
        others = {column.name: statement.excluded[column.name] for column in table.c if column.name not in keys}
        statement = statement.on_conflict_do_update(index_elements=keys, set_=others)
        for chunk in chunks(self._sealed(table, rows)):
            self.connection.execute(statement, chunk)

    def amend(self, table: Table, *conditions: Any, to: Mapping[str, Any], **equal: Any) -> int:
        """Change values of some rows, but not their primary keys; returns the number of rows."""
        rows = self.read(table, *conditions, **equal)
        self.upsert(table, ({**row._mapping, **to} for row in rows))
        return len(rows)

    def delete(self, table: Table, *conditions: Any, **equal: Any) -> None:
        self.connection.execute(delete(table).where(*_where(table, conditions, equal)))

    def remove(self, table: Table, keys: Iterable[Mapping[str, Any]], *conditions: Any) -> None:
        """Remove the rows with any of some keys, all of the same columns, that meet the conditions."""
        for chunk in chunks(keys):
            statement = delete(table).where(*conditions, *(table.c[name] == bindparam(name) for name in chunk[0]))
            self.connection.execute(statement, chunk)

    def discard(self, values: Iterable[Any]) -> None:
        for value in values:
            table, row = table_of[type(value)], row_of(value)
            self.delete(table, **{column.name: row[column.name] for column in table.primary_key})

    def note(self, name: str) -> int:
        """A named number of the ledger; 0 before it was first written."""
        return self._notes.get(name, 0)

    @cached_property
    def _notes(self) -> dict[str, int]:
        """Every named number, read once in a transaction."""
        return {row.name: int(row.value) for row in self.checked(schema.notes, self.connection.execute(_NOTES))}

    def raise_note(self, name: str) -> None:
        self.write_note(name, to=self.note(name) + 1)

    def write_note(self, name: str, *, to: int) -> None:
        """Give a named number a value, which is written at the end of the transaction."""
        self._notes[name] = to
        self._changed_notes.add(name)

    def write_notes(self) -> None:
        self.upsert(schema.notes, ({"name": name, "value": self._notes[name]} for name in sorted(self._changed_notes)))
        self._changed_notes.clear()

    def note_change(self) -> None:
        """Tell all readers that earlier snapshots are outdated."""
        self.raise_note(CHANGES)

    def condemn(
        self,
        *,
        artifacts: Collection[tuple[int, str]] = (),
        versions: Collection[tuple[Place, str]] = (),
        generation: int = 0,
    ) -> None:
        """Put artifacts, (shard, key), and versions of slices into the queue of what must not stay in the store.

        Current versions are left out. `generation` is the deletion that condemned them. With 0 or `PUT_LATE` they may
        hold any deleted record: no unfinished deletion then counts as erased before every place was gone through again.
        """
        current = {(place_at(row), row.digest) for row in self.read(schema.slices)} if versions else set()
        rows = [{**of_artifact(shard), "name": key, "generation": generation} for shard, key in artifacts]
        for place, digest in {*versions} - current:
            rows.append({**of_place(place), "name": digest, "generation": generation})
        if not rows:
            return
        self.upsert(schema.condemned, rows)
        if generation <= 0:
            log = schema.generations
            oldest = select(func.min(log.c.generation)).where(log.c.erased_at.is_(None))
            self.walk_again(self.connection.execute(oldest).scalar_one())
        self.note_change()

    def walk_again(self, generation: int | None) -> None:
        """Note that erasure has to go through all places (again) for a generation and those after it."""
        if generation is not None and generation <= self.note(WALKED):
            self.write_note(WALKED, to=generation - 1)

    def _sealed(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        names = [column.name for column in table.c if column.name != MAC]
        for row in rows:
            whole = {name: row.get(name) for name in names}
            if MAC in table.c:
                whole[MAC] = None if self._key is None else self._mac(table, tuple(whole.values()))
            yield whole

    def _mac(self, table: Table, values: tuple[Any, ...]) -> bytes:
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
def _odd_values(table: Any) -> Iterator[None]:
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


def _where(table: Table, conditions: Iterable[Any], equal: Mapping[str, Any]) -> list[Any]:
    return [*conditions, *(table.c[name] == value for name, value in equal.items())]


def chunks(rows: Iterable[T]) -> Iterator[list[T]]:
    """Rows in chunks that fit into a statement."""
    each = iter(rows)
    while chunk := list(itertools.islice(each, _CHUNK)):
        yield chunk
