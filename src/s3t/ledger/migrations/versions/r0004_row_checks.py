"""A keyed check for every row that decides something, and the digest of each stage's manifest.

Checks are written when the run is next opened with its secret.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

TABLES = (
    "generations",
    "requests",
    "slices",
    "records",
    "deleted",
    "erasing_records",
    "erasing_artifacts",
    "stages",
    "copies",
    "notes",
)


def upgrade() -> None:
    """Add an empty column."""
    for table in TABLES:
        op.add_column(table, sa.Column("mac", sa.LargeBinary(16)))
    op.add_column("stages", sa.Column("manifest", sa.String(64)))
