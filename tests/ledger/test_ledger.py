"""A ledger is made whole, found again, gives cheap snapshots, is durable when it says so, and holds tokens alone."""

import random
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from s3t.core import Stage
from s3t.errors import ClosedError, IntegrityError, RunFolderError, StorageError
from s3t.ledger import Ledger, PostgresAddress, SliceState, Snapshot, schema
from s3t.ledger.rows import Rows
from s3t.ledger.schema import metadata
from s3t.results.base import utc
from testing.trained import commit
from tests.ledger.world import (
    OLD,
    PERSON,
    PLACES,
    ROWS,
    STAGES,
    accept,
    erase,
    erase_within,
    make_ledger,
    open_ledger,
    settle,
    states,
    taking,
    token,
)

FIRST = next(iter(STAGES))


def test_a_new_ledger_holds_what_it_was_given_and_is_found_again_as_it_was_left(ledger, address):
    snapshot = ledger.snapshot()
    assert (snapshot.generation, snapshot.stages, snapshot.waiting_since) == (0, STAGES, None)
    assert snapshot.slices == states(ROWS.values())
    assert snapshot.slices[PLACES[2]].records == 4  # one row stands for three
    assert not snapshot.condemned
    with ledger.reading() as transaction:
        (first,) = transaction.history.log()
        assert (first.generation, first.records, first.state) == (0, 0, "erased")
        assert transaction.records_in(PLACES[2]) == [ROWS[5], ROWS[6]]
    accept(ledger, taking(3))
    left = ledger.snapshot()
    ledger.close()
    with closing(open_ledger(address)) as again:
        assert again.snapshot() == left


def test_one_that_was_closed_is_used_no_more(ledger):
    ledger.close()
    ledger.close()
    uses = (ledger.snapshot, ledger.confirm, ledger.key_destroyed_at, ledger.wipe, lambda: accept(ledger, taking(3)))
    for use in uses:
        with pytest.raises(ClosedError, match="was closed; open it again"):
            use()
    with closing(ledger.again()) as again:
        assert again.snapshot().generation == 0


def test_a_missing_ledger_is_not_made_anew_and_one_that_cannot_be_made_leaves_nothing(address):
    with pytest.raises((IntegrityError, RunFolderError), match="backup"):
        open_ledger(address)
    if isinstance(address, Path):
        assert not address.exists()
    twice = [ROWS[1], ROWS[1]]
    with pytest.raises(StorageError):
        Ledger.create(address, slices=states(twice), records=twice)
    with pytest.raises((IntegrityError, RunFolderError), match="no ledger"):
        open_ledger(address)


def test_a_second_ledger_is_not_made_over_the_first(ledger, address):
    with pytest.raises(StorageError, match="ledger refused"):
        Ledger.create(address, slices=states(()), records=())
    assert ledger.snapshot().slices == states(ROWS.values())


def test_a_dropped_ledger_is_gone_from_the_server(schema_of_its_own):
    with closing(make_ledger(schema_of_its_own)) as ledger:
        ledger.drop()
    with pytest.raises(RunFolderError, match="no ledger"):
        open_ledger(schema_of_its_own)


def test_the_destruction_of_the_key_is_noted_with_its_time(ledger, other):
    assert ledger.key_destroyed_at() is None
    with ledger.writing() as transaction:
        transaction.history.note_key_destroyed()
        (made,) = transaction.history.log()
    assert 0 <= other.key_destroyed_at() - int(made.accepted_at.timestamp()) < 60


CHANGES = {
    "acceptance": lambda transaction: transaction.accept([taking(3)]),
    "a new stage": lambda transaction: commit(transaction, FIRST, "another", seen={}),
    "a stage forgotten": lambda transaction: transaction.forget_stages({FIRST: STAGES[FIRST]}),
    "a version to come": lambda transaction: transaction.rows.condemn(versions=[(PLACES[0], "2" * 64)]),
    "a version superseded": lambda transaction: transaction.supersede(PLACES[0], old=OLD, new="2" * 64, gone=[]),
    "an orphan": lambda transaction: transaction.rows.condemn(artifacts={(0, "orphan")}),
}


