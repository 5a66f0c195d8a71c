"""The run's lock: one thread of one process at a time, again by the same thread, and free when its holder is gone."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from sqlalchemy import text

from s3t.errors import StorageError
from s3t.ledger import PostgresAddress, locks
from s3t.ledger.locks import hold
from tests.ledger import another_process
from tests.ledger.world import make_ledger, open_ledger


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lock"


@pytest.fixture
def lock(ledger, path):
    return ledger.lock(path)


def elsewhere(lock):
    """Whether another thread can have it, now."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(taken_for_a_moment, lock).result(timeout=30)


def taken_for_a_moment(lock):
    with lock.try_hold(wait=0) as mine:
        return mine


def test_nobody_else_has_it_until_the_outermost_gives_it_back(lock, other, path):
    strangers = other.lock(path)
    with suppress(KeyError), hold(lock):
        with hold(lock):
            assert not elsewhere(lock)
        assert not elsewhere(lock)
        assert not taken_for_a_moment(strangers)  # another handle of this very thread
        assert not taken_for_a_moment(strangers)  # what could not be taken was not given back
        raise KeyError
    assert elsewhere(lock)
    for _ in range(20):  # in the very moment: who only tries must not find it held by somebody who is gone
        assert taken_for_a_moment(strangers)
        assert taken_for_a_moment(lock)


def test_who_needs_it_waits_only_so_long(lock, other, path, monkeypatch):
    """Its holder may be stopped, or hang."""
    monkeypatch.setattr(locks, "NEEDED_SECONDS", 0.3)
    strangers = other.lock(path)
    with hold(lock):
        started = time.monotonic()
        with pytest.raises(StorageError, match="has held the run's lock for 0 seconds"), hold(strangers):
            raise AssertionError
        with strangers.try_hold(wait=0.3) as mine:
            assert not mine
        assert 0.6 <= time.monotonic() - started < 10


END_HOLDER = """SELECT pg_terminate_backend(pid, 10000) FROM pg_locks
    WHERE locktype = 'advisory' AND objid = CAST(CAST(hashtext(:schema) AS bigint) & 4294967295 AS oid)"""


def test_a_lost_connection_gives_it_back(schema_of_its_own, path):
    with closing(make_ledger(schema_of_its_own)) as ledger, closing(open_ledger(schema_of_its_own)) as other:
        lock, strangers = ledger.lock(path), other.lock(path)
        with hold(lock):
            with other.reading() as transaction:
                transaction.rows.connection.execute(text(END_HOLDER), {"schema": schema_of_its_own.schema})
            assert taken_for_a_moment(strangers)
        assert taken_for_a_moment(lock)


@pytest.mark.parametrize("handles", ["one handle", "a handle each"])
def test_threads_hold_it_one_after_the_other(handles, ledger, other, path):
    locks = [ledger.lock(path), (ledger if handles == "one handle" else other).lock(path)]
    inside, most = [], []

    def work(lock):
        for _ in range(5):
            with hold(lock):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.005)
                inside.pop()

    with ThreadPoolExecutor(4) as pool:
        for job in [pool.submit(work, locks[number % 2]) for number in range(4)]:
            job.result(timeout=60)
    assert most == [1] * 20


def test_another_process_has_it_alone_and_it_is_free_when_that_is_killed(lock, address, path):
    process = another_process.start("hold", address, path)
    assert not taken_for_a_moment(lock)
    another_process.kill(process)
    with lock.try_hold(wait=30) as mine:
        assert mine


def test_locks_of_two_runs_have_nothing_to_do_with_each_other(schema_of_its_own, database, path):
    """Of a database that holds several."""
    neighbour = PostgresAddress.of(database, run="neighbour")
    with (
        closing(make_ledger(schema_of_its_own)) as ledger,
        closing(make_ledger(neighbour)) as other,
        hold(ledger.lock(path)),
    ):
        assert taken_for_a_moment(other.lock(path))
