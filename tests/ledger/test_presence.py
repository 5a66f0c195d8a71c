"""An open run as others see it: what it computes stops when a deletion came, and nothing of it stays behind."""

import gc
import logging
import threading
import time
from contextlib import contextmanager

import pytest
from sqlalchemy import select

from s3t.core import Stage
from s3t.errors import ClosedError, StorageError
from s3t.ledger import Ledger
from s3t.ledger import schema as tables
from s3t.ledger.presence import Leaving, Overtaken, Presence, Uses, Work
from s3t.ledger.sessions import LEASE_SECONDS, Sessions
from tests.ledger.test_sessions import behind, claim, claimed, unseen_for
from tests.ledger.world import accept, end, erase, settle, state, taking

STAGE, CHILD = Stage(0, (2,)), Stage(0, (2, 0))
PATIENCE = 10.0
"""Seconds for what takes a tenth of one."""


class Watching:
    """Memory and eraser of a run: does what a test says."""

    def __init__(self, *, moved=lambda snapshot: None, meanwhile=lambda: None):
        self.forget_stale, self.erase_meanwhile = moved, meanwhile


ANY = Uses()
"""Of a computation that no deletion stops."""


def all_of(snapshot):
    """Of a computation that every deletion stops."""
    return Uses(slices=snapshot.slices)


@pytest.fixture
def presence(ledger):
    """Of a run that nobody else has open; its next beat is far away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("s3t.ledger.presence.BEAT_SECONDS", 1000.0)
        presence = Presence(ledger, Watching())
        yield presence
        presence.close()


def working(presence):
    """A computation that no deletion stops."""
    return presence.working(presence._ledger.snapshot(), ANY)


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def refused(monkeypatch, method):
    """While within, the ledger refuses something."""

    def refuse(*_args, **_named):
        raise StorageError("the connection is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Sessions, method, refuse)
        yield


@pytest.mark.parametrize("leaving", [Leaving.LATER, Leaving.NEVER])
def test_what_cannot_leave_is_waited_for_before_erasure_alone(presence, other, leaving):
    before = presence._ledger.snapshot()
    with presence.working(before, all_of(before), leaving=leaving) as work:
        accept(other, taking(3))
        erase(other)
        presence.look()
        settle(other)
        assert (behind(other, 1), state(other)) == (1, "effective")
        assert not work.may_leave()
    presence.look()
    settle(other)
    assert state(other) == "erased"


def test_what_is_about_to_leave_is_waited_for_from_the_moment_it_asks(presence, other):
    before = presence._ledger.snapshot()
    with presence.working(before, all_of(before), leaving=Leaving.LATER) as work:
        assert work.may_leave()
        accept(other, taking(3))
        presence.look()
        assert (behind(other, 1), state(other)) == (1, "accepted")
    assert (behind(other, 1), state(other)) == (0, "effective")


def test_one_that_only_trains_is_waited_for_by_no_deletion_until_it_answers(presence, other):
    before = presence._ledger.snapshot()
    with presence.working(before, all_of(before), leaving=Leaving.NEVER):
        accept(other, taking(3))
        settle(other)
        assert (behind(other, 1), state(other)) == (1, "effective")  # and it has not looked
        with presence.working(presence._ledger.snapshot(), Uses()):
            accept(other, taking(1))
            settle(other)
            assert (behind(other, 2), state(other, 2)) == (1, "accepted")


def test_what_a_computation_puts_into_memory_at_last_is_let_go_of_before_it_has_moved(ledger, other, monkeypatch):
    """It has moved when what a deletion overtook has stopped, and not before."""
    monkeypatch.setattr("s3t.ledger.presence.POLL_SECONDS", 1000.0)
    told = []
    presence = Presence(ledger, Watching(moved=lambda snapshot: told.append((snapshot.generation, state(other)))))
    with presence.working(ledger.snapshot(), all_of(ledger.snapshot())) as work:
        accept(other, taking(3))
        presence.look()
        assert work.overtaken
        assert told == [(1, "accepted")]  # and here something is put back
        assert behind(other, 1) == 1
    assert told == [(1, "accepted")] * 2
    assert (behind(other, 1), state(other)) == (0, "effective")
    presence.close()


def test_a_deletion_that_came_before_the_session_was_known_stops_its_first_computation(presence, other):
    """It did not wait for a session that it could not see."""
    before = presence._ledger.snapshot()
    accept(other, taking(3))
    with pytest.raises(Overtaken):
        presence.working(before, all_of(before)).__enter__()


def test_a_computation_from_before_a_deletion_that_the_session_has_looked_at_is_not_begun(presence, other):
    """The deletion is effective: it waits for this session no more."""
    with working(presence):
        before = presence._ledger.snapshot()
        accept(other, taking(3))
        presence.look()
        assert (behind(other, 1), state(other)) == (0, "effective")
        with pytest.raises(Overtaken):
            presence.working(before, all_of(before)).__enter__()


@pytest.mark.parametrize("leaving", Leaving)
def test_what_runs_when_a_session_that_counted_as_dead_is_back_stops(presence, other, leaving, monkeypatch):
    """The deletion comes after this session has looked, and before the ledger has it again: nobody waits for it."""
    ledger = presence._ledger
    before, snapshot = ledger.snapshot(), ledger.snapshot

    def look_and_then():
        found = snapshot()
        end(other, presence.session.name)
        accept(other, taking(3))
        settle(other)
        assert state(other) == "effective"
        return found

    with presence.working(before, all_of(before), leaving=leaving) as work:
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "snapshot", look_and_then)
            presence.renew()
        assert work.overtaken
        assert not work.may_leave()


class _NotedBetween(Work):
    """The session's thread notes a deletion, and looks who is leaving, just when the computation says that it is."""

    @property
    def leaving(self):
        return self._leaving

    @leaving.setter
    def leaving(self, value):
        if value is Leaving.NOW and hasattr(self, "_leaving"):
            self.overtaken = True
            self.waited_for = self._leaving is Leaving.NOW
        self._leaving = value


