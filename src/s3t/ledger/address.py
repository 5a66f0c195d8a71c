"""Addresses of ledgers: a SQLite file in the run folder, or a schema of a PostgreSQL database."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from s3t.errors import RunFolderError
from s3t.extras import how_to_install
from s3t.store.folder import Description, Layout

VARIABLE = "S3T_LEDGER"
DRIVER = "postgresql+psycopg"


@dataclass(frozen=True, kw_only=True)
class PostgresAddress:
    """The address of one run's schema in PostgreSQL. Several runs may share a database."""

    url: URL = field(repr=False)
    schema: str

    @classmethod
    def of(cls, url: str, *, run: str) -> PostgresAddress:
        """The address of a run's ledger."""
        return cls(url=parsed(url), schema=f"s3t_{run}")

    def __str__(self) -> str:
        return f"{_bare(self.url)}, schema {self.schema}"


Address: TypeAlias = Path | PostgresAddress


def address_of(layout: Layout, description: Description) -> Address:
    """The address of a run's ledger. S3T_LEDGER overrides the database's URL, and may hold a password."""
    if description.ledger is None:
        return layout.ledger
    given = os.environ.get(VARIABLE)
    try:
        address = PostgresAddress.of(given or description.ledger, run=description.run)
        import psycopg  # noqa: F401
    except ValueError as error:
        raise RunFolderError(VARIABLE if given else str(layout.root), f"its ledger {error}") from None
    except ImportError as error:
        install = how_to_install("postgres")
        raise RunFolderError(
            str(layout.root), f"its ledger is in PostgreSQL ({error}); install the driver with: {install}"
        ) from error
    return address


def kind_of(address: Address) -> str:
    """The kind of database in words.

    >>> kind_of(Path("run/ledger.sqlite"))
    'SQLite'
    >>> kind_of(PostgresAddress.of("postgresql://me:secret@db.example.org/runs", run="1"))
    'PostgreSQL at db.example.org, database runs'
    """
    if isinstance(address, Path):
        return "SQLite"
    hosts = address.url.host or address.url.query.get("host") or ""
    where = hosts if isinstance(hosts, str) else ", ".join(hosts)
    parts = (f" at {where}" if where else "", f", database {address.url.database}" if address.url.database else "")
    return "PostgreSQL" + "".join(parts)


def parsed(url: str) -> URL:
    """A ledger's URL."""
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        raise ValueError(f"is not a database URL; write {DRIVER}://USER@HOST/DATABASE") from None
    if address.drivername not in (DRIVER, "postgresql"):
        raise ValueError(f"the database {address.drivername!r} is not supported; write {DRIVER}://USER@HOST/DATABASE")
    if "@" in (address.host or ""):
        raise ValueError("has more than one @; write one that belongs to the password as %40")
    return address.set(drivername=DRIVER)


def without_password(url: str) -> str:
    """The URL as it may be written down.

    >>> without_password("postgresql+psycopg://me:secret@db/runs")
    'postgresql+psycopg://me@db/runs'
    """
    return _bare(parsed(url))


def _bare(url: URL) -> str:
    query = {name: value for name, value in url.query.items() if name not in _SECRET}
    bare = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, query)
    return bare.render_as_string(hide_password=False)


_SECRET = ("password", "sslpassword")
"""Secret fields of a URL's query."""
