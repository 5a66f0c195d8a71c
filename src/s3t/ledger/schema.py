"""The ledger's tables, as `migrations/` makes them."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
)

metadata = MetaData()


def _mac() -> Column[bytes]:
    """The row's check (`rows.py`); null in rows written after the run's secret was destroyed. The last column."""
    return Column("mac", LargeBinary(16))


generations = Table(
    "generations",
    metadata,
    Column("generation", Integer, primary_key=True),
    Column("received_at", Float, nullable=False),  # times are seconds since the epoch, UTC
    Column("accepted_at", Float),  # null until a later transaction has noted that this one is durable
    Column("effective_at", Float),  # null until every server has moved to it
    Column("erased_at", Float),  # null until no byte of the records is left
    Column("records", Integer, nullable=False),
    # Random: two deletions with one number, in a run and in a copy, are told apart.
    Column("mark", String(16), nullable=False),
    Column("request", LargeBinary(32)),  # the keyed hash of its idempotency key, if it had one
    _mac(),
    Index("generations_by_request", "request"),
    Index("generations_by_erasure", "erased_at"),
)
"""One row an accepted deletion; generation 0 is the row written at init."""

requests = Table(
    "requests",
    metadata,
    Column("key", LargeBinary(32), primary_key=True),
    Column("content", LargeBinary(32), nullable=False),  # keyed hash of all names asked for
    Column("names", Integer, nullable=False),  # accepted so far, in the order of their tokens
    Column("deleted", Integer, nullable=False),  # records, by the names accepted so far
    _mac(),
)
"""Requests that came with an idempotency key: a second one with the same key does nothing more."""

slices = Table(
    "slices",
    metadata,
    Column("shard", Integer, primary_key=True),
    Column("slice", Integer, primary_key=True),
    Column("records", Integer, nullable=False),
    Column("losses", Integer, nullable=False),
    Column("digest", String(64), nullable=False),  # of its current version
    _mac(),
)

records = Table(
    "records",
    metadata,
    Column("token", LargeBinary(32), primary_key=True),
    Column("subject", LargeBinary(32)),
    Column("shard", Integer, nullable=False),
    Column("slice", Integer, nullable=False),
    Column("copies", Integer, nullable=False),
    _mac(),
    ForeignKeyConstraint(["shard", "slice"], ["slices.shard", "slices.slice"]),
    Index("records_by_subject", "subject"),
)
"""Where every present record is, by token. A deleted record's row goes with it."""

deleted = Table(
    "deleted",
    metadata,
    Column("token", LargeBinary(32), primary_key=True),
    Column("generation", Integer, nullable=False),
    _mac(),
    Index("deleted_by_generation", "generation"),
)
"""Tokens of deleted records, and of subjects that have no record left: so that a second request is answered."""

erasing_records = Table(
    "erasing_records",
    metadata,
    Column("token", LargeBinary(32), primary_key=True),
    Column("shard", Integer, nullable=False),
    Column("slice", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    _mac(),
    Index("erasing_records_by_slice", "shard", "slice"),
)
"""Accepted, but still in the current version of a slice: for moments, or while the next version may wait."""

erasing_artifacts = Table(
    "erasing_artifacts",
    metadata,
    Column("shard", Integer, primary_key=True),
    Column("key", String(64), primary_key=True),
    Column("generation", Integer, nullable=False),
    _mac(),
)
"""Tainted, or put and never committed, and still in the store. The latter have generation 0: they may hold anything."""

erasing_versions = Table(
    "erasing_versions",
    metadata,
    Column("shard", Integer, primary_key=True),
    Column("slice", Integer, primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("generation", Integer, nullable=False),
    _mac(),
)
"""Condemned versions of slices that may still be in the store: such as deletions have superseded (of the first one's
generation), and such as are being put and not current yet (of generation 0: their erasure waits for no deletion)."""

stages = Table(
    "stages",
    metadata,
    Column("shard", Integer, primary_key=True),
    Column("prefix", String, primary_key=True),  # slice numbers, comma-separated
    Column("key", String(64), nullable=False),
    Column("manifest", String(64), nullable=False),  # SHA-256 of the manifest
    _mac(),
)
"""Committed, untainted stages."""

sessions = Table(
    "sessions",
    metadata,
    Column("session", String(32), primary_key=True),
    Column("host", String, nullable=False),
    Column("process", Integer, nullable=False),
    Column("generation", Integer, nullable=False),  # nothing older is in use there
    Column("seen_at", Float, nullable=False),
)
"""Open runs that predict or train, in any process on any host: the servers that a deletion waits for."""

claims = Table(
    "claims",
    metadata,
    Column("shard", Integer, primary_key=True),
    Column("prefix", String, primary_key=True),
    Column("session", String(32), nullable=False),
    Column("key", String(64)),  # of the artifact that the session is about to put; null before that
)
"""Stages that a session is training."""

copies = Table(
    "copies",
    metadata,
    Column("path", String, primary_key=True),
    Column("cache", String, nullable=False),
    Column("host", String, nullable=False),
    _mac(),
)
"""Files outside the run that hold records, as far as init knew of any: in which cache they lie, and on which host."""

notes = Table(
    "notes",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", BigInteger, nullable=False),
    _mac(),
)
"""Numbers by name (`statements.py`)."""