@pytest.mark.integration
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_snapshot_is_read_again_only_when_something_has_changed(change, ledger, other, monkeypatch):
    first = ledger.snapshot()
    assert ledger.snapshot() is first
    with other.writing() as transaction:
        change(transaction)
        inside = transaction.snapshot()  # sees what its own transaction did
    second = ledger.snapshot()
    assert second == inside != first
    assert second.changes > first.changes
    assert ledger.snapshot() is second


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_snapshot_of_what_was_rolled_back_is_never_used(change, ledger):
    before = ledger.snapshot()
    undone = failed(ledger, change)
    assert undone != before
    assert ledger.snapshot() == before
    accept(ledger, taking(5))  # raises the number of changes to the one that was rolled back
    with ledger.writing() as transaction:
        assert transaction.snapshot() == ledger.snapshot() != undone


def test_a_snapshot_of_what_was_rolled_back_is_none_of_what_another_process_did(ledger, other):
    """Their numbers of changes are the same."""
    for change in CHANGES.values():
        undone = failed(ledger, change)
        with other.writing() as transaction:
            while transaction.snapshot().changes < undone.changes:
                transaction.rows.note_change()
        assert undone.changes == other.snapshot().changes
        assert ledger.snapshot() == other.snapshot() != undone


@pytest.mark.parametrize("seed", range(2))
def test_a_snapshot_that_reads_what_is_new_alone_is_one_that_reads_everything(seed, ledger, other):
    generator = random.Random(seed)
    stages = [Stage(0, (0,)), Stage(0, (1,)), Stage(0, (0, 1)), Stage(1, (0,))]
    for number in range(20):
        acting, (looking, late) = generator.choice((ledger, other)), generator.sample((ledger, other), 2)
        with acting.writing() as transaction:
            live = transaction.snapshot().stages
            if generator.random() < 0.4:
                gone = {stage: key for stage, key in live.items() if generator.random() < 0.5}
                transaction.accept([replace(taking(), tainted=gone)])
            if generator.random() < 0.7:
                commit(transaction, generator.choice(stages), f"key {number}", seen={})
        seen = looking.snapshot()
        if generator.random() < 0.3:
            assert late.snapshot() == seen
        with closing(open_ledger(ledger._address)) as again:
            assert again.snapshot() == seen
            assert again.snapshot().stages == seen.stages


def test_of_a_stage_that_is_committed_nothing_else_is_read(ledger, other, monkeypatch):
    ledger.snapshot(), other.snapshot()
    rows, wrong = [], Rows.wrong
    spied = lambda self, table, found: rows.extend([table.name] * len(found)) or wrong(self, table, found)  # noqa: E731
    monkeypatch.setattr(Rows, "wrong", spied)
    with ledger.writing() as transaction:
        assert commit(transaction, Stage(1, (0, 1)), "new", seen={})
    assert Stage(1, (0, 1)) in ledger.snapshot().stages
    assert (rows.count("stages"), rows.count("slices")) == (1, 0)  # its own
    rows.clear()
    assert other.snapshot() == ledger.snapshot()
    assert rows.count("stages") == 2  # those of its shard


def failed(ledger, change) -> Snapshot:
    """What a transaction saw that failed in the end."""
    with suppress(KeyError), ledger.writing() as transaction:
        change(transaction)
        seen = transaction.snapshot()
        raise KeyError
    return seen


def test_erasure_and_settling_change_snapshots_too(ledger, other):
    accept(ledger, taking(3, 5))
    pending = other.snapshot()
    erase(ledger)
    erased = other.snapshot()
    assert (pending.condemned, erased.condemned) == (True, False)
    assert erased.slices[PLACES[1]] == SliceState(records=1, digest="1" * 64, pending=False)
    with ledger.writing() as transaction:
        transaction.settle()
        received = transaction.history.log([1])[0].received_at
    last = other.snapshot()
    assert (utc(erased.waiting_since), last.waiting_since) == (received, None)
    with ledger.writing() as transaction:  # a note is no part of a snapshot
        transaction.history.note_request(b"k" * 32, content=b"c" * 32, names=1, deleted=0)
        transaction.history.remember([token(99)], generation=0)
        transaction.note_removed([])
        assert transaction.rows.note("no such name") == 0
    assert other.snapshot() is last


def test_an_error_within_a_transaction_leaves_nothing_of_it(ledger, address):
    everything = dump(ledger)

    def change(transaction):
        transaction.accept([taking(1, 2), taking(3)])
        transaction.history.note_request(b"k" * 32, content=b"c" * 32, names=1, deleted=3)
        transaction.history.remember([token(99)], generation=1)
        transaction.rows.condemn(versions=[(PLACES[0], "3" * 64)])
        transaction.supersede(PLACES[0], old=OLD, new="2" * 64, gone=[])
        transaction.history.note_key_destroyed()

    failed(ledger, change)
    assert dump(ledger) == everything


