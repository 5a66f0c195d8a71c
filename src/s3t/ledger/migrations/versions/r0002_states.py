"""States and times of a deletion, idempotent requests, sessions and claims, copies outside the run."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add them. What was erased was effective, too; what was not is finished by the next opening of the run."""
    op.add_column("generations", sa.Column("effective_at", sa.Float))
    op.add_column("generations", sa.Column("mark", sa.String(16)))
    op.add_column("generations", sa.Column("request", sa.LargeBinary(32)))
    op.create_index("generations_by_request", "generations", ["request"])
    op.create_index("generations_by_erasure", "generations", ["erased_at"])
    op.execute("UPDATE generations SET effective_at = erased_at")
    op.add_column("slices", sa.Column("next_digest", sa.String(64)))
    op.create_table(
        "requests",
        sa.Column("key", sa.LargeBinary(32), primary_key=True),
        sa.Column("content", sa.LargeBinary(32), nullable=False),
        sa.Column("names", sa.Integer, nullable=False),
        sa.Column("deleted", sa.Integer, nullable=False),
    )
    op.create_index("deleted_by_generation", "deleted", ["generation"])
    for name in ("erasing_records", "erasing_artifacts"):
        op.add_column(name, sa.Column("generation", sa.Integer, nullable=False, server_default="0"))
        op.execute(f"UPDATE {name} SET generation = (SELECT MAX(generation) FROM generations)")  # noqa: S608
    op.create_index("erasing_records_by_slice", "erasing_records", ["shard", "slice"])
    op.create_table(
        "sessions",
        sa.Column("session", sa.String(32), primary_key=True),
        sa.Column("host", sa.String, nullable=False),
        sa.Column("process", sa.Integer, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("seen_at", sa.Float, nullable=False),
    )
    op.create_table(
        "claims",
        sa.Column("shard", sa.Integer, primary_key=True),
        sa.Column("prefix", sa.String, primary_key=True),
        sa.Column("session", sa.String(32), nullable=False),
    )
    op.create_table(
        "copies",
        sa.Column("path", sa.String, primary_key=True),
        sa.Column("cache", sa.String, nullable=False),
        sa.Column("host", sa.String, nullable=False),
    )
    op.create_table(
        "notes",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
