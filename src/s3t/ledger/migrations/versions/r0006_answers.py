"""The oldest generation of which a session's answers may still leave, apart from what it still computes with."""

from alembic import op
from sqlalchemy import Column, Integer

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column."""
    op.add_column("sessions", Column("answers", Integer))
