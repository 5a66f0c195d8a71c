"""A run's ledger: transactions, snapshots, and the database's upkeep."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from weakref import WeakSet

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from s3t.aftermath import OUTCOME_UNKNOWN
from s3t.core import Place
from s3t.errors import (
    ClosedError,
    ForkedError,
    FsyncError,
    IntegrityError,
    MovedError,
    RunFolderError,
    StorageError,
    listed,
)
from s3t.ledger import schema
from s3t.ledger.engines import (
    BUSY_TIMEOUT_SECONDS,
    Address,
    PostgresAddress,
    UnsteadyError,
    engine_at,
    is_read_only,
    kind_of,
    read_only_error,
    size_of_log,
    steady,
)
from s3t.ledger.filling import copy_rows, write_first_rows
from s3t.ledger.locks import RunLock, database_lock, file_lock
from s3t.ledger.rows import KEY_DESTROYED, Rows
from s3t.ledger.state import LiveStages, RecordRow, SliceState, Snapshot
from s3t.ledger.transaction import Transaction
from s3t.store.disk import (
    OpenedFolder,
    identity_of,
    note_failed_fsync,
    refuse_after_failed_fsync,
    storage_errors,
    sync_folder,
)

_LOCK_TIMEOUT = "55P03"
_IDLE_TIMEOUT = "25P03"  # PostgreSQL ended a transaction that was idle for too long: before any commit
_DAMAGED = ("XX001", "XX002")  # PostgreSQL found a damaged page, or a damaged index
_SQLITE_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")  # the last: damage in a name of the schema
_SQLITE_FORBIDDEN = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")


def refusal(address: Address, error: Exception, *, ending: bool = False) -> StorageError | IntegrityError:
    """The error to raise; `ending` is True if a writing transaction was being committed."""
    reason = getattr(error, "orig", None) or error
    name, state = getattr(reason, "sqlite_errorname", ""), getattr(reason, "sqlstate", None)
    local = isinstance(address, Path)
    undecodable = isinstance(reason, sqlite3.Error) and "decode" in str(reason)
    if undecodable or name.startswith(_SQLITE_DAMAGED) or state in _DAMAGED:
        return IntegrityError(
            f"the ledger is damaged ({reason}). Run `s3t reconcile RUN`, which mends indexes; if that does not help, "
            "restore the ledger from a backup, and run it again"
        )
    if "FSYNC" in name:
        return note_failed_fsync(f"the ledger ({reason})")
    if state == _LOCK_TIMEOUT or (local and "locked" in str(reason)):
        remedy = "wait for the process that holds it"
    elif not local:
        remedy = f"see that the database answers ({address})"
    elif name.startswith("SQLITE_FULL") or "is full" in str(reason):
        remedy = "free space"
    elif name.startswith(_SQLITE_FORBIDDEN):
        remedy = "see that the run's folder can be written to: its permissions, and how it is mounted"
    else:
        remedy = "free space or mend the disk"  # SQLite gives both the same name
    if local or not ending or state == _IDLE_TIMEOUT:
        return StorageError(f"the ledger refused ({reason})", remedy=remedy)
    refused = StorageError(f"the ledger's database failed while it committed ({reason})", remedy=remedy)
    refused.aftermath = OUTCOME_UNKNOWN
    return refused


_open: WeakSet[object] = WeakSet()
_inherited: list[object] = []  # kept, so that the child closes no connection of its parent


def note_open(ledger: object) -> None:
    if _inherited:
        raise ForkedError(
            "this process was forked off while its parent had a run with a ledger in SQLite open, and SQLite's locks "
            "do not survive a fork. Close every run before the fork, or start processes with multiprocessing's `spawn`"
        )
    _open.add(ledger)


def refuse_after_fork(process: int) -> None:
    """Refuse a run that another process opened.

    SQLite counts in its own memory what a process has locked. A forked child inherits those counts without the locks,
    so it would lock nothing. Its parent, closing, would remove the log that the child writes to, deletions and all.
    """
    if os.getpid() != process:
        raise ForkedError(
            f"the run was opened in process {process}, and this is {os.getpid()}, forked off from it; open "
            "the run here (`s3t.Run.open`), after the fork"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _inherited.extend(_open))


def vacuum(connection: Connection) -> bool:
    """Remove dead rows from PostgreSQL's files; False if some had to stay, because an older snapshot may read them."""
    for table in _GONE:
        connection.execute(text(f"VACUUM {table}"))
    dead = " + ".join(f"pg_stat_get_dead_tuples('{table}'::regclass)" for table in _GONE)
    return int(connection.execute(text(f"SELECT {dead}")).scalar_one()) == 0


