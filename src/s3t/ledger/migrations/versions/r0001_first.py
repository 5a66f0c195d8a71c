"""The ledger's tables; what each holds is told in `schema.py`."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _table(name: str, *items: sa.schema.SchemaItem) -> None:
    """A table whose rows have a check, as their last column."""
    columns = [item for item in items if isinstance(item, sa.Column)]
    others = [item for item in items if not isinstance(item, sa.Column)]
    op.create_table(name, *columns, sa.Column("mac", sa.LargeBinary(16)), *others)


def upgrade() -> None:
    """Make the tables."""
    _make_history()
    _make_records()
    _make_stages()
    _table("copies", sa.Column("path", sa.String, primary_key=True), _text("cache"), _text("host"))
    _table(
        "notes",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )


def _text(name: str, length: int | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.String(length), nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _make_history() -> None:
    _table(
        "generations",
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("received_at", sa.Float, nullable=False),
        sa.Column("accepted_at", sa.Float),
        sa.Column("effective_at", sa.Float),
        sa.Column("erased_at", sa.Float),
        _number("records"),
        _text("mark", 16),
        sa.Column("request", sa.LargeBinary(32)),
    )
    op.create_index("generations_by_request", "generations", ["request"])
    op.create_index("generations_by_erasure", "generations", ["erased_at"])
    _table(
        "requests",
        sa.Column("key", sa.LargeBinary(32), primary_key=True),
        sa.Column("content", sa.LargeBinary(32), nullable=False),
        _number("names"),
        _number("deleted"),
    )


def _make_records() -> None:
    _table(
        "slices",
        sa.Column("shard", sa.Integer, primary_key=True),
        sa.Column("slice", sa.Integer, primary_key=True),
        _number("records"),
        _number("losses"),
        _text("digest", 64),
    )
    _table(
        "records",
        sa.Column("token", sa.LargeBinary(32), primary_key=True),
        sa.Column("subject", sa.LargeBinary(32)),
        _number("shard"),
        _number("slice"),
        _number("copies"),
        sa.ForeignKeyConstraint(["shard", "slice"], ["slices.shard", "slices.slice"]),
    )
    op.create_index("records_by_subject", "records", ["subject"])
    _table("deleted", sa.Column("token", sa.LargeBinary(32), primary_key=True), _number("generation"))
    op.create_index("deleted_by_generation", "deleted", ["generation"])
    _table(
        "erasing_records",
        sa.Column("token", sa.LargeBinary(32), primary_key=True),
        _number("shard"),
        _number("slice"),
        _number("generation"),
    )
    op.create_index("erasing_records_by_slice", "erasing_records", ["shard", "slice"])
    _table(
        "erasing_versions",
        sa.Column("shard", sa.Integer, primary_key=True),
        sa.Column("slice", sa.Integer, primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
        _number("generation"),
    )


def _make_stages() -> None:
    _table(
        "erasing_artifacts",
        sa.Column("shard", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(64), primary_key=True),
        _number("generation"),
    )
    _table(
        "stages",
        sa.Column("shard", sa.Integer, primary_key=True),
        sa.Column("prefix", sa.String, primary_key=True),
        _text("key", 64),
        _text("manifest", 64),
    )
    op.create_table(
        "sessions",
        sa.Column("session", sa.String(32), primary_key=True),
        _text("host"),
        _number("process"),
        _number("generation"),
        sa.Column("seen_at", sa.Float, nullable=False),
    )
    op.create_table(
        "claims",
        sa.Column("shard", sa.Integer, primary_key=True),
        sa.Column("prefix", sa.String, primary_key=True),
        _text("session", 32),
        sa.Column("key", sa.String(64)),
    )
