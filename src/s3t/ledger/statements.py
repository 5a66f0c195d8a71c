"""What all of the ledger's statements have in common."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite

from s3t.ledger import schema
from s3t.partition import Place
from s3t.stages import Stage

CHANGES = "changes"
"""One more whenever anything of a snapshot changes."""
CONFIRMED = "confirmed"
"""How often somebody made sure that all is on the disk."""
ERASURES = "erasures"
"""How often slices were rewritten."""
WALKED = "walked"
"""The newest generation for which every place was gone through."""
KEY_DESTROYED = "key_destroyed_at"
"""When the run's secret was destroyed (whole seconds since the epoch)."""

# SQLite takes 32,766 variables in a statement, PostgreSQL 65,535.
_CHUNK = 10_000


def now(connection: Connection) -> float:
    """Seconds since the epoch: the database server's, where several hosts share it."""
    if connection.dialect.name == "postgresql":
        return float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
    return time.time()


def generation_now(connection: Connection) -> int:
    """The present generation."""
    return int(connection.execute(select(func.max(schema.generations.c.generation))).scalar_one())


def note(connection: Connection, name: str) -> int:
    """A number that the ledger keeps by name; 0 before it was first written."""
    value = connection.execute(select(schema.notes.c.value).where(schema.notes.c.name == name)).scalar_one_or_none()
    return 0 if value is None else int(value)


def write_note(connection: Connection, name: str, *, to: int) -> None:
    """Write such a number."""
    upsert(connection, schema.notes, [{"name": name, "value": to}])


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows; one whose primary key is there already is replaced."""
    if not rows:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table)
    keys = [column.name for column in table.primary_key]
    others = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    if others:
        statement = statement.on_conflict_do_update(index_elements=keys, set_=others)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=keys)
    connection.execute(statement, [dict(row) for row in rows])


def select_in(connection: Connection, statement: Any, column: Any, values: Collection[Any]) -> list[Any]:
    """Rows of a statement whose column is among values, however many they are."""
    return [row for chunk in chunks(list(values)) for row in connection.execute(statement.where(column.in_(chunk)))]


def at(table: Table, place: Place) -> tuple[Any, Any]:
    """The condition that a row is a slice's."""
    return table.c.shard == place.shard, table.c.slice == place.slice


_PROTOTYPES = "prototypes:"


def of_stage(table: Table, stage: Stage) -> tuple[Any, Any]:
    """The condition that a row is a stage's."""
    return table.c.shard == stage.shard, table.c.prefix == prefix_text(stage)


def prefix_text(stage: Stage) -> str:
    """A stage's prefix as it is stored: 2,0,1; and of prototypes prototypes:2."""
    text = ",".join(map(str, stage.prefix))
    return text if stage.kind == "model" else f"{_PROTOTYPES}{text}"


def stage_at(shard: int, prefix: str) -> Stage:
    """The stage of a row."""
    text = prefix.removeprefix(_PROTOTYPES)
    return Stage(shard, tuple(map(int, text.split(","))), "model" if text == prefix else "prototypes")


def chunks(rows: list[Any]) -> Iterator[list[Any]]:
    """Rows in pieces that a statement can take."""
    for start in range(0, len(rows), _CHUNK):
        yield rows[start : start + _CHUNK]