def dump(ledger):
    """Every row of every table."""
    with ledger.engine.connect() as connection:
        return {table.name: sorted(map(repr, connection.execute(table.select()))) for table in metadata.sorted_tables}


def test_a_reading_transaction_sees_one_state_and_writes_nothing(ledger, other):
    with ledger.reading() as transaction:
        before = transaction.history.log()
        accept(other, taking(3))
        assert transaction.history.log() == before
        assert transaction.snapshot().generation == 0
    assert ledger.snapshot().generation == 1


def test_who_only_reads_is_refused_to_write_by_the_server(schema_of_its_own):
    with closing(make_ledger(schema_of_its_own)) as ledger:
        with pytest.raises(StorageError, match="read-only"), ledger.reading() as transaction:
            transaction.accept([taking(3)])
        assert ledger.snapshot().generation == 0


def test_commits_are_on_the_disk_when_they_return(ledger, address):
    with ledger.engine.connect() as connection:
        if isinstance(address, PostgresAddress):
            names, query = ("synchronous_commit", "fsync"), "SHOW {}"
            expected = {"synchronous_commit": "on", "fsync": "on"}
        else:
            names, query = ("journal_mode", "synchronous", "secure_delete", "foreign_keys"), "PRAGMA {}"
            expected = {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "foreign_keys": 1}
        assert {name: connection.execute(text(query.format(name))).scalar() for name in names} == expected


def test_commits_are_durable_whatever_the_server_prefers(postgres):
    url = postgres.create_database("careless")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("ALTER DATABASE careless SET synchronous_commit = off"))
    engine.dispose()
    address = PostgresAddress.of(url, run="careful")
    with closing(make_ledger(address)) as ledger, ledger.engine.connect() as connection:
        assert connection.execute(text("SHOW synchronous_commit")).scalar() == "on"


def test_a_damaged_file_is_told_as_such_and_a_server_that_does_not_answer(tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"this is no database, but long enough to be looked at" * 20)
    with pytest.raises(IntegrityError, match=r"ledger is damaged \(file is not a database\).*reconcile"):
        open_ledger(path)
    with pytest.raises(StorageError, match="database answers") as caught:
        open_ledger(PostgresAddress.of(f"postgresql://me:hush@/none?host={tmp_path}", run="x"))
    assert "hush" not in str(caught.value)


# Slice numbers; a machine; files and folders outside; names of ours; hashes of what was exported, and of slices;
# holders of bearer tokens, and what they may do; kinds of errors; what an operator says of a refusal.
FREE_TEXT = """prefix others host path beside name output files keys digests scopes asked_by error id held why
    decided_by reason device label"""
HASHES = "token subject request content digest session mark mac manifest key stage_key"
NUMBERS = """generation records shard slice segment copies names deleted process value answers per_minute stages trained
    share attempts is_subject approved deletion depth depth_before after asked addition added_at readmitted
    number"""
TIMES = """received_at accepted_at effective_at erased_at seen_at seconds announced_at made_at withdrawn_at created_at
    expires_at revoked_at asked_at ended_at hours decided_at done_at changed_at since"""


def test_a_ledger_holds_tokens_alone(ledger):
    """Every column is a number, a time, a digest, a keyed hash, or a name of ours; none could hold a record."""
    names = {column.name for table in metadata.sorted_tables for column in table.columns}
    assert names == {*f"{FREE_TEXT} {HASHES} {NUMBERS} {TIMES}".split()}
    accept(ledger, taking(1, 2, request=b"k" * 32))
    with ledger.engine.connect() as connection:
        for table in metadata.sorted_tables:
            for found in connection.execute(table.select()).mappings():
                for name, value in found.items():
                    if isinstance(value, bytes | memoryview):
                        assert len(value) == (16 if name == "mac" else 32), (table.name, name)


def test_what_was_present_leaves_the_files_with_the_log(tmp_path):
    """With secure_delete and the log wiped, the token of what was taken is in the list of the deleted alone.

    SQLite keeps a BLOB primary key there twice: in the table, and in its index.
    """
    path = tmp_path / "ledger.sqlite"
    with closing(make_ledger(path)) as ledger:
        accept(ledger, taking(1, 2, 3))
        erase(ledger)
        settle(ledger)
        assert ledger.wipe()
        assert not path.with_name("ledger.sqlite-wal").read_bytes()
        content = path.read_bytes()
    assert (content.count(token(3)), content.count(PERSON)) == (2, 2)