def test_a_deletion_that_is_noted_while_a_result_asks_is_seen_or_waits(ledger):
    work = _NotedBetween(ANY, ledger, Leaving.LATER)
    assert not work.may_leave() or work.waited_for


@contextmanager
def made_and_lost(self, writing=Ledger.writing):
    """The connection breaks in just the moment after a commit."""
    with writing(self) as transaction:
        yield transaction
    raise StorageError("the outcome is unknown")


def test_a_claim_that_could_not_be_given_back_is_given_back_later(presence, other, monkeypatch):
    """The session lives on as a server: nobody would bury it, and others would wait for the stage for ever."""
    with working(presence):
        with refused(monkeypatch, "release"), refused(monkeypatch, "release_all_but"):
            with presence.claimed(STAGE) as ours:
                assert ours
            assert claimed(other) == {STAGE: presence.session.name}
            time.sleep(0.2)  # the thread is refused, too, and tries again
        until(lambda: claimed(other) == {})
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "writing", made_and_lost)
            with pytest.raises(StorageError, match="outcome is unknown"):
                presence.claimed(STAGE).__enter__()
        until(lambda: claimed(other) == {})
    assert claim(other, STAGE, presence.session)


def test_a_claim_on_what_is_being_trained_is_kept_and_no_other(presence, other, monkeypatch):
    monkeypatch.setattr("s3t.ledger.presence.BEAT_SECONDS", 0.05)
    with working(presence), presence.claimed(STAGE) as ours, presence.claimed(STAGE) as again:
        assert (ours, again) == (True, False)  # nor is it claimed by another thread
        assert claim(other, Stage(1, (0,)), presence.session)  # left for whatever reason
        with refused(monkeypatch, "release"), presence.claimed(CHILD):
            pass
        until(lambda: claimed(other) == {STAGE: presence.session.name})
        time.sleep(0.2)
        assert claimed(other) == {STAGE: presence.session.name}
    assert claimed(other) == {}


def test_erasing_for_longer_than_a_lease_stops_no_looking_and_no_beat(ledger, other, monkeypatch):
    """Another host would take the session for dead, and call a deletion effective that work here does not know of."""
    monkeypatch.setattr("s3t.ledger.presence.BEAT_SECONDS", 0.1)
    erasing, done, at_once, most = threading.Event(), threading.Event(), [], []

    def erase():
        at_once.append(1)
        most.append(len(at_once))
        erasing.set()
        done.wait(PATIENCE)
        at_once.pop()

    presence = Presence(ledger, Watching(meanwhile=erase))
    try:
        with presence.working(ledger.snapshot(), all_of(ledger.snapshot())) as work:
            assert erasing.wait(PATIENCE)
            unseen_for(other, presence.session, LEASE_SECONDS)
            until(lambda: seen_since(other, presence.session) < LEASE_SECONDS / 2)
            accept(other, taking(3))
            until(lambda: work.overtaken)
        until(lambda: behind(other, 1) == 0)
        assert most == [1]
    finally:
        done.set()
        presence.close()