_GONE = (
    "records",
    "slices",
    "stages",
    "durations",
    "erasing_records",
    "condemned",
    "claims",
    "checkpoints",
    "held_names",
    "admitted",
)
"""Tables in whose dead rows something of a deleted record may be."""
_LONG_LOG_BYTES = 4 * 2**20
_CHECKPOINT_SECONDS = 2.0
_TRIES, _AGAIN_SECONDS = 20, 0.05


def _place_check(address: Address, folder: OpenedFolder | None) -> Callable[[], None]:
    """A function that raises MovedError once the run's folder, or SQLite's file, was moved or replaced.

    It holds no reference to a ledger, so that a ledger that nobody uses any more is closed at once.
    """
    identity = identity_of(address.stat()) if isinstance(address, Path) else None  # device and inode

    def check() -> None:
        if folder is not None:
            folder.check()
        if not isinstance(address, Path):
            return
        try:
            found = os.stat(address)  # noqa: PTH116 - as in `OpenedFolder.check`
        except FileNotFoundError:
            raise MovedError(f"{address}, the ledger of an open run, is gone; put it back") from None
        if identity_of(found) != identity:
            raise MovedError(
                f"another file was put in the place of {address} while this process had the run open: open the run "
                "again"
            )

    return check


class Ledger:
    """A run's ledger. Safe to share among threads; several processes may have it open, on PostgreSQL several hosts.

    Every transaction raises MovedError if the run's folder was moved or replaced since the ledger was opened, or the
    ledger's file was: a process that has the old one open must neither answer by it nor note what is erased.
    """

    def __init__(self, address: Address, *, folder: OpenedFolder | None = None, key: bytes | None = None) -> None:
        if isinstance(address, Path) and not address.is_file():
            raise IntegrityError(
                f"{address}: the run's ledger is missing; put it back from a backup, and what opens the run "
                "next says what was deleted since"
            )
        self._address, self.kind = address, kind_of(address)
        self._folder = OpenedFolder.of(address.parent) if folder is None and isinstance(address, Path) else folder
        self.check_place = _place_check(address, self._folder)
        self.engine = engine_at(address, check=self.check_place)
        self._key = key  # key of the rows' checks
        self._process = os.getpid()
        self._turn = threading.Lock()  # writing threads queue here; in the database they would poll
        self._latest: Snapshot | None = None
        self._seen: tuple[int, Snapshot] | None = None  # a version, and a snapshot read right after it
        self._live: LiveStages | None = None
        self._long_log = _LONG_LOG_BYTES
        self._closed = False
        self.key_was_destroyed = False
        """True if the run's secret had been destroyed when the ledger was opened."""
        self.read_only = isinstance(address, Path) and is_read_only(address.parent)
        """True if its file is on a file system that is mounted read-only."""
        self._observer: PoolProxiedConnection | None = None
        """A connection that commits nothing: its `data_version` tells whether any other has."""
        self._observing = threading.Lock()
        if isinstance(address, Path):
            note_open(self)
            # Connections close with a ledger that is garbage-collected; a reference cycle would keep them open.
            weakref.finalize(self, self.engine.dispose).atexit = False

    @classmethod
    def create(
        cls,
        address: Address,
        *,
        slices: Mapping[Place, SliceState],
        records: Iterable[RecordRow],
        key: bytes | None = None,
    ) -> Ledger:
        """A new ledger at generation 0; nothing is left of it after an error.

        Records are written fastest in the order of their tokens. Without a key rows have no checks.
        """
        return cls._filled(address, lambda rows: write_first_rows(rows, slices, records), key=key)

    def clone(self, address: Address) -> Ledger:
        """A ledger at another address with the rows of this one at one state, except what is one run's alone."""
        with self._transaction(writing=False) as source:
            return self._filled(address, lambda rows: copy_rows(source, rows.connection))

    @classmethod
    def _filled(cls, address: Address, fill: Callable[[Rows], None], *, key: bytes | None = None) -> Ledger:
        """A new ledger whose tables are created and filled in one transaction."""
        if isinstance(address, Path):
            with storage_errors("making the ledger"):
                address.touch(mode=0o600)  # SQLite gives its log the same mode
        ledger, created = cls(address, key=key), False
        try:
            with ledger._transaction(writing=True, alone=True) as connection:
                if isinstance(address, PostgresAddress):
                    connection.execute(text(f'CREATE SCHEMA "{address.schema}"'))
                schema.metadata.create_all(connection)
                created = True
                fill(Rows(connection, key))
        except BaseException:
            with suppress(StorageError):
                if created:  # a lost connection does not tell whether the end was reached
                    ledger.drop()
            ledger.close()
            raise
        return ledger

    @classmethod
    def open(cls, address: Address, *, folder: OpenedFolder | None = None) -> Ledger:
        """The ledger at an address; `folder` is the run's, or None: that of SQLite's file."""
        ledger = cls(address, folder=folder)
        try:
            with ledger._transaction(writing=False) as connection:
                _check_tables(address, set(inspect(connection).get_table_names()))
                ledger.key_was_destroyed = Rows(connection).note(KEY_DESTROYED) != 0
            if isinstance(address, Path) and not ledger.read_only:
                with storage_errors("opening the ledger"):
                    sync_folder(address.parent)  # the name of SQLite's log; SQLite does it, but hides whether it could
        except BaseException:
            ledger.close()
            raise
        return ledger

    def close(self) -> None:
        """Write SQLite's log back and release connections. May be called twice; later uses raise ClosedError.

        In a forked child nothing happens: the connections are the parent's.
        """
        if os.getpid() != self._process:
            return
        self._closed = True
        if isinstance(self._address, Path) and not self.read_only:
            try:
                self._write_log_back()  # SQLite does it, too, but hides a failure
            except FsyncError:
                return  # SQLite would try it again when the last connection closes
        with self._observing:
            if self._observer is not None:
                self._observer.close()
            self._observer = None
        self.engine.dispose()
        self.engine.pool.dispose()  # connections that other threads still use are closed when they give them back
        _open.discard(self)

    def again(self) -> Ledger:
        """A new handle on the same ledger, also if this one is closed."""
        return type(self)(self._address, folder=self._folder, key=self._key)

    def check_rows(self, key: bytes) -> None:
        """Check every row that is read from here on, with the key that the rows were written with."""
        self._key = key

    def drop(self) -> None:
        """Remove PostgreSQL's tables, if they are there. A SQLite file is removed with its folder.

        Also after a failed fsync of the run's folder, which says nothing of the database: without its folder, the
        ledger would never be found again.
        """
        if isinstance(self._address, PostgresAddress):
            refuse_after_fork(self._process)
            engine = self.engine.execution_options(s3t_writing=True, s3t_alone=True)
            try:
                with engine.begin() as connection:
                    connection.execute(text(f'DROP SCHEMA IF EXISTS "{self._address.schema}" CASCADE'))
            except DBAPIError as error:
                raise refusal(self._address, error, ending=True) from error

    @classmethod
    def drop_at(cls, address: Address) -> None:
        """Remove the ledger at an address, as `drop` does."""
        if isinstance(address, PostgresAddress):
            with closing(cls(address)) as ledger:
                ledger.drop()

    def lock(self, path: Path) -> RunLock:
        """The run's lock: the file at `path`, or an advisory lock of PostgreSQL."""
        if isinstance(self._address, Path):
            return RunLock(file_lock(path), check=self.check_place)
        return RunLock(database_lock(self.engine, schema=self._address.schema), check=self.check_place)

    @contextmanager
    def writing(self, *, anywhere: bool = False) -> Iterator[Transaction]:
        """A transaction that overlaps no other writer's. It is durable on leaving without an error.

        After an error nothing of it happened, unless the error's aftermath says that nobody can know. `anywhere` is
        also where the run's folder was moved to, to end a session, which must not hold deletions up: SQLite's
        connections follow their file; new ones are refused once it was moved.
        """
        with self._transaction(writing=True, anywhere=anywhere) as connection:
            transaction = Transaction(Rows(connection, self._key), latest=self._latest, live=self._live)
            yield transaction
            transaction.rows.write_notes()
            if not anywhere:
                self.check_place()  # what the transaction notes was done in the folder's old place otherwise
        self._latest, self._live = transaction.latest, transaction.live
        if isinstance(self._address, Path) and size_of_log(self._address) > self._long_log:
            self._write_log_back()
            self._long_log = size_of_log(self._address) + _LONG_LOG_BYTES  # SQLite overwrites it, and keeps its length

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction that sees one state and changes nothing."""
        before, version = self._latest, self.version()
        with self._transaction(writing=False) as connection:
            transaction = Transaction(Rows(connection, self._key), latest=before, live=self._live)
            yield transaction
        if (latest := transaction.latest) is not None and latest is not before:
            self._latest, self._live = latest, latest.live
            if version is not None:
                self._seen = version, latest

    def version(self) -> int | None:
        """A value that differs from an earlier one if anything was committed in between; None where that would cost as
        much as reading: in PostgreSQL, and on a read-only mount.
        """
        if self.read_only or not isinstance(self._address, Path):
            return None
        refuse_after_fork(self._process)
        with self._refusals():
            self._refuse_if_closed()
            self.check_place()
            with self._observing:
                self._refuse_if_closed()  # another thread may have closed it meanwhile
                if self._observer is None:
                    self._observer = self.engine.raw_connection()
                with closing(self._observer.cursor()) as cursor:
                    return int(cursor.execute("PRAGMA data_version").fetchone()[0])

    def snapshot(self, *, anew: bool = False) -> Snapshot:
        """The ledger at its present state. Cheap if nothing has changed since the last one, unless read `anew`."""
        if anew:
            self._latest = self._live = self._seen = None
        version, seen = self.version(), self._seen
        if seen is not None and seen[0] == version:
            return seen[1]
        for left in reversed(range(_TRIES)):
            try:
                with self.reading() as transaction:
                    snapshot = transaction.snapshot()
                break
            except UnsteadyError:
                if not left:
                    raise
                time.sleep(_AGAIN_SECONDS)
        if version is not None:
            self._seen = version, snapshot
        return snapshot

    def recent(self) -> Snapshot | None:
        """The state that `snapshot` gave last; None before the first. Asks nothing of the database."""
        refuse_after_fork(self._process)
        refuse_after_failed_fsync()
        self._refuse_if_closed()
        return self._latest

    def confirm(self) -> None:
        """Make everything durable that this ledger shows; its writer may have been killed before the disk had it.

        Called before anything irreversible that rests on what another process wrote.
        """
        with self.writing() as transaction:
            transaction.touch()

    def key_destroyed_at(self) -> float | None:
        """Time at which the run's secret was destroyed, in seconds since the epoch; None if it was not."""
        with self.reading() as transaction:
            return transaction.history.key_destroyed_at()

    def wipe(self) -> bool:
        """Remove old content of changed and removed rows: SQLite's log, PostgreSQL's dead rows.

        False if a reader needs them for more than two seconds.
        """
        self._refuse_if_closed()
        self.check_place()
        if isinstance(self._address, Path):
            return self._checkpoint("TRUNCATE")

        with self._refusals(), self.engine.connect() as connection:
            bare = connection.execution_options(isolation_level="AUTOCOMMIT")
            if vacuum(bare):
                return True
            # Other writers leave dead rows meanwhile. While they are locked out, only readers keep any.
            with self._transaction(writing=True):
                return _until(lambda: vacuum(bare), pause=0.05)

    def _write_log_back(self) -> None:
        """Write SQLite's log back if that can be done: else it stays beside the database, and nothing is lost."""
        try:
            self.check_place()
            self._checkpoint("PASSIVE")
        except FsyncError:
            raise
        except (MovedError, StorageError):
            logging.getLogger("s3t").debug("the ledger's log could not be written back", exc_info=True)

    def _checkpoint(self, mode: str) -> bool:
        checkpoint = f"PRAGMA wal_checkpoint({mode})"
        with (
            self._turn,
            self._refusals(),
            self.engine.connect() as connection,
            closing(connection.connection.cursor()) as raw,  # outside of transactions, where SQLite refuses checkpoints
        ):
            raw.execute("PRAGMA busy_timeout=50")
            try:
                return _until(lambda: not raw.execute(checkpoint).fetchone()[0], pause=0.01)
            finally:
                raw.execute(f"PRAGMA busy_timeout={1000 * BUSY_TIMEOUT_SECONDS}")

    @contextmanager
    def _transaction(self, *, writing: bool, alone: bool = False, anywhere: bool = False) -> Iterator[Connection]:
        """A transaction; `writing` lets no other writer in, `anywhere` is also if the run's folder was moved.

        With `alone` no other process uses this ledger, whose tables, which writers lock, are made or dropped here.
        """
        refuse_after_fork(self._process)
        if writing and self.read_only:
            raise read_only_error(str(self._address))
        ending = False
        unchanging = steady(self._address) if isinstance(self._address, Path) and self.read_only else nullcontext()
        with unchanging, self._turn if writing else nullcontext():
            self._refuse_if_closed()
            refuse_after_failed_fsync()
            if not anywhere:
                self.check_place()
            try:
                with self.engine.connect().execution_options(s3t_writing=writing, s3t_alone=alone) as connection:
                    begun = connection.begin()
                    try:
                        yield connection
                    except BaseException:
                        begun.rollback()
                        raise
                    if writing:
                        refuse_after_failed_fsync()  # it may have failed in another thread meanwhile
                    ending = True
                    begun.commit()
            except DBAPIError as error:
                raise refusal(self._address, error, ending=ending and writing) from error

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ClosedError

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        refuse_after_failed_fsync()
        try:
            yield
        except (DBAPIError, sqlite3.Error) as error:  # the second from a raw cursor
            raise refusal(self._address, error) from error


def _until(done: Callable[[], bool], *, pause: float) -> bool:
    """Try something until it is done, for two seconds at most; True if it is."""
    until = time.monotonic() + _CHECKPOINT_SECONDS
    while not done():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
    return True


def _check_tables(address: Address, found: Set[str]) -> None:
    known = schema.metadata.tables.keys()
    if not found & known:
        raise RunFolderError(str(address), "is no ledger of s3t (it has none of its tables); restore it from a backup")
    if others := sorted(found ^ known):
        raise RunFolderError(
            str(address),
            f"another version of s3t wrote the ledger (they differ in {listed(others)}): install that version, or "
            "make a new run",
        )
