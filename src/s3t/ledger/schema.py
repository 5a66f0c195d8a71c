"""The ledger's tables."""

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
    """The last column: the row's check (`rows.py`); null if it was written after the run's secret was destroyed."""
    return Column("mac", LargeBinary(16))


generations = Table(
    "generations",
    metadata,
    Column("generation", Integer, primary_key=True),
    Column("received_at", Float, nullable=False),  # times are seconds since the epoch, UTC
    Column("accepted_at", Float),  # null until a later transaction notes that this one is durable
    Column("effective_at", Float),  # null until no answer is on its way that uses the records
    Column("erased_at", Float),  # null until no byte of the records is left
    Column("records", Integer, nullable=False),
    # Random: two deletions with one number, in a run and in a copy, are told apart.
    Column("mark", String(16), nullable=False),
    Column("request", LargeBinary(32)),  # the keyed hash of its idempotency key, if it had one
    _mac(),
    Index("generations_by_request", "request"),
    Index("generations_by_erasure", "erased_at"),
)
"""Accepted deletions; generation 0 is written at `init`."""

requests = Table(
    "requests",
    metadata,
    Column("key", LargeBinary(32), primary_key=True),
    Column("content", LargeBinary(32), nullable=False),  # keyed hash of all requested names
    Column("names", Integer, nullable=False),  # accepted so far, in the order of their tokens
    Column("deleted", Integer, nullable=False),  # records deleted by those names
    _mac(),
)
"""Requests with an idempotency key; a second request with the same key repeats nothing."""

slices = Table(
    "slices",
    metadata,
    Column("shard", Integer, primary_key=True),
    Column("slice", Integer, primary_key=True),
    Column("records", Integer, nullable=False),
    Column("digest", String(64), nullable=False),  # of its current version
    _mac(),
)
"""Slices, and how many records each holds."""

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
"""Present records and their slices, by token."""

deleted = Table(
    "deleted",
    metadata,
    Column("token", LargeBinary(32), primary_key=True),
    Column("generation", Integer, nullable=False),
    _mac(),
    Index("deleted_by_generation", "generation"),
)
"""Tokens of deleted records, and of subjects without a record left; a second request is answered from them."""

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
"""Deleted records that are still in the current version of their slice."""

condemned = Table(
    "condemned",
    metadata,
    Column("shard", Integer, primary_key=True),
    Column("name", String(64), primary_key=True),  # an artifact's key, or the digest of a slice's version
    Column("slice", Integer),  # null for an artifact
    Column("generation", Integer, nullable=False),  # of the deletion that condemned it; 0 if none did
    _mac(),
)
"""Queue of artifacts and versions of slices to be erased from the store.

Artifacts are tainted, or were announced and never committed. Versions are superseded, or put and not current yet."""

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

durations = Table(
    "durations",
    metadata,
    Column("shard", Integer, primary_key=True),
    Column("prefix", String, primary_key=True),
    Column("seconds", Float, nullable=False),
    # A stage's time follows from its records, so the database removes it with the stage, whatever removes that.
    ForeignKeyConstraint(
        ["shard", "prefix"], ["stages.shard", "stages.prefix"], onupdate="CASCADE", ondelete="CASCADE"
    ),
)
"""Seconds of training of committed stages, for forecasts. Nothing is decided by them, so they have no check."""

sessions = Table(
    "sessions",
    metadata,
    Column("session", String(32), primary_key=True),
    Column("host", String, nullable=False),
    Column("process", Integer, nullable=False),
    Column("generation", Integer, nullable=False),  # it uses nothing older
    Column("seen_at", Float, nullable=False),
    Column("answers", Integer),  # none of its answers that is older leaves any more; null: as `generation`
)
"""Open runs that predict or train, in any process on any host; deletions wait for them."""

claims = Table(
    "claims",
    metadata,
    Column("shard", Integer, primary_key=True),
    Column("prefix", String, primary_key=True),
    Column("session", String(32), nullable=False),
    Column("key", String(64)),  # of the artifact that the session puts; null before it is announced
)
"""Stages that a session is training."""

clones = Table(
    "clones",
    metadata,
    Column("path", String, primary_key=True),
    Column("host", String, nullable=False),
    _mac(),
)
"""Clones that are being made, whose folders hold records."""

