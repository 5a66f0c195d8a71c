"""Writers come one after the other, whoever they are; nothing that was said to be durable is lost."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from s3t.errors import StorageError
from s3t.ledger.locks import hold
from tests.ledger import another_process
from tests.ledger.world import MANY, make_ledger_of_many, one_of_many, open_ledger, tokens_since

pytestmark = pytest.mark.integration


@pytest.fixture
def handles(address):
    """Two, as two open runs have."""
    with closing(make_ledger_of_many(address)) as one, closing(open_ledger(address)) as other:
        yield one, other


def accept(ledger, numbers):
    """One deletion a transaction; the generations."""
    made = []
    for number in numbers:
        with ledger.writing() as transaction:
            made += transaction.accept([one_of_many(number)])
    return made


def assert_nothing_is_lost(address, *, gone):
    with closing(open_ledger(address)) as ledger, ledger.reading() as transaction:
        deleted, log = tokens_since(transaction, 0), transaction.history.log()
        snapshot = transaction.snapshot()
        located = transaction.locate(records=[found.token for found in MANY], subjects=())
        if isinstance(address, Path):
            connection = transaction.rows.connection
            assert connection.execute(text("PRAGMA integrity_check")).scalars().all() == ["ok"]
            assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
    assert sorted(token for tokens in deleted.values() for token in tokens) == sorted(MANY[n].token for n in gone)
    assert [entry.generation for entry in log] == list(range(len(gone) + 1))
    assert all(entry.records == 1 for entry in log[1:])
    assert [entry.received_at for entry in log] == sorted(entry.received_at for entry in log)
    assert {found.token for found in located.rows} == {found.token for found in MANY} - located.gone.keys()
    assert snapshot.generation == len(gone)
    assert sum(state.records for state in snapshot.slices.values()) == len(MANY) - len(gone)


def test_readers_see_whole_transactions_alone(handles):
    done, torn = threading.Event(), []

    def read():
        while not done.is_set():
            with handles[0].reading() as transaction:
                generation = transaction.snapshot().generation
                deleted = transaction.history.deleted_since(0)
            snapshot = handles[0].snapshot()
            whole = sum(state.records for state in snapshot.slices.values()) == len(MANY) - snapshot.generation
            if len(deleted) != generation or not whole:
                torn.append((generation, len(deleted), snapshot))

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            accept(handles[1], range(40))
        finally:
            done.set()
        for reader in readers:
            reader.result()
    assert torn == []


def test_threads_and_other_processes_lose_nothing(handles, address):
    processes = [another_process.start("accept", address, part, 40, 2) for part in range(2)]
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(accept, handles[part % 2], range(40 + part, 80, 4)) for part in range(4)]
        made = [generation for job in jobs for generation in job.result()]
    for process in processes:
        another_process.finish(process)
    assert len({*made}) == 40  # none was given twice
    assert_nothing_is_lost(address, gone=range(80))


def test_a_process_killed_within_a_transaction_leaves_nothing_and_holds_nobody_up(handles, address):
    process = another_process.start("die within a transaction", address)
    another_process.kill(process)
    assert accept(handles[0], [5, 0]) == [1, 2]
    assert_nothing_is_lost(address, gone=[5, 0])


def test_a_writer_waits_for_another_process(handles, address):
    process = another_process.start("die within a transaction", address)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(accept, handles[0], [5])
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.3)
        assert handles[1].snapshot().generation == 0  # readers wait for nobody
        another_process.finish(process)
        assert waiting.result(timeout=30) == [2]
    assert_nothing_is_lost(address, gone=[0, 5])


def test_a_writer_waits_for_one_that_hangs_only_so_long(address, monkeypatch):
    """It may be stopped, and nobody may come to look at it."""
    monkeypatch.setattr("s3t.ledger.engines.BUSY_TIMEOUT_SECONDS", 1)
    with closing(make_ledger_of_many(address)) as ledger, ThreadPoolExecutor(1) as pool:
        process = another_process.start("die within a transaction", address)
        waiting = pool.submit(accept, ledger, [5])
        done, _ = wait([waiting], timeout=20)
        another_process.kill(process)  # in any case: else this test would wait as long
        assert done
        with pytest.raises(StorageError, match="Wait for the process that holds it, then run the same command again"):
            waiting.result()
        assert accept(ledger, [5]) == [1]
    assert_nothing_is_lost(address, gone=[5])


def test_the_runs_lock_is_waited_for_as_long_as_it_takes(address, monkeypatch, tmp_path):
    """Erasing gigabytes takes longer than any transaction; nor is it idle in one."""
    make_ledger_of_many(address).close()
    monkeypatch.setattr("s3t.ledger.engines.BUSY_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr("s3t.ledger.engines.IDLE_TIMEOUT_SECONDS", 1)

    def wait_for_it(ledger):
        with hold(ledger.lock(tmp_path / "lock")):
            return time.monotonic()

    with closing(open_ledger(address)) as ledger, closing(open_ledger(address)) as other, ThreadPoolExecutor(1) as pool:
        with hold(ledger.lock(tmp_path / "lock")):
            waiting = pool.submit(wait_for_it, other)
            time.sleep(2)
            let_go = time.monotonic()
        assert waiting.result(timeout=30) >= let_go


@pytest.mark.parametrize("late", ["at its end", "before"])
def test_a_writer_that_hangs_is_thrown_out_and_knows_it(late, schema_of_its_own, monkeypatch):
    """By PostgreSQL; else it would keep all hosts from deleting for as long as it hangs."""
    other = make_ledger_of_many(schema_of_its_own)
    monkeypatch.setattr("s3t.ledger.engines.IDLE_TIMEOUT_SECONDS", 1)
    ledger = open_ledger(schema_of_its_own)

    def hang():
        with ledger.writing() as transaction:
            transaction.accept([one_of_many(0)])
            assert accept(other, [5]) == [1]  # it waits for its turn, and gets that
            if late == "before":
                transaction.snapshot()

    with pytest.raises(StorageError, match=r"idle-in-transaction timeout.*See that the database answers"):
        hang()
    assert accept(ledger, [7]) == [2]  # it may go on
    for opened in (ledger, other):
        opened.close()
    assert_nothing_is_lost(schema_of_its_own, gone=[5, 7])
