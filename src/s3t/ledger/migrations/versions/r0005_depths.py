"""Changes of shards' depths over time. Those of older ledgers are not known."""

from alembic import op
from sqlalchemy import Column, Float, Integer

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "depths",
        Column("changed_at", Float, primary_key=True),
        Column("shard", Integer, primary_key=True),
        Column("depth_before", Integer, nullable=False),
        Column("depth", Integer, nullable=False),
    )
