"""A child that was forked off while its parent had a ledger in SQLite open is refused one; the parent loses nothing."""

import gc
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

import pytest
from sqlalchemy import text

from s3t.errors import ClosedError, ForkedError
from s3t.ledger import Ledger
from s3t.ledger import ledger as ledgers
from tests.ledger.world import accept, open_ledger, taking

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def no_ledger_of_other_tests(monkeypatch):
    """Runs that other tests of this process left open would count as the parent's."""
    monkeypatch.setattr(ledgers, "_open", WeakSet())


@pytest.fixture
def address(tmp_path):
    return tmp_path / "ledger.sqlite"


@contextmanager
def child(act):
    """Fork; inside the block both live. The child does `act` and must come to its end."""
    process = os.fork()
    if process == 0:
        try:
            act()
            os._exit(0)
        finally:  # or pytest would go on in two processes
            os._exit(1)
    yield
    assert os.waitpid(process, 0)[1] == 0


def refused(address):
    with pytest.raises(ForkedError, match="spawn"):
        open_ledger(address)


def test_a_child_is_refused_while_its_parent_has_a_ledger_open_and_so_are_its_own_children(ledger, address):
    def act():
        ledger.close()  # the parent's, and left alone
        gc.collect()
        refused(address)
        with child(lambda: refused(address)):
            pass

    with ledger.writing() as transaction:
        with child(act):
            pass
        transaction.touch()
    accept(ledger, taking(3))
    assert ledger.snapshot().generation == 1


@pytest.mark.integration
def test_a_child_that_drops_its_parents_ledger_is_refused_all_the_same(address, made):
    ledgers = [open_ledger(shutil.copy(made, address))]

    def act():
        ledgers.clear()
        gc.collect()
        refused(address)

    with child(act):
        pass
    assert ledgers[0].snapshot().generation == 0  # the parent's is whole
    ledgers.pop().close()


def test_a_child_of_a_parent_that_has_closed_its_ledger_opens_its_own(ledger, address):
    ledger.close()

    def act():
        accept(open_ledger(address), taking(3))  # killed then: nothing is written back by a last connection that closes

    with child(act):
        pass
    with closing(open_ledger(address)) as again:
        assert again.snapshot().generation == 1


def open_files(address):
    """The ledger's files that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed since, as that of the listing
            found.append(link.readlink())
    return [path.name for path in found if path.parent == address.parent]


sees_open_files = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system has no /proc")


@sees_open_files
def test_an_interrupt_whose_traceback_is_kept_keeps_nothing_open(ledger, address):
    def read():
        with ledger.reading() as transaction:
            rows = transaction.rows.connection.execute(text("SELECT * FROM records"))
            next(rows)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:  # as a notebook keeps the last one, and with it `rows`
        read()
    accept(ledger, taking(3))
    assert ledger.wipe()  # nor does it read on
    ledger.close()
    assert not open_files(address)
    assert kept.tb is not None


def read(ledger):
    with ledger.reading() as transaction:
        transaction.snapshot()


@sees_open_files
@pytest.mark.parametrize("act", [read, Ledger.version])
def test_a_reader_that_a_close_overtakes_keeps_nothing_open(ledger, address, monkeypatch, act):
    reading, closed = threading.Event(), threading.Event()

    def slow():
        if threading.current_thread() is not threading.main_thread():
            reading.set()
            closed.wait()

    monkeypatch.setattr("s3t.ledger.ledger.refuse_after_failed_fsync", slow)
    with ThreadPoolExecutor(1) as pool:
        overtaken = pool.submit(act, ledger)
        reading.wait()
        ledger.close()
        closed.set()
        assert isinstance(overtaken.exception(), ClosedError | None)
    assert not open_files(address)


@pytest.mark.integration
@sees_open_files
def test_one_that_was_dropped_keeps_nothing_open(address, made):
    shutil.copy(made, address)
    gc.collect()
    gc.disable()  # what lies in a cycle stays
    try:
        ledger = open_ledger(address)
        ledger.snapshot()
        assert open_files(address)
        del ledger
        assert not open_files(address)
    finally:
        gc.enable()
