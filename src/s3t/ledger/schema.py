"""The ledger's tables, and SQLite set up so that a commit is on the disk when it returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Engine,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    event,
)
from sqlalchemy.engine import URL

BUSY_TIMEOUT_SECONDS = 60

metadata = MetaData()

generations = Table(
    "generations",
    metadata,
    Column("generation", Integer, primary_key=True),
    Column("accepted_at", Float, nullable=False),  # seconds since the epoch, UTC
    Column("erased_at", Float),  # null until no byte of the records is left
    Column("records", Integer, nullable=False),
)
"""One row a deletion; generation 0 is the row written at init."""

slices = Table(
    "slices",
    metadata,
    Column("shard", Integer, primary_key=True),
    Column("slice", Integer, primary_key=True),
    Column("records", Integer, nullable=False),
    Column("losses", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
)

records = Table(
    "records",
    metadata,
    Column("token", LargeBinary(32), primary_key=True),
    Column("subject", LargeBinary(32)),
    Column("shard", Integer, nullable=False),
    Column("slice", Integer, nullable=False),
    Column("copies", Integer, nullable=False),
    ForeignKeyConstraint(["shard", "slice"], ["slices.shard", "slices.slice"]),
    Index("records_by_subject", "subject"),
)
"""Where every present record is, by token. A deleted record's row goes with it."""

deleted = Table(
    "deleted",
    metadata,
    Column("token", LargeBinary(32), primary_key=True),
    Column("generation", Integer, nullable=False),
)
"""Tokens of deleted records, and of subjects that have no record left: so that a second request is answered."""

erasing_records = Table(
    "erasing_records",
    metadata,
    Column("token", LargeBinary(32), primary_key=True),
    Column("shard", Integer, nullable=False),
    Column("slice", Integer, nullable=False),
)
"""Accepted, but still in a slice's file. Empty but for the moments after an acceptance, or after a crash."""

erasing_artifacts = Table(
    "erasing_artifacts",
    metadata,
    Column("shard", Integer, primary_key=True),
    Column("key", String(64), primary_key=True),
)
"""Tainted, but still in the store."""

stages = Table(
    "stages",
    metadata,
    Column("shard", Integer, primary_key=True),
    Column("prefix", String, primary_key=True),  # slice numbers, comma-separated
    Column("key", String(64), nullable=False),
)
"""Committed, untainted stages."""


def sqlite_engine(path: Path) -> Engine:
    """An engine on a SQLite file: WAL, synchronous=FULL, secure_delete; write transactions lock at their start."""
    engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": BUSY_TIMEOUT_SECONDS})

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, below
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        writing = connection.get_execution_options().get("s3t_writing", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine
