"""The tables of a ledger, made and recognised by their alembic revision.

alembic is imported only when there is something to do: a run opens without it.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, column, inspect, select, table, text

from s3t.errors import RunFolderError
from s3t.ledger.address import Address, PostgresAddress

HEAD = "0001"
"""The newest revision in migrations/versions."""


def create_tables(connection: Connection, address: Address) -> None:
    """All tables of a new ledger."""
    from alembic import command
    from alembic.config import Config

    if isinstance(address, PostgresAddress):
        connection.execute(text(f'CREATE SCHEMA "{address.schema}"'))
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def check_revision(connection: Connection, address: Address) -> None:
    """Look whether a database holds a ledger that this version reads.

    Raises:
        RunFolderError: a newer version wrote it, or it is no ledger.
    """
    found = revision(connection)
    if found is None:
        raise RunFolderError(
            str(address), ["is no ledger of s3t (it has none of its tables); restore it from a backup"]
        )
    if found != HEAD:
        raise RunFolderError(
            str(address),
            [
                f"the ledger has revision {found}, which a newer s3t wrote; this version reads revision {HEAD}: "
                "install the newer version"
            ],
        )


def revision(connection: Connection) -> str | None:
    """The revision of a database; None if it holds no ledger."""
    if "alembic_version" not in inspect(connection).get_table_names():
        return None
    versions = connection.execute(select(table("alembic_version", column("version_num")))).scalars().all()
    return str(versions[0]) if versions else None
