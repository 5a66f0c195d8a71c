"""When a request was received, beside when its deletion was accepted."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add it. Older versions stamped `accepted_at` before the commit: when a deletion was received, at the latest.

    No time was noted at which such a deletion was durable. When it was effective it was, so that is its time now; one
    that is not effective yet gets its time from the next opening of the run.
    """
    op.execute("ALTER TABLE generations RENAME COLUMN accepted_at TO received_at")
    op.add_column("generations", sa.Column("accepted_at", sa.Float))
    op.execute("UPDATE generations SET accepted_at = effective_at")
