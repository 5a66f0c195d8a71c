"""Requests for deletion that are held for approval, and the rates by which they are. Older ledgers have none."""

from alembic import op
from sqlalchemy import Column, Float, Integer, LargeBinary, String

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "held",
        Column("id", String(16), primary_key=True),
        Column("asked_by", String, nullable=False),
        Column("asked_at", Float, nullable=False),
        Column("why", String, nullable=False),
        Column("names", Integer, nullable=False),
        Column("records", Integer, nullable=False),
        Column("request", LargeBinary(32)),
        Column("content", LargeBinary(32), nullable=False),
        Column("decided_at", Float),
        Column("decided_by", String),
        Column("approved", Integer),
        Column("reason", String),
        Column("done_at", Float),
        Column("generation", Integer),
        Column("mac", LargeBinary(16)),
    )
    op.create_table(
        "held_names",
        Column("held", String(16), primary_key=True),
        Column("token", LargeBinary(32), primary_key=True),
        Column("is_subject", Integer, primary_key=True),
        Column("mac", LargeBinary(16)),
    )
    op.create_table(
        "admitted",
        Column("mark", String(16), primary_key=True),
        Column("shard", Integer, primary_key=True),
        Column("asked_by", String, nullable=False),
        Column("asked_at", Float, nullable=False),
        Column("records", Integer, nullable=False),
        Column("mac", LargeBinary(16)),
    )
