"""Where a run's ledger is: a SQLite file in the run folder, or a schema of a PostgreSQL database."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

DRIVER = "postgresql+psycopg"


@dataclass(frozen=True, kw_only=True)
class PostgresAddress:
    """One run's schema. Several runs may share a database."""

    url: URL
    schema: str

    @classmethod
    def of(cls, url: str, *, run: str) -> PostgresAddress:
        """The address of a run's ledger.

        Raises:
            ValueError: the URL is no PostgreSQL URL.
        """
        return cls(url=parsed(url), schema=f"s3t_{run}")

    def __str__(self) -> str:
        return f"{self.url.render_as_string(hide_password=True)}, schema {self.schema}"


Address: TypeAlias = Path | PostgresAddress


def parsed(url: str) -> URL:
    """A ledger's URL.

    Raises:
        ValueError: with what is wrong; it never repeats a password.
    """
    try:
        found = make_url(url)
    except ArgumentError:
        raise ValueError(f"is not a database URL; write {DRIVER}://USER@HOST/DATABASE") from None
    if found.drivername not in (DRIVER, "postgresql"):
        raise ValueError(f"the database {found.drivername!r} is not supported; write {DRIVER}://USER@HOST/DATABASE")
    return found.set(drivername=DRIVER)


def without_password(url: str) -> str:
    """The URL as it may be written down.

    >>> without_password("postgresql+psycopg://me:secret@db/runs")
    'postgresql+psycopg://me@db/runs'
    """
    found = parsed(url)
    query = {name: value for name, value in found.query.items() if name != "password"}
    bare = URL.create(found.drivername, found.username, None, found.host, found.port, found.database, query)
    return bare.render_as_string(hide_password=False)
