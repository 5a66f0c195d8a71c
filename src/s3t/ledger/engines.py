"""Databases of ledgers, a SQLite file in the run folder or a schema of a PostgreSQL database, and their engines.

Commits are on the disk when they return, and writers take turns.

A SQLite ledger may lie on a file system that is mounted read-only. With the log and its index, SQLite sees what a
writer on the same host commits. Where the log was written back, the database is read as a file that does not change;
if it does change, what was read is dropped. A log without an index cannot be read, and may hold an accepted deletion:
that is refused.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote
from weakref import WeakSet

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, QueuePool

from s3t.errors import RunFolderError, StorageError
from s3t.extras import how_to_install
from s3t.ledger import schema
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
        return cls(url=parsed(url), schema=f"s3t_{run}")

    def __str__(self) -> str:
        return f"{_bare(self.url)}, schema {self.schema}"


Address: TypeAlias = Path | PostgresAddress


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
    bare = url.difference_update_query(["password", "sslpassword"])._replace(password=None)
    return bare.render_as_string(hide_password=False)


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
            return read_only_connection(address, **options)
        place = f"{address.absolute().as_uri()}?mode=rw"  # SQLite would make a file that is missing
        connection: sqlite3.Connection = sqlite3.connect(place, uri=True, check_same_thread=False, **options)
        try:
            _set_up(connection)
            check()
        except BaseException:
            connection.close()
            raise
        return connection

    pool = {"poolclass": NullPool} if read_only else _POOL
    engine = create_engine("sqlite://", hide_parameters=True, creator=connected, **pool)
    event.listen(engine, "begin", _begin_sqlite)
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


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction; one that writes begins soon after another writer's end.

    SQLite itself waits longer each time it asks, at last 0.1 s: deletions would be effective that much later.
    """
    if not _is_writing(connection):
        connection.exec_driver_sql("BEGIN")
        return
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
    try:
        return _beside(database, "-wal").stat().st_size
    except OSError:
        return 0


def postgres_engine(address: PostgresAddress) -> Engine:
    """An engine on a PostgreSQL schema. Commits are synchronous whatever the server's default.

    A lost connection is noticed before it is used again.
    """
    settings = (
        f"search_path={address.schema}",
        f"idle_in_transaction_session_timeout={1000 * IDLE_TIMEOUT_SECONDS}",
        *_POSTGRES,
    )
    engine = create_engine(
        address.url,
        hide_parameters=True,
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
    event.listen(engine, "begin", _begin_postgres)
    return engine


def _begin_postgres(connection: Connection) -> None:
    if not _is_writing(connection):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return
    # Read committed: it reads what was committed before the lock. The limit is local: the run's lock, on the same
    # connections, has none.
    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {1000 * BUSY_TIMEOUT_SECONDS:.0f}")
    if not connection.get_execution_options().get("s3t_alone"):
        # Held until the end of the transaction. A waiting writer must have no snapshot, for which VACUUM would keep
        # rows: waiting in a SELECT has one, and so has looking up a table that is not cached.
        for mode in ("ACCESS SHARE", "EXCLUSIVE"):
            connection.exec_driver_sql(f"LOCK TABLE {schema.notes.name} IN {mode} MODE")


def _is_writing(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("s3t_writing", False))


_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs"}


class UnsteadyError(StorageError):
    """The database changed while it was read as one that does not."""


def read_only_error(what: str) -> StorageError:
    return StorageError(f"{what} is on a file system that is mounted read-only", remedy="mount it writable")


def is_read_only(folder: Path) -> bool:
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:  # a missing folder is reported when it is opened
        return False


def read_only_connection(database: Path, **options: Any) -> sqlite3.Connection:
    """A connection that sees every commit."""
    if (kind := _file_system(database)) in _NETWORK:
        raise StorageError(
            f"{database} is on a network file system ({kind}) that is mounted read-only, where SQLite cannot see what "
            "other hosts write",
            remedy="open the run on the host that has it, or keep its ledger in PostgreSQL",
        )
    has_log, has_index = size_of_log(database) > 0, _beside(database, "-shm").exists()
    if has_log and not has_index:
        raise StorageError(
            f"{database} was copied while it was in use: its log (-wal) holds changes, perhaps accepted deletions, "
            "that cannot be read where nothing can be written",
            remedy=f"open the run once where it can be written (`s3t status {database.parent}`)",
        )
    in_use = has_index and _beside(database, "-wal").exists()
    mode = "mode=ro" if in_use else "mode=ro&immutable=1"
    opened: sqlite3.Connection = sqlite3.connect(f"file:{quote(str(database))}?{mode}", uri=True, **options)
    return opened


@contextmanager
def steady(database: Path) -> Iterator[None]:
    """A reading of a database, while within."""
    before, in_use = _mark(database), _beside(database, "-shm").exists()
    unsteady = UnsteadyError(f"{database} was written to while it was read on a read-only mount")
    try:
        yield
    except StorageError as error:
        if _mark(database) != before:
            raise unsteady from error
        raise
    if not in_use and _mark(database) != before:
        raise unsteady


def _mark(database: Path) -> tuple[int, ...]:
    status = database.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, size_of_log(database)


def _beside(database: Path, suffix: str) -> Path:
    return database.with_name(database.name + suffix)


def _file_system(path: Path) -> str:
    """The kind of file system of a path; "" if unknown."""
    import psutil

    mounts = {Path(each.mountpoint): each.fstype for each in psutil.disk_partitions(all=True)}
    return next((mounts[folder] for folder in path.resolve().parents if folder in mounts), "")
