"""Creation of a ledger's tables, and their alembic revision. Opening a run does not import alembic."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, column, inspect, select, table, text

from s3t.errors import RunFolderError
from s3t.ledger import schema
from s3t.ledger.address import Address, PostgresAddress

HEAD = "0001"
"""The newest revision in migrations/versions."""


def create_tables(connection: Connection, address: Address) -> None:
    """Create all tables of a new ledger, at the newest revision."""
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    if isinstance(address, PostgresAddress):
        connection.execute(text(f'CREATE SCHEMA "{address.schema}"'))
    schema.metadata.create_all(connection)
    scripts = ScriptDirectory(str(Path(__file__).parent / "migrations"))
    MigrationContext.configure(connection).stamp(scripts, "head")


def check_revision(connection: Connection, address: Address) -> None:
    """Check that a database holds a ledger that this version reads.

    Raises:
        RunFolderError: a newer version wrote it, or it is no ledger.
    """
    present = revision(connection)
    if present is None:
        raise RunFolderError(str(address), "is no ledger of s3t (it has none of its tables); restore it from a backup")
    if present != HEAD:
        raise RunFolderError(
            str(address),
            f"the ledger has revision {present}, which a newer s3t wrote; this version reads revision {HEAD}: "
            "install the newer version",
        )


def revision(connection: Connection) -> str | None:
    """The revision of a database; None if it holds no ledger."""
    if "alembic_version" not in inspect(connection).get_table_names():
        return None
    versions = connection.execute(select(table("alembic_version", column("version_num")))).scalars().all()
    return str(versions[0]) if versions else None