def test_a_wiped_log_waits_for_a_reader_only_a_moment(ledger, other, monkeypatch):
    """A dump of the database, say: PostgreSQL's VACUUM leaves the rows that it may still read, and says nothing."""
    monkeypatch.setattr("s3t.ledger.ledger._CHECKPOINT_SECONDS", 0.1)
    with other.reading() as transaction:
        transaction.history.log()
        accept(ledger, taking(1, 2, 3))
        erase(ledger)
        assert not ledger.wipe()
    assert ledger.wipe()


def test_the_log_does_not_grow_for_as_long_as_a_ledger_is_open(tmp_path, monkeypatch):
    monkeypatch.setattr("s3t.ledger.ledger._LONG_LOG_BYTES", 2**16)
    with closing(make_ledger(tmp_path / "ledger.sqlite")) as ledger:
        for number in range(40):
            with ledger.writing() as transaction:
                transaction.history.remember([token(100 + 100 * number + one) for one in range(100)], generation=0)
        size = (tmp_path / "ledger.sqlite-wal").stat().st_size
    assert size < 12 * 2**16  # of 29 that were written


def test_closing_writes_the_log_back_whoever_else_has_it_open(tmp_path):
    """SQLite itself does that only for the last one, and hides a failed fsync of it."""
    path = tmp_path / "ledger.sqlite"
    ledger = make_ledger(path)
    with closing(sqlite3.connect(path)) as another:
        another.execute("SELECT 1 FROM slices").fetchall()
        accept(ledger, taking(3))
        ledger.close()
        (tmp_path / "alone.sqlite").write_bytes(path.read_bytes())
    with closing(sqlite3.connect(tmp_path / "alone.sqlite")) as alone:
        assert alone.execute("SELECT max(generation) FROM generations").fetchone() == (1,)


def test_dead_rows_leave_the_server(schema_of_its_own):
    with closing(make_ledger(schema_of_its_own)) as ledger:
        accept(ledger, taking(1, 2, 3))
        erase(ledger)
        settle(ledger)
        assert ledger.wipe()
        with ledger.engine.connect() as connection:
            assert connection.execute(text("SELECT pg_relation_size('erasing_records')")).scalar() == 0


def test_rows_that_others_change_meanwhile_keep_nobody_from_wiping(schema_of_its_own):
    done = threading.Event()

    def work():
        with closing(open_ledger(schema_of_its_own)) as other:
            while not done.is_set():
                with other.writing() as transaction:
                    transaction.rows.connection.execute(schema.slices.update().values(digest=schema.slices.c.digest))

    with closing(make_ledger(schema_of_its_own)) as ledger, ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            for _ in range(10):
                assert ledger.wipe()
        finally:
            done.set()
        working.result(timeout=60)


WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


def test_writers_that_wait_keep_no_dead_rows(schema_of_its_own):
    """Of the writer that they wait for, say: wiping waits among them, and they wait for wiping."""

    def until_waiting(writers):
        while look.execute(text(WAITING)).scalar_one() < writers:
            time.sleep(0.01)

    with ExitStack() as opened, ThreadPoolExecutor() as threads:
        ledger, reader, remover, writer = (
            opened.enter_context(closing(take(schema_of_its_own))) for take in (make_ledger, *[open_ledger] * 3)
        )
        look = opened.enter_context(ledger.engine.connect()).execution_options(isolation_level="AUTOCOMMIT")
        with reader.reading() as transaction:  # because of it, wiping cannot do without the writers' lock
            transaction.history.log()
            accept(ledger, taking(1, 2, 3))
            with remover.writing() as removing:
                erase_within(removing)
                wiped = threads.submit(ledger.wipe)
                until_waiting(1)
                accepted = threads.submit(accept, writer, taking(4))
                until_waiting(2)
        assert wiped.result(timeout=60)
        accepted.result(timeout=60)


def test_what_is_in_use_when_it_is_closed_is_closed_when_it_is_given_back(ledger):
    """By another thread, say: nobody else would ever close it."""
    with ledger.reading() as transaction:
        connection = transaction.rows.connection.connection.dbapi_connection
        ledger.close()
    with pytest.raises(Exception, match="closed"):
        connection.cursor().execute("SELECT 1")


def test_every_generation_has_a_mark_of_its_own(ledger, other):
    accept(ledger, taking(3), taking(5))
    with ledger.reading() as transaction, other.reading() as another:
        marks = transaction.history.marks()
        assert (list(marks), len({*marks.values()})) == ([0, 1, 2], 3)
        assert another.history.marks() == marks
