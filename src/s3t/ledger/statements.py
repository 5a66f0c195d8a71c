"""Names of notes, conditions and texts of rows that the ledger's statements share."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from sqlalchemy import Connection, Table, func, select

from s3t.core import Place, Stage

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
KEY_DESTROYED = "key_destroyed_at"
"""Time at which the run's secret was destroyed, in whole seconds since the epoch."""

LOST_SESSIONS = "lost_sessions"
"""Number of sessions that have counted as dead: their lease ran out, or their process was gone."""

_PROTOTYPES = "prototypes:"
# SQLite takes 32,766 variables in a statement, PostgreSQL 65,535.
_CHUNK = 10_000


def now(connection: Connection) -> float:
    """Seconds since the epoch; by the clock of the PostgreSQL server, if several hosts share one."""
    if connection.dialect.name == "postgresql":
        return float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
    return time.time()


def select_in(connection: Connection, statement: Any, column: Any, values: Collection[Any]) -> list[Any]:
    """Rows of a statement whose column is among any number of values."""
    return [row for chunk in chunks(list(values)) for row in connection.execute(statement.where(column.in_(chunk)))]


def at(table: Table, place: Place) -> tuple[Any, Any]:
    """The condition that a row is a slice's."""
    return table.c.shard == place.shard, table.c.slice == place.slice


def of_stage(table: Table, stage: Stage) -> tuple[Any, Any]:
    """The condition that a row is a stage's."""
    return table.c.shard == stage.shard, table.c.prefix == prefix_text(stage)


def prefix_text(stage: Stage) -> str:
    """A stage's prefix as it is stored: `2,0,1`; that of prototypes `prototypes:2`."""
    text = ",".join(map(str, stage.prefix))
    return text if stage.kind == "model" else f"{_PROTOTYPES}{text}"


def stage_at(shard: int, prefix: str) -> Stage:
    """The stage of a row."""
    text = prefix.removeprefix(_PROTOTYPES)
    return Stage(shard, tuple(map(int, text.split(","))), "model" if text == prefix else "prototypes")


def chunks_of_any(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """`chunks` for rows that are not in memory all at once."""
    each = iter(rows)
    while chunk := list(itertools.islice(each, _CHUNK)):
        yield chunk


def chunks(rows: list[Any]) -> Iterator[list[Any]]:
    """Rows in chunks that fit into a statement."""
    for start in range(0, len(rows), _CHUNK):
        yield rows[start : start + _CHUNK]
