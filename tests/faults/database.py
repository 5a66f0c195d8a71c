"""Ledgers in PostgreSQL: the rows of a prepared run are put back before each trial, in the schema that it was made in.

One server and one database serve all trials. What a stopped process had sent to it, it does; nobody looks before that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

PATIENCE = 30.0
"""Seconds until the server has noticed that a client is gone."""


@dataclass(frozen=True)
class Rows:
    """All rows of a schema, by table."""

    schema: str
    tables: dict[str, list[tuple[Any, ...]]]


class Database:
    """A database of a PostgreSQL server, by its URL for SQLAlchemy; none without one."""

    def __init__(self, url: str | None) -> None:
        self._url = url

    @property
    def url(self) -> str:
        if self._url is None:
            raise RuntimeError("a scenario with its ledger in PostgreSQL needs a server")
        return self._url

    def save(self, run: Path) -> Rows:
        """The rows of a run's ledger."""
        schema = schema_of(run)
        with self._connect() as connection:
            names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]).fetchall()
            assert names, schema
            tables = {
                name: connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, name))).fetchall()
                for (name,) in names
            }
        return Rows(schema, tables)

    def restore(self, rows: Rows) -> None:
        """Make a ledger hold these rows and no others; whoever is still connected loses that."""
        with self._connect() as connection:
            connection.execute(f"SELECT pg_terminate_backend(pid, 30000) FROM {_OTHERS}")
            connection.execute("SET session_replication_role = replica")  # in any order, whatever refers to whatever
            tables = [(sql.Identifier(rows.schema, name), content) for name, content in rows.tables.items()]
            connection.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(table for table, _ in tables)))
            for table, content in tables:
                if content:
                    marks = sql.SQL(", ").join([sql.Placeholder()] * len(content[0]))
                    connection.cursor().executemany(sql.SQL("INSERT INTO {} VALUES ({})").format(table, marks), content)

    def schemas(self) -> set[str]:
        """Of all ledgers."""
        with self._connect() as connection:
            found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 's3t!_%' ESCAPE '!'")
            return {name for (name,) in found.fetchall()}

    def drop(self, schemas: Collection[str]) -> None:
        """Remove ledgers."""
        with self._connect() as connection:
            for name in schemas:
                connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))

    def settle(self) -> None:
        """Wait until the server has done all that those who are gone had sent."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with self._connect() as connection:
                if connection.execute(f"SELECT count(*) FROM {_OTHERS}").fetchone() == (0,):
                    return
            time.sleep(0.005)
        raise RuntimeError("the server does not notice that a client is gone")

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url.replace("postgresql+psycopg:", "postgresql:"))


def schema_of(run: Path) -> str:
    """Where a run's ledger is."""
    return f"s3t_{json.loads((run / 'run.json').read_text())['run']}"


_OTHERS = (
    "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = "
    "'client backend'"
)