def seen_since(ledger, session):
    """How long ago, in seconds."""
    with ledger.reading() as transaction:
        table = tables.sessions
        seen_at = transaction.rows.connection.execute(select(table.c.seen_at).where(table.c.session == session.name))
        return transaction.rows.now() - seen_at.scalar_one()


def test_one_that_counted_as_dead_says_so_when_it_is_back(presence, other, caplog):
    caplog.set_level("INFO", logger="s3t.sessions")
    with working(presence):
        presence.renew()
        assert caplog.text == ""
        end(other, presence.session.name)
        presence.renew()
    assert "lease lost: this process counted as dead" in caplog.text
    with other.reading() as transaction:
        assert len(transaction.sessions.silences()) == 1


@pytest.mark.parametrize("error", [StorageError("the disk is full"), AttributeError("forget")])
def test_what_is_done_meanwhile_may_fail_and_is_done_again(ledger, error, caplog):
    calls = []

    def fail():
        calls.append(1)
        raise error

    presence = Presence(ledger, Watching(meanwhile=fail))
    with working(presence), caplog.at_level(logging.WARNING):
        until(lambda: len(calls) > 2)
    presence.close()
    time.sleep(0.2)  # one may be in the midst of it
    made = len(calls)
    time.sleep(0.2)
    assert len(calls) == made  # the thread ends with the session, however often it failed
    assert reports_of("AttributeError", caplog) == isinstance(error, AttributeError)


def sessions(ledger):
    """Names of those that the ledger knows, alive or not: as another process would wait for them."""
    with ledger.reading() as transaction:
        return set(transaction.rows.connection.execute(select(tables.sessions.c.session)).scalars())


@pytest.mark.integration
def test_one_that_is_dropped_without_being_closed_is_waited_for_no_more(ledger, other, monkeypatch):
    """A notebook's, say. Its process lives on, and others can see no more than that."""
    presence = Presence(ledger, Watching())
    with working(presence), refused(monkeypatch, "enter"):
        accept(other, taking(3))
        assert sessions(other) == {presence.session.name}
        del presence  # what is under way keeps it
        gc.collect()
        time.sleep(0.5)
        assert state(other) == "accepted"
        assert len(sessions(other)) == 1
    gc.collect()
    until(lambda: sessions(other) == set())
    assert state(other) == "effective"
    until(lambda: ledger._closed)


@pytest.mark.parametrize("how", ["dropped", "closed"])
def test_one_that_ends_while_the_ledger_does_not_answer_is_ended_later(ledger, other, how, monkeypatch):
    monkeypatch.setattr("s3t.ledger.presence.BEAT_SECONDS", 0.1)
    had = [Presence(ledger, Watching())]
    with working(had[0]):
        pass
    with refused(monkeypatch, "end"):
        if how == "closed":
            had[0].close()
            ledger.close()
        else:
            had.clear()
            gc.collect()
        time.sleep(0.2)
        assert len(sessions(other)) == 1
    until(lambda: sessions(other) == set())


def test_one_that_is_closed_begins_nothing_and_is_not_known_again(presence, ledger, other):
    """What is under way stops, in another thread, say: no deletion waits for it any more."""
    snapshot = ledger.snapshot()
    with working(presence) as work:
        presence.close()
        presence.close()
        assert sessions(other) == set()
        with pytest.raises(Overtaken):
            work.check()
        for begin in (presence.working(snapshot, ANY), presence.claimed(STAGE)):
            with pytest.raises(ClosedError, match="open it again"):
                begin.__enter__()
        presence.look()
    assert sessions(other) == set()
    assert claimed(other) == {}


def reports_of(kind, caplog):
    """How many reports of a bug the log has, each of several lines."""
    assert all(record.exc_info is None for record in caplog.records)  # it has text of records
    return sum(kind in record.getMessage() for record in caplog.records)


def test_looking_goes_on_after_any_error_and_does_not_say_that_it_moved(ledger, other, caplog):
    """Memory may run out just then. Others wait for the session for as long as this process lives."""
    fails, calls = [True], []

    def let_go(_snapshot):
        calls.append(1)
        if fails:
            raise MemoryError

    presence = Presence(ledger, Watching(moved=let_go))
    with working(presence), caplog.at_level(logging.WARNING):
        accept(other, taking(3))
        calls.clear()
        until(lambda: len(calls) > 3)
        assert behind(other, 1) == 1  # what it has in memory is not let go of
        fails.clear()
        until(lambda: behind(other, 1) == 0)
    presence.close()
    assert reports_of("MemoryError", caplog) == 1
