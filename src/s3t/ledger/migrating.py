"""Tables of a ledger, and their alembic revision. Opening a ledger of this revision does not import alembic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, inspect, select, table, text

from s3t.errors import RunFolderError
from s3t.ledger import schema
from s3t.ledger.address import Address, PostgresAddress

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

HEAD = "0006"
"""The newest revision in migrations/versions."""
OLDER = {"0001", "0002", "0003", "0004", "0005"}
"""Revisions that `upgrade_tables` brings to the newest one."""


def create_tables(connection: Connection, address: Address) -> None:
    """Create all tables of a new ledger, at the newest revision."""
    from alembic.migration import MigrationContext

    if isinstance(address, PostgresAddress):
        connection.execute(text(f'CREATE SCHEMA "{address.schema}"'))
    schema.metadata.create_all(connection)
    MigrationContext.configure(connection).stamp(_scripts(), "head")


def is_current(connection: Connection, address: Address) -> bool:
    """True if a ledger has this version's revision, False if `upgrade_tables` brings it there.

    Raises:
        RunFolderError: a newer version wrote it, or the database holds no ledger.
    """
    present = revision(connection)
    if present is None:
        raise RunFolderError(str(address), "is no ledger of s3t (it has none of its tables); restore it from a backup")
    if present != HEAD and present not in OLDER:
        raise RunFolderError(
            str(address),
            f"the ledger has revision {present}, which a newer s3t wrote; this version reads revision {HEAD}: "
            "install the newer version",
        )
    return present == HEAD


def upgrade_tables(connection: Connection) -> None:
    """Bring the tables of an older ledger to the newest revision, within a transaction that lets no other writer in.

    Nothing happens to those that have it already: another process was first.
    """
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    present, scripts = revision(connection), _scripts()
    context = MigrationContext.configure(connection)
    with Operations.context(context):
        for script in reversed(list(scripts.iterate_revisions("head", present))):
            script.module.upgrade()
    context.stamp(scripts, "head")


def _scripts() -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(Path(__file__).parent / "migrations"))


def revision(connection: Connection) -> str | None:
    """The revision of a database; None if it holds no ledger."""
    if "alembic_version" not in inspect(connection).get_table_names():
        return None
    versions = connection.execute(select(table("alembic_version", column("version_num")))).scalars().all()
    return str(versions[0]) if versions else None
