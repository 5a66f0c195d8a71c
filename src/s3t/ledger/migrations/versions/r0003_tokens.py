"""Bearer tokens of callers of a run's servers. Older ledgers have none."""

from alembic import op
from sqlalchemy import Column, Float, Integer, LargeBinary, String

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the table."""
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
