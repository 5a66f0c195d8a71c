"""Bearer tokens of callers of a run's servers, and repairs by servers. Older ledgers have none."""

from alembic import op
from sqlalchemy import Column, Float, Integer, LargeBinary, String

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "tokens",
        Column("name", String, primary_key=True),
        Column("digest", LargeBinary(32), nullable=False, unique=True),
        Column("scopes", String, nullable=False),
        Column("per_minute", Integer),
        Column("created_at", Float, nullable=False),
        Column("expires_at", Float),
        Column("revoked_at", Float),
        Column("mac", LargeBinary(16)),
    )
    op.create_table(
        "repairs",
        Column("id", String(16), primary_key=True),
        Column("asked_by", String, nullable=False),
        Column("hours", Float),
        Column("host", String, nullable=False),
        Column("process", Integer, nullable=False),
        Column("asked_at", Float, nullable=False),
        Column("seen_at", Float, nullable=False),
        Column("ended_at", Float),
        Column("stages", Integer, nullable=False),
        Column("trained", Integer, nullable=False),
        Column("share", Float, nullable=False),
        Column("seconds", Float, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("error", String),
    )
