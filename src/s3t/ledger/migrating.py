"""Databases of older versions are brought up to date with alembic; those of newer versions are refused.

alembic is imported only when there is something to do: a run that is up to date opens without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, inspect, select, table, text

from s3t.errors import RunFolderError
from s3t.ledger.address import Address, PostgresAddress

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0004"
"""The newest revision in migrations/versions."""
REVISIONS = ("0001", "0002", "0003", HEAD)
"""Every revision there has been, oldest first."""


def create_tables(connection: Connection, address: Address) -> None:
    """All tables of a new ledger, by the same migrations that an old one goes through."""
    if isinstance(address, PostgresAddress):
        connection.execute(text(f'CREATE SCHEMA "{address.schema}"'))
    _upgrade(connection)


def migrate(connection: Connection, address: Address, *, check: bool = False) -> bool:
    """Bring a ledger up to date; whether it was already.

    Args:
        connection: in a transaction, which a failure leaves undone.
        address: for the messages.
        check: only look.

    Raises:
        RunFolderError: a newer version wrote it, or it is no ledger.
    """
    found = revision(connection)
    if found is None:
        raise RunFolderError(
            str(address), ["is no ledger of s3t (it has none of its tables); restore it from a backup"]
        )
    if found not in REVISIONS:
        raise RunFolderError(
            str(address),
            [
                f"the ledger has revision {found}, which a newer s3t wrote; this version knows revisions up to {HEAD}: "
                "install the newer version"
            ],
        )
    if found != HEAD and not check:
        _upgrade(connection, stamp=found)
    return found == HEAD


def revision(connection: Connection) -> str | None:
    """The revision of a database; None if it holds no ledger."""
    names = set(inspect(connection).get_table_names())
    if "alembic_version" in names:
        versions = connection.execute(select(table("alembic_version", column("version_num")))).scalars().all()
        return str(versions[0]) if versions else None
    return REVISIONS[0] if {"generations", "slices", "stages"} <= names else None  # written before there were revisions


def _upgrade(connection: Connection, *, stamp: str | None = None) -> None:
    from alembic import command

    config = _config(connection)
    if stamp is not None and "alembic_version" not in inspect(connection).get_table_names():
        command.stamp(config, stamp)
    command.upgrade(config, "head")


def _config(connection: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config
