"""The ledger of s3t 0.1, SQLite alone: deletions, slices, tokens, what is to erase, live stages."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "generations",
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("accepted_at", sa.Float, nullable=False),
        sa.Column("erased_at", sa.Float),
        sa.Column("records", sa.Integer, nullable=False),
    )
    op.create_table(
        "slices",
        sa.Column("shard", sa.Integer, primary_key=True),
        sa.Column("slice", sa.Integer, primary_key=True),
        sa.Column("records", sa.Integer, nullable=False),
        sa.Column("losses", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    op.create_table(
        "records",
        sa.Column("token", sa.LargeBinary(32), primary_key=True),
        sa.Column("subject", sa.LargeBinary(32)),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("slice", sa.Integer, nullable=False),
        sa.Column("copies", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(["shard", "slice"], ["slices.shard", "slices.slice"]),
    )
    op.create_index("records_by_subject", "records", ["subject"])
    op.create_table(
        "deleted",
        sa.Column("token", sa.LargeBinary(32), primary_key=True),
        sa.Column("generation", sa.Integer, nullable=False),
    )
    op.create_table(
        "erasing_records",
        sa.Column("token", sa.LargeBinary(32), primary_key=True),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("slice", sa.Integer, nullable=False),
    )
    op.create_table(
        "erasing_artifacts",
        sa.Column("shard", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(64), primary_key=True),
    )
    op.create_table(
        "stages",
        sa.Column("shard", sa.Integer, primary_key=True),
        sa.Column("prefix", sa.String, primary_key=True),
        sa.Column("key", sa.String(64), nullable=False),
    )
