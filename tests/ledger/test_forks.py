"""A child that was forked off opens the same ledger in SQLite, and neither loses what the other writes."""

import gc
import os
import signal
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy import text

from s3t.errors import ForkedError
from s3t.ledger.forks import Forks
from tests.ledger.world import accept, make_ledger, open_ledger, taking

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


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


class Signal:
    """Something that one process waits for until the other says it."""

    def __init__(self):
        self.reading, self.writing = os.pipe()

    def say(self):
        os.write(self.writing, b"!")

    def wait(self):
        assert os.read(self.reading, 1) == b"!"


@contextmanager
def in_a_thread(act):
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    yield
    thread.join()


def test_what_a_child_writes_stays_when_its_parent_closes(ledger, address):
    opened, closed = Signal(), Signal()

    def act():
        own = open_ledger(address)
        assert own.snapshot().generation == 0
        opened.say()
        closed.wait()
        accept(own, taking(3))  # killed then: nothing is written back by a last connection that closes

    with child(act):
        opened.wait()
        ledger.close()
        closed.say()
    again = open_ledger(address)
    assert again.snapshot().generation == 1
    again.close()


def test_a_parent_waits_for_the_rows_that_a_child_still_reads(ledger, address):
    reading, wiped = Signal(), Signal()

    def act():
        own = open_ledger(address)
        with own.reading() as transaction:
            assert transaction.log()
            reading.say()
            wiped.wait()
            assert len(transaction.log()) == 1  # of its own state, after the parent's deletion

    with child(act):
        reading.wait()
        accept(ledger, taking(3))
        assert not ledger.wipe()
        wiped.say()
    assert ledger.wipe()


def test_a_fork_waits_for_other_threads_that_read(ledger, address):
    begun = threading.Event()

    def read():
        with ledger.reading() as transaction:
            assert transaction.log()
            begun.set()
            time.sleep(0.3)

    def act():
        own = open_ledger(address)
        accept(own, taking(3))
        assert own.wipe()
        own.close()

    with in_a_thread(read):
        begun.wait()
        with child(act):
            pass
    assert ledger.snapshot().generation == 1


def test_threads_that_write_and_fork_do_not_hold_each_other_up(ledger, address):
    written, went_on, over = [], [], threading.Event()

    def write():
        while not over.is_set():
            with ledger.writing() as transaction:
                transaction.touch()
            written.append(1)

    def fork():
        for _ in range(3):
            before = len(written)
            with child(lambda: open_ledger(address).confirm()):
                pass
            until = time.monotonic() + 60
            while len(written) == before and time.monotonic() < until:
                time.sleep(0.01)
            went_on.append(len(written) > before)

    with in_a_thread(write):
        try:
            with in_a_thread(fork):
                fork()
        finally:
            over.set()
    assert went_on == [True] * 6


def test_a_child_of_a_transaction_is_told_that_it_cannot(ledger, address):
    def act():
        with pytest.raises(ForkedError, match="spawn"):
            open_ledger(address)
        with child(act_again):  # nor can its own children
            pass

    def act_again():
        with pytest.raises(ForkedError, match="spawn"):
            open_ledger(address)

    with ledger.writing() as transaction:
        with child(act):
            pass
        transaction.touch()
    accept(ledger, taking(3))
    assert ledger.snapshot().generation == 1


def open_files(address):
    """The ledger's files that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed since, as that of the listing
            found.append(link.readlink())
    return [path.name for path in found if path.parent == address.parent]


def refuse_open_files(address):
    if files := open_files(address):
        raise AssertionError(files)


sees_open_files = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system has no /proc")


@sees_open_files
def test_an_interrupt_whose_traceback_is_kept_keeps_nothing_open(ledger, address):
    def read():
        with ledger.reading() as transaction:
            rows = transaction._connection.execute(text("SELECT * FROM records"))
            next(rows)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:  # as a notebook keeps the last one, and with it `rows`
        read()
    accept(ledger, taking(3))
    assert ledger.wipe()  # nor does it read on
    with child(lambda: refuse_open_files(address)):
        pass
    assert kept.tb is not None


@sees_open_files
def test_a_reader_that_a_close_overtakes_keeps_nothing_open(ledger, address, monkeypatch):
    reading, closed = threading.Event(), threading.Event()

    def slow():
        if threading.current_thread() is reader:
            reading.set()
            closed.wait()

    monkeypatch.setattr("s3t.ledger.ledger.refuse_after_failed_fsync", slow)
    reader = threading.Thread(target=ledger.snapshot)
    reader.start()
    reading.wait()
    ledger.close()
    closed.set()
    reader.join()
    assert not open_files(address)


@sees_open_files
def test_one_that_was_dropped_keeps_nothing_open(address):
    make_ledger(address).close()
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


def test_a_signal_s_handler_may_fork_while_its_thread_waits_to(ledger, address, monkeypatch):
    begun, handled = threading.Event(), threading.Event()

    def refused():
        with pytest.raises(ForkedError):
            open_ledger(address)

    def handle(*_):
        with child(refused):
            pass
        handled.set()

    def read():
        with ledger.reading() as transaction:
            assert transaction.log()
            begun.set()
            time.sleep(0.3)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            assert handled.wait(60)

    monkeypatch.setattr("s3t.ledger.forks._PATIENCE_SECONDS", 60)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with in_a_thread(read):
            begun.wait()
            with child(lambda: open_ledger(address).confirm()):
                pass
    finally:
        signal.signal(signal.SIGUSR1, before)
    ledger.confirm()


def test_a_fork_within_a_transaction_waits_for_no_other_fork(ledger, address, monkeypatch):
    begun, waiting = threading.Event(), threading.Event()

    def fork_within():
        with ledger.reading() as transaction:
            assert transaction.log()
            begun.set()
            assert waiting.wait(60)
            with child(lambda: None):
                pass

    def wait_for(self, predicate, timeout=None):
        waiting.set()
        return plain(self, predicate, timeout)

    plain = threading.Condition.wait_for
    monkeypatch.setattr(threading.Condition, "wait_for", wait_for)
    with in_a_thread(fork_within):
        begun.wait()
        waiting.clear()
        with child(lambda: open_ledger(address).confirm()):
            pass
    ledger.confirm()


def test_an_interrupt_of_a_fork_holds_nobody_up():
    forks = Forks()
    forks.before()
    forks.after_interrupt()  # the other was never called
    used = threading.Event()

    def use():
        with forks.using():
            used.set()

    with in_a_thread(use):
        assert used.wait(60)


class Failing:
    """What cannot close its connections."""

    asked = 0

    def let_go(self):
        self.asked += 1
        raise OSError("the disk is gone")


def test_a_child_is_told_so_if_a_connection_could_not_be_closed():
    forks, failing = Forks(), Failing()
    forks.enter(failing)
    forks.before()
    assert failing.asked == 1
    forks.after_in_child()
    with pytest.raises(ForkedError, match="forked off while"):
        forks.enter(failing)


def test_what_left_is_asked_no_more():
    forks, failing = Forks(), Failing()
    forks.enter(failing)
    forks.leave(failing)
    forks.before()
    assert failing.asked == 0
    forks.after_in_child()
    forks.enter(failing)  # the child is not told that it cannot