exports = Table(
    "exports",
    metadata,
    Column("mark", String, primary_key=True),  # random, with the machine and the process that announced it
    Column("name", String, nullable=False),  # by its content; "" until that is written
    Column("host", String, nullable=False),
    Column("output", String, nullable=False),  # folder in which its own folder lies
    Column("shard", Integer, nullable=False),
    Column("prefix", String, nullable=False),  # slice numbers, comma-separated
    Column("keys", String, nullable=False),  # of every stage of the chain, comma-separated
    Column("digests", String, nullable=False),  # of the prefix's slices, comma-separated
    Column("files", String, nullable=False),  # JSON: name, size and SHA-256 of each
    Column("announced_at", Float, nullable=False),
    Column("made_at", Float),  # null until its stages were found alive after it was written
    Column("withdrawn_at", Float),  # null until no copy of it is left, as the operator or a command says
    _mac(),
    Index("exports_by_name", "name"),
)
"""Copies of chains for other programs, from before the first byte is written. Rows stay when they are withdrawn."""

withdrawals = Table(
    "withdrawals",
    metadata,
    Column("mark", String, primary_key=True),
    Column("generation", Integer, primary_key=True),
    _mac(),
)
"""Exports with a record of a deletion in them. The deletion is not erased before they are withdrawn."""

tokens = Table(
    "tokens",
    metadata,
    Column("name", String, primary_key=True),
    Column("digest", LargeBinary(32), nullable=False, unique=True),  # SHA-256 of the token, which is random
    Column("scopes", String, nullable=False),  # comma-separated
    Column("per_minute", Integer),  # requests; null: any number
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),  # null: never
    Column("revoked_at", Float),  # null until it is
    _mac(),
)
"""Bearer tokens of callers of a run's servers, and what each may do."""

repairs = Table(
    "repairs",
    metadata,
    Column("id", String(16), primary_key=True),  # random
    Column("asked_by", String, nullable=False),  # name of a token; "policy": nobody asked
    Column("hours", Float),  # begins no stage after so many; null: no bound
    Column("host", String, nullable=False),
    Column("process", Integer, nullable=False),  # the server's, then the repair's own
    Column("asked_at", Float, nullable=False),
    Column("seen_at", Float, nullable=False),
    Column("ended_at", Float),  # null until it has ended by itself
    Column("stages", Integer, nullable=False),  # to train
    Column("trained", Integer, nullable=False),  # of them
    Column("share", Float, nullable=False),  # of the work that is done, 0 to 1
    Column("seconds", Float, nullable=False),  # of work, in all its processes
    Column("attempts", Integer, nullable=False),  # processes that worked on it
    Column("error", String),  # kind of error that ended it
)
"""Repairs by servers, for those who look on. Nothing is decided by them but who repairs, so they have no check."""

held = Table(
    "held",
    metadata,
    Column("id", String(16), primary_key=True),  # random
    Column("asked_by", String, nullable=False),  # name of a token
    Column("asked_at", Float, nullable=False),
    Column("why", String, nullable=False),  # numbers of records and of a shard
    Column("names", Integer, nullable=False),
    Column("records", Integer, nullable=False),  # that it would have taken then
    Column("request", LargeBinary(32)),  # as in `generations`
    Column("content", LargeBinary(32), nullable=False),  # as in `requests`
    Column("decided_at", Float),  # null until somebody does
    Column("decided_by", String),
    Column("approved", Integer),  # 1 or 0
    Column("reason", String),  # of a refusal, in the words of who refused
    Column("done_at", Float),  # null until the deletion was accepted, or found to take nothing
    Column("generation", Integer),  # null if it took nothing
    _mac(),
)
"""Requests for deletion that wait, or waited, until an operator approves or refuses them."""

held_names = Table(
    "held_names",
    metadata,
    Column("held", String(16), primary_key=True),
    Column("token", LargeBinary(32), primary_key=True),
    Column("is_subject", Integer, primary_key=True),
    _mac(),
)
"""Names of held requests, until they are carried out or refused."""

admitted = Table(
    "admitted",
    metadata,
    Column("mark", String(16), primary_key=True),  # random, of the request
    Column("shard", Integer, primary_key=True),
    Column("asked_by", String, nullable=False),
    Column("asked_at", Float, nullable=False),
    Column("records", Integer, nullable=False),
    _mac(),
)
"""Records that requests to servers took from each shard within the last hour: what rates are computed from."""

depths = Table(
    "depths",
    metadata,
    Column("changed_at", Float, primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("depth_before", Integer, nullable=False),  # slices
    Column("depth", Integer, nullable=False),
)
"""Changes of shards' depths, for pictures; the newest of them. Nothing is decided by them, so they have no check."""

notes = Table(
    "notes",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", BigInteger, nullable=False),
    _mac(),
)
"""Numbers by name (`statements.py`)."""
