"""Engines whose commits are on the disk when they return, and whose writers take turns."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, QueuePool

from s3t.ledger import schema
from s3t.ledger.address import Address, PostgresAddress
from s3t.ledger.read_only import connection as connection_to
from s3t.ledger.read_only import is_read_only

BUSY_TIMEOUT_SECONDS = 60
"""Time after which a writer that waits for another fails."""
_ASK_AGAIN_MILLISECONDS = 3
"""SQLite asks after one and after three."""
IDLE_TIMEOUT_SECONDS = 600
"""Time after which PostgreSQL ends an idle transaction: a writer that hangs must not block deletions on all hosts."""
# `Ledger` writes SQLite's log back, because SQLite itself hides a failed fsync of that.
_SQLITE = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "secure_delete=ON",
    "foreign_keys=ON",
    "wal_autocheckpoint=0",
    "temp_store=MEMORY",  # no temporary files elsewhere
)
_POSTGRES = (
    "synchronous_commit=on",
    "idle_session_timeout=0",
    "tcp_keepalives_idle=10",
    "tcp_keepalives_interval=5",
    "tcp_keepalives_count=4",
    "tcp_user_timeout=30000",
)


class _Pool(QueuePool):
    """A pool that, once disposed of, also closes connections that are given back later."""

    _disposed = False

    def dispose(self) -> None:
        self._disposed = True
        super().dispose()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        if self._disposed:
            super().dispose()


_POOL: dict[str, Any] = {"poolclass": _Pool, "pool_size": 8, "max_overflow": -1}


class _Connection(sqlite3.Connection):
    """A connection that closes its cursors when it is rolled back or closed.

    An open cursor keeps SQLite reading, and lives as long as the traceback of an interrupt that refers to it.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        super().__init__(*arguments, **options)

    def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
        cursor = super().cursor(factory)
        self._cursors.add(cursor)
        return cursor

    def rollback(self) -> None:  # also called when a connection is given back to the pool
        self._close_cursors()
        super().rollback()

    def close(self) -> None:
        self._close_cursors()
        super().close()

    def _close_cursors(self) -> None:
        for cursor in tuple(self._cursors):
            cursor.close()


def engine_at(address: Address, *, check: Callable[[], object] = lambda: None) -> Engine:
    """The engine of a ledger; each new connection to SQLite's file calls `check`, which raises if that was moved."""
    if isinstance(address, PostgresAddress):
        return postgres_engine(address)
    read_only = is_read_only(address.parent)

    def connected() -> sqlite3.Connection:
        # Without an isolation level: `begin` starts transactions.
        options: Any = {"timeout": BUSY_TIMEOUT_SECONDS, "factory": _Connection, "isolation_level": None}
        if read_only:
            return connection_to(address, **options)
        place = f"{address.absolute().as_uri()}?mode=rw"  # SQLite would make a file that is missing
        connection: sqlite3.Connection = sqlite3.connect(place, uri=True, check_same_thread=False, **options)
        try:
            _set_up(connection)
            check()
        except BaseException:
            connection.close()
            raise
        return connection

    def begin(connection: Connection) -> None:
        if _is_writing(connection):
            _begin_writing(connection)
        else:
            connection.exec_driver_sql("BEGIN")

    return _engine("sqlite://", begin, creator=connected, **({"poolclass": NullPool} if read_only else _POOL))


def _engine(url: Any, begin: Callable[[Connection], None], **options: Any) -> Engine:
    engine = create_engine(url, hide_parameters=True, **options)
    event.listen(engine, "begin", begin)
    return engine


def _set_up(connection: sqlite3.Connection) -> None:
    cursor = connection.cursor()
    try:
        for pragma in _SQLITE:
            cursor.execute(f"PRAGMA {pragma}")
        mode = cursor.execute("PRAGMA journal_mode").fetchone()[0]
    except UnicodeDecodeError as error:  # SQLite quotes a damaged schema
        raise sqlite3.DatabaseError(f"its schema cannot be decoded: {error}") from error
    finally:
        cursor.close()
    if mode != "wal":
        raise sqlite3.OperationalError(
            f"this file system gives SQLite no write-ahead log, only {mode!r}; put the run on a local disk, or its "
            "ledger into PostgreSQL"
        )


def _begin_writing(connection: Connection) -> None:
    """Begin a write transaction of SQLite soon after another writer's end.

    SQLite itself waits longer each time it asks, at last 0.1 s: deletions would be effective that much later.
    """
    until = time.monotonic() + BUSY_TIMEOUT_SECONDS
    connection.exec_driver_sql(f"PRAGMA busy_timeout={_ASK_AGAIN_MILLISECONDS}")
    try:
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                return
            except OperationalError as error:
                busy = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > until:
                    raise
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={1000 * BUSY_TIMEOUT_SECONDS}")


def size_of_log(database: Path) -> int:
    """Bytes of a SQLite database's log."""
    try:
        return database.with_name(database.name + "-wal").stat().st_size
    except OSError:
        return 0


def postgres_engine(address: PostgresAddress) -> Engine:
    """An engine on a PostgreSQL schema. Commits are synchronous whatever the server's default.

    A lost connection is noticed before it is used again.
    """
    settings = (
        f"search_path={address.schema}",
        f"idle_in_transaction_session_timeout={_milliseconds(IDLE_TIMEOUT_SECONDS)}",
        *_POSTGRES,
    )

    def begin(connection: Connection) -> None:
        if not _is_writing(connection):
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return
        # Read committed: it reads what was committed before the lock. The limit is local: the run's lock, on the
        # same connections, has none.
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_milliseconds(BUSY_TIMEOUT_SECONDS)}")
        if not connection.get_execution_options().get("s3t_alone"):
            # Held until the end of the transaction. A waiting writer must have no snapshot, for which VACUUM would
            # keep rows: waiting in a SELECT has one, and so has looking up a table that is not cached.
            for mode in ("ACCESS SHARE", "EXCLUSIVE"):
                connection.exec_driver_sql(f"LOCK TABLE {schema.notes.name} IN {mode} MODE")

    return _engine(
        address.url,
        begin,
        pool_pre_ping=True,
        connect_args={
            "options": " ".join(f"-c {setting}" for setting in settings),
            "connect_timeout": BUSY_TIMEOUT_SECONDS,
            # A host or a server that fails without a notice holds locks no longer than this.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 4,
            "tcp_user_timeout": 30_000,
            "target_session_attrs": "read-write",  # a standby may lag behind what was accepted
            "application_name": "s3t",
        },
        **_POOL,
    )


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)


def _is_writing(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("s3t_writing", False))
