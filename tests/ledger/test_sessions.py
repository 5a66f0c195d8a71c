"""A deletion is effective when every living session has moved; claims share out what is to be trained."""

import os
import subprocess
import sys
import time

import pytest
from sqlalchemy import insert, update

from s3t.core import Stage
from s3t.ledger import Session, Trained
from s3t.ledger import schema as tables
from s3t.ledger.rows import Rows
from s3t.ledger.schema import prefix_text
from s3t.ledger.sessions import LEASE_SECONDS
from tests.ledger.world import accept, end, erase, log, settle, state, taking, token

STAGE, CHILD = Stage(0, (2,)), Stage(0, (2, 0))
HERE, ELSEWHERE = Session(), Session(host="another-host", process=1)


def seen(ledger, session, *, generation=0):
    with ledger.writing() as transaction:
        transaction.sessions.enter(session, generation=generation)


def unseen_for(ledger, session, seconds):
    """Set back when a session was last seen."""
    table = tables.sessions
    with ledger.writing() as transaction:
        earlier = update(table).where(table.c.session == session.name).values(seen_at=table.c.seen_at - seconds)
        assert transaction.rows.connection.execute(earlier).rowcount == 1


@pytest.fixture(scope="module")
def dead():
    """A process that was here, and is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return Session(process=process.pid)


def behind(ledger, generation):
    with ledger.reading() as transaction:
        return transaction.sessions.count_behind(generation)


@pytest.mark.parametrize("session", [HERE, ELSEWHERE], ids=["here", "elsewhere"])
def test_each_generation_waits_for_sessions_behind_itself(ledger, other, session):
    seen(other, session, generation=1)
    accept(ledger, taking(3), taking(5))
    settle(ledger)
    assert (state(ledger), state(ledger, 2)) == ("effective", "accepted")
    assert (behind(ledger, 2), behind(ledger, 1)) == (1, 0)
    seen(other, session, generation=2)
    assert behind(ledger, 2) == 0
    settle(other)
    assert state(ledger, 2) == "effective"


def test_it_is_effective_once_no_older_answer_leaves_and_erased_once_nobody_uses_it(ledger):
    """Nothing is left on the disk, but somebody may have it in memory."""
    seen(ledger, HERE)
    accept(ledger, taking(3))
    erase(ledger)
    settle(ledger)
    assert state(ledger) == "accepted"
    with ledger.writing() as transaction:
        transaction.sessions.enter(HERE, generation=0, answers=1)
        transaction.settle()
        assert transaction.sessions.count_behind(1) == 1
    assert state(ledger) == "effective"
    seen(ledger, HERE, generation=1)
    settle(ledger)
    assert state(ledger) == "erased"


def test_a_session_whose_process_is_gone_holds_nothing_up(ledger, dead):
    seen(ledger, dead)
    process = subprocess.Popen(["sleep", "60"])
    seen(ledger, Session(process=process.pid))
    accept(ledger, taking(3))
    settle(ledger)
    assert (state(ledger), behind(ledger, 1)) == ("accepted", 1)  # the living one
    process.kill()
    process.wait()
    assert behind(ledger, 1) == 0
    settle(ledger)
    assert state(ledger) == "effective"


def lost(ledger):
    with ledger.reading() as transaction:
        return transaction.sessions.lost()


def test_sessions_that_died_without_a_word_are_counted_and_logged_once(ledger, dead, caplog):
    caplog.set_level("INFO", logger="s3t.sessions")
    ended = Session()
    for session in (dead, ELSEWHERE, ended):
        seen(ledger, session)
    end(ledger, ended.name)
    settle(ledger)
    assert lost(ledger) == 1
    assert f"process {dead.process} of {dead.host} counts as dead" in caplog.text
    unseen_for(ledger, ELSEWHERE, LEASE_SECONDS + 1)
    settle(ledger)
    settle(ledger)
    assert lost(ledger) == 2
    assert caplog.text.count("lease lost") == 2


def test_silence_is_told_of_the_living(ledger, dead):
    seen(ledger, dead)
    seen(ledger, ELSEWHERE)
    unseen_for(ledger, ELSEWHERE, 10)
    with ledger.reading() as transaction:
        (silence,) = transaction.sessions.silences()
    assert 10 <= silence < 1000


def test_a_number_that_another_process_was_given_since_holds_nothing_up(ledger):
    process = subprocess.Popen(["sleep", "60"])
    session = Session(process=process.pid)
    seen(ledger, session)
    accept(ledger, taking(3))
    unseen_for(ledger, session, 1_000_000)
    settle(ledger)
    process.kill()
    process.wait()
    assert state(ledger) == "effective"


def test_a_process_of_this_host_that_only_sleeps_is_waited_for(ledger):
    seen(ledger, HERE)
    accept(ledger, taking(3))
    unseen_for(ledger, HERE, 100 * LEASE_SECONDS)
    settle(ledger)
    assert state(ledger) == "accepted"


def test_a_session_of_another_host_is_waited_for_until_its_lease_ends(ledger):
    seen(ledger, ELSEWHERE)
    accept(ledger, taking(3))
    unseen_for(ledger, ELSEWHERE, LEASE_SECONDS - 10)
    with ledger.writing() as transaction:
        assert transaction.sessions.beat(ELSEWHERE)  # renews the lease, and moves nobody
    unseen_for(ledger, ELSEWHERE, LEASE_SECONDS - 10)
    settle(ledger)
    assert state(ledger) == "accepted"
    unseen_for(ledger, ELSEWHERE, 11)
    settle(ledger)
    assert state(ledger) == "effective"
    with ledger.writing() as transaction:
        assert not transaction.sessions.beat(ELSEWHERE)  # it hears that it was taken for dead


def test_sessions_that_end_are_waited_for_no_more_and_leave_no_claim(ledger):
    for session in (HERE, ELSEWHERE):
        seen(ledger, session)
    assert claim(ledger, STAGE, HERE)
    accept(ledger, taking(3))
    with ledger.writing() as transaction:
        transaction.sessions.end([HERE.name])
        transaction.settle()
        assert transaction.sessions.count_behind(1) == 1
        transaction.sessions.end([ELSEWHERE.name, "nobody"])
        transaction.settle()
    assert state(ledger) == "effective"
    assert claimed(ledger) == {}


@pytest.mark.integration
def test_settling_twenty_thousand_that_wait_to_be_erased_is_quick(ledger):
    with ledger.writing() as transaction:
        made = transaction.accept([taking()] * 20_000)
        rows = [
            {"token": token(1_000 + number), "shard": 0, "slice": 0, "segment": 0, "generation": number}
            for number in made
        ]
        transaction.rows.insert(tables.erasing_records, rows)
    started = time.process_time()  # of SQLite all the work; ten seconds where each looks through all the others
    settle(ledger)
    assert time.process_time() - started < 3
    assert state(ledger, made[-1]) == "effective"


def test_settling_twice_changes_nothing_and_no_time(ledger):
    accept(ledger, taking(3))
    erase(ledger)
    settle(ledger)
    first = log(ledger)
    before = ledger.snapshot()
    settle(ledger)
    assert log(ledger) == first
    assert ledger.snapshot() is before


def claim(ledger, stage, session):
    with ledger.writing() as transaction:
        return transaction.sessions.claim(stage, session)


def claimed(ledger):
    with ledger.reading() as transaction:
        return transaction.sessions.claims()


def test_one_session_trains_a_stage_and_prototypes_are_another_than_the_one_on_their_slice(ledger, other):
    prototypes = Stage(STAGE.shard, STAGE.prefix, "prototypes")
    for session in (HERE, ELSEWHERE):
        seen(ledger, session)
    assert claim(ledger, STAGE, HERE)
    assert not claim(other, STAGE, ELSEWHERE)
    assert claim(other, CHILD, ELSEWHERE)
    assert claim(other, prototypes, ELSEWHERE)
    assert claimed(ledger) == {STAGE: HERE.name, CHILD: ELSEWHERE.name, prototypes: ELSEWHERE.name}


def test_a_claim_is_given_back_by_who_has_it(ledger):
    seen(ledger, HERE)
    assert claim(ledger, STAGE, HERE)
    with ledger.writing() as transaction:
        assert not transaction.sessions.release(STAGE, ELSEWHERE)
        assert not transaction.sessions.release(CHILD, HERE)
        assert transaction.sessions.release(STAGE, HERE)
        assert not transaction.sessions.release(STAGE, HERE)  # not twice
    assert claim(ledger, STAGE, ELSEWHERE)


def test_a_dead_sessions_claims_are_taken_over(ledger, dead):
    for session in (HERE, ELSEWHERE, dead):
        seen(ledger, session)
    with ledger.writing() as transaction:  # as it did while it lived
        row = {"shard": STAGE.shard, "prefix": prefix_text(STAGE), "session": dead.name, "device": "cpu", "since": 0.0}
        transaction.rows.connection.execute(insert(tables.claims), [row])
    assert claim(ledger, STAGE, HERE)
    assert claim(ledger, CHILD, ELSEWHERE)
    assert not claim(ledger, CHILD, HERE)
    unseen_for(ledger, ELSEWHERE, LEASE_SECONDS + 1)
    assert claim(ledger, CHILD, HERE)
    with ledger.writing() as transaction:
        assert not transaction.sessions.release(CHILD, ELSEWHERE)  # it slept, and hears of it


def test_what_a_session_claims_after_it_was_taken_for_dead_holds_nobody_up(ledger):
    """It slept, claims, and dies before it beats again: no row of it is left that somebody could bury."""
    seen(ledger, ELSEWHERE)
    unseen_for(ledger, ELSEWHERE, LEASE_SECONDS + 1)
    assert claim(ledger, STAGE, ELSEWHERE)
    seen(ledger, HERE)
    assert claim(ledger, STAGE, HERE)
    assert claimed(ledger) == {STAGE: HERE.name}


def trained_by(session):
    return Trained(stage=STAGE, key="new", manifest="d" * 64, session=session, seen={}, parents={}, seconds=1.0)


@pytest.mark.parametrize("again", ["nobody", "another"])
def test_what_is_put_once_its_claim_was_lost_is_condemned_unless_another_puts_it(ledger, other, again):
    """A trainer slept; what it had announced was condemned and erased; then it woke, and put it."""
    late = trained_by(ELSEWHERE)
    seen(ledger, ELSEWHERE)
    with ledger.writing() as transaction:
        assert transaction.sessions.claim(STAGE, ELSEWHERE)
        assert transaction.announce(late)
    with other.writing() as transaction:
        transaction.sessions.end([ELSEWHERE.name])
        assert transaction.condemned()[0] == {(0, "new")}
        transaction.note_removed({(0, "new")})
    seen(other, HERE)
    if again == "another":
        with other.writing() as transaction:
            assert transaction.sessions.claim(STAGE, HERE)
            assert transaction.announce(trained_by(HERE))
    with ledger.writing() as transaction:
        assert not transaction.commit(late)
        assert transaction.condemned()[0] == (set() if again == "another" else {(0, "new")})
    if again == "another":
        with other.writing() as transaction:
            assert transaction.commit(trained_by(HERE))
        with ledger.writing() as transaction:
            assert not transaction.commit(late)
            assert transaction.condemned()[0] == set()


def test_what_is_put_while_it_is_removed_is_removed_again(ledger):
    """The eraser has removed what was not there yet; then it was put; only then the ledger hears of the removal."""
    late = trained_by(ELSEWHERE)
    with ledger.writing() as transaction:
        transaction.rows.condemn(artifacts=[(0, "new")])
        work = transaction.to_erase()
    with ledger.writing() as transaction:
        assert not transaction.commit(late)
    for left in ({(0, "new")}, set()):
        with ledger.writing() as transaction:
            transaction.note_removed(work.artifacts, put_late=work.put_late)
            assert transaction.condemned()[0] == left
            work = transaction.to_erase()


@pytest.mark.parametrize("ahead", [-1e4, 1e4])
def test_the_clock_of_the_ledger_may_be_another(ledger, ahead, monkeypatch):
    """That of a database: the age of a process is by its own machine's."""
    now = Rows.now
    monkeypatch.setattr(Rows, "now", lambda rows: now(rows) + ahead)
    parent = Session(process=os.getppid())
    seen(ledger, parent)
    with ledger.writing() as transaction:
        assert parent.name in [row.session for row in transaction.sessions.end_dead()]
