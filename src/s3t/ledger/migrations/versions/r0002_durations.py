"""Seconds of training of each stage, removed with it. Stages of older ledgers have none."""

from alembic import op
from sqlalchemy import Column, Float, ForeignKeyConstraint, Integer, String

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "durations",
        Column("shard", Integer, primary_key=True),
        Column("prefix", String, primary_key=True),
        Column("seconds", Float, nullable=False),
        ForeignKeyConstraint(
            ["shard", "prefix"], ["stages.shard", "stages.prefix"], onupdate="CASCADE", ondelete="CASCADE"
        ),
    )
