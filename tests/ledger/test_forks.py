"""A child that was forked off opens the same ledger in SQLite, and neither loses what the other writes."""

import os
import threading
import time
from contextlib import contextmanager

import pytest

from s3t.errors import ForkedError
from s3t.ledger import Ledger
from s3t.ledger.forks import Forks
from tests.ledger.world import accept, taking

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
    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join()


def test_what_a_child_writes_stays_when_its_parent_closes(ledger, address):
    opened, closed = Signal(), Signal()

    def act():
        own = Ledger.open(address)
        assert own.snapshot().generation == 0
        opened.say()
        closed.wait()
        accept(own, taking(3))  # killed then: nothing is written back by a last connection that closes

    with child(act):
        opened.wait()
        ledger.close()
        closed.say()
    again = Ledger.open(address)
    assert again.snapshot().generation == 1
    again.close()


def test_a_parent_waits_for_the_rows_that_a_child_still_reads(ledger, address):
    reading, wiped = Signal(), Signal()

    def act():
        own = Ledger.open(address)
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
        own = Ledger.open(address)
        accept(own, taking(3))
        assert own.wipe()
        own.close()

    with in_a_thread(read):
        begun.wait()
        with child(act):
            pass
    assert ledger.snapshot().generation == 1


def test_threads_that_write_and_fork_do_not_hold_each_other_up(ledger, address):
    written, over = [], threading.Event()

    def write():
        while not over.is_set():
            with ledger.writing() as transaction:
                transaction.touch()
            written.append(1)

    def fork():
        for _ in range(3):
            before = len(written)
            with child(lambda: Ledger.open(address).confirm()):
                pass
            while len(written) == before:
                time.sleep(0.01)

    with in_a_thread(write):
        try:
            with in_a_thread(fork):
                fork()
        finally:
            over.set()


def test_a_child_of_a_transaction_is_told_that_it_cannot(ledger, address):
    def act():
        with pytest.raises(ForkedError, match="spawn"):
            Ledger.open(address)
        with child(act_again):  # nor can its own children
            pass

    def act_again():
        with pytest.raises(ForkedError, match="spawn"):
            Ledger.open(address)

    with ledger.writing() as transaction:
        with child(act):
            pass
        transaction.touch()
    accept(ledger, taking(3))
    assert ledger.snapshot().generation == 1


class Failing:
    """What cannot close its connections."""

    def let_go(self):
        raise OSError("the disk is gone")


def test_a_child_is_told_so_if_a_connection_could_not_be_closed():
    forks, failing = Forks(), Failing()
    forks.enter(failing)
    forks.before()
    forks.after_in_child()
    with pytest.raises(ForkedError, match="forked off while"):
        forks.enter(failing)


def test_what_left_is_asked_no_more():
    forks, failing = Forks(), Failing()
    forks.enter(failing)
    forks.leave(failing)
    forks.before()
    forks.after_in_child()
    forks.enter(failing)
