"""What is accepted is listed until its last byte is gone, and a stage is stored only if nothing was lost meanwhile."""

from dataclasses import replace

import pytest

from s3t.core import Stage
from s3t.errors import KeyDestroyedError
from s3t.ledger import Session, SliceState, schema
from s3t.ledger.ledger import _GONE
from s3t.results.base import utc
from testing.trained import commit
from tests.ledger.world import (
    NEW,
    OLD,
    PLACES,
    STAGES,
    accept,
    erase,
    rewrite,
    settle,
    state,
    taking,
    token,
    walk,
)

LATER = "2" * 64
FIRST, CHILD = Stage(0, (0,)), Stage(0, (0, 1))


def to_erase(ledger):
    with ledger.reading() as transaction:
        return transaction.to_erase()


MICROSECOND = 1e-6


def test_what_waits_is_counted_from_the_oldest_deletion(ledger):
    """A further one puts nothing off, whichever slice it hits; what is erased is waited for no more."""
    for number in (3, 5, 4):
        accept(ledger, taking(number))
    with ledger.reading() as transaction:
        times = {entry.generation: entry.received_at for entry in transaction.history.log()}
    assert utc(ledger.snapshot().pending_since) == utc(ledger.snapshot().waiting_since) == times[1]
    with ledger.writing() as transaction:
        rewrite(transaction, PLACES[1], NEW, [token(3), token(4)])
    assert utc(ledger.snapshot().pending_since) == times[2]


def test_records_that_may_wait_are_not_read_and_a_slice_waits_since_its_oldest_deletion(ledger):
    """A slice is rewritten without all that it lost, or not at all."""
    for number in (3, 5, 4):
        accept(ledger, replace(taking(number), tainted={}))
    with ledger.reading() as transaction:
        times = {entry.generation: entry.received_at for entry in transaction.history.log()}
        before = transaction.to_erase(received_by=times[1].timestamp() - 0.001)
        between = transaction.to_erase(received_by=times[1].timestamp() + MICROSECOND)
        after = transaction.to_erase(received_by=times[3].timestamp() + MICROSECOND)
    assert before.records == {}
    assert between.records == {PLACES[1]: {token(3), token(4)}}
    assert after.records == between.records | {PLACES[2]: {token(5)}}
    for work in (before, between, after):
        since = {place: utc(seconds) for place, seconds in work.since.items()}
        assert since == {PLACES[1]: times[1], PLACES[2]: times[2]}


def test_slices_and_artifacts_leave_the_list_one_by_one(ledger):
    accept(ledger, taking(3), taking(5))
    settle(ledger)
    with ledger.writing() as transaction:
        rewrite(transaction, PLACES[1], NEW, [token(3)])
        transaction.settle()
    assert to_erase(ledger).records == {PLACES[2]: {token(5)}}
    assert not ledger.snapshot().slices[PLACES[1]].pending
    assert ledger.snapshot().slices[PLACES[2]].pending
    assert [state(ledger, generation) for generation in (1, 2)] == ["effective", "effective"]
    with ledger.writing() as transaction:
        transaction.note_removed([(0, "k1"), (0, "k10")])
        walk(transaction)
        transaction.settle()
    assert [state(ledger, generation) for generation in (1, 2)] == ["erased", "effective"]
    with ledger.writing() as transaction:
        rewrite(transaction, PLACES[2], NEW, [token(5)])
        transaction.note_removed([(1, "k2")])
        transaction.settle()
    assert state(ledger, 2) == "effective"  # what the rewriting leaves behind, in the log, say, is gone through now
    with ledger.writing() as transaction:
        walk(transaction)
        transaction.settle()
    assert state(ledger, 2) == "erased"
    assert ledger.snapshot().waiting_since is None
    assert not ledger.snapshot().condemned


@pytest.mark.parametrize("left", ["a slice's file", "an artifact", "the walk", "nothing"])
def test_a_deletion_is_erased_when_nothing_of_it_is_left_anywhere(ledger, left):
    accept(ledger, taking(3))
    with ledger.writing() as transaction:
        work = transaction.to_erase()
        if left != "a slice's file":
            rewrite(transaction, PLACES[1], NEW, [token(3)])
        transaction.note_removed([*work.artifacts][1 if left == "an artifact" else 0 :])
        if left != "the walk":
            walk(transaction)
        transaction.settle()
    assert state(ledger, 1) == ("erased" if left == "nothing" else "effective")


def test_a_version_is_condemned_until_it_is_current_and_then_the_one_before_is(ledger, other):
    """A deletion is not erased while that may be there, nor is one that came while the slice was rewritten."""
    accept(ledger, replace(taking(3), tainted={}))
    accept(ledger, replace(taking(4), tainted={}))
    with ledger.writing() as transaction:
        transaction.rows.condemn(versions=[(PLACES[1], OLD), (PLACES[1], NEW)])  # the current one never is
    assert other.snapshot().slices[PLACES[1]].digest == OLD
    assert to_erase(other).versions == {(PLACES[1], NEW)}
    with ledger.writing() as transaction:
        assert transaction.supersede(PLACES[1], old=OLD, new=NEW, gone=[token(3)])
        walk(transaction)
        transaction.settle()
    assert other.snapshot().slices[PLACES[1]] == SliceState(records=0, digest=NEW, pending=True)
    work = to_erase(other)
    assert (work.versions, work.records) == ({(PLACES[1], OLD)}, {PLACES[1]: {token(4)}})
    settle(ledger)
    assert (state(ledger, 1), ledger.snapshot().condemned) == ("effective", True)
    with ledger.writing() as transaction:
        transaction.note_removed(versions=[(PLACES[1], OLD)])
        walk(transaction)
        transaction.settle()
    assert [state(ledger, number) for number in (1, 2)] == ["erased", "effective"]
    assert not ledger.snapshot().condemned


def test_who_has_lost_the_lock_supersedes_nothing_and_what_it_has_put_is_condemned(ledger):
    accept(ledger, taking(3))
    with ledger.writing() as transaction:
        rewrite(transaction, PLACES[1], NEW, [token(3)])
        assert not transaction.supersede(PLACES[1], old=OLD, new=LATER, gone=[token(3)])
    assert ledger.snapshot().slices[PLACES[1]].digest == NEW
    assert to_erase(ledger).versions == {(PLACES[1], LATER)}


def test_forgotten_stages_are_out_of_use(ledger):
    with ledger.writing() as transaction:
        transaction.forget_stages({FIRST: STAGES[FIRST], CHILD: "another key", Stage(7, (7,)): "k"})
    assert ledger.snapshot().stages == {stage: key for stage, key in STAGES.items() if stage != FIRST}
    assert to_erase(ledger).artifacts == {(FIRST.shard, STAGES[FIRST])}


def durations(ledger):
    with ledger.reading() as transaction:
        return transaction.history.durations()


def test_a_stages_time_is_kept_as_long_as_the_stage(ledger):
    """It follows from the records under the stage."""
    with ledger.writing() as transaction:
        assert commit(transaction, CHILD, "new", seconds=2.5)
    assert durations(ledger) == dict.fromkeys(STAGES, 1.0) | {CHILD: 2.5}
    accept(ledger, taking(1))
    assert durations(ledger).keys() == ledger.snapshot().stages.keys() < STAGES.keys() | {CHILD}
    with ledger.writing() as transaction:
        transaction.forget_stages(ledger.snapshot().stages)
    assert durations(ledger) == {}


def committed(ledger, stage, seen, *, parents=None):
    with ledger.writing() as transaction:
        return commit(transaction, stage, "new", seen=seen, parents=parents)


def condemn(ledger):
    with ledger.writing() as transaction:
        transaction.rows.condemn(artifacts=[(CHILD.shard, "new")])


def lose_and_erase(ledger):
    accept(ledger, taking(3))
    with ledger.writing() as transaction:
        rewrite(transaction, PLACES[1], NEW, [token(3)])


def change_digest(ledger):
    with ledger.writing() as transaction:
        rewrite(transaction, PLACES[0], NEW, [])


@pytest.mark.parametrize(
    ("meanwhile", "stored"),
    [
        (lambda ledger: None, True),
        (lambda ledger: accept(ledger, taking(5)), True),
        (lambda ledger: accept(ledger, taking(3)), False),
        (lose_and_erase, False),
        (change_digest, False),
        (condemn, False),
    ],
    ids=["nothing", "another slice lost", "lost", "lost and erased", "another digest", "its key is being erased"],
)
def test_a_stage_is_in_use_if_no_slice_of_its_prefix_changed_meanwhile(ledger, other, meanwhile, stored):
    seen = ledger.snapshot().seen(CHILD)
    meanwhile(other)
    before = ledger.snapshot().stages
    assert committed(ledger, CHILD, seen) == stored
    assert other.snapshot().stages == before | ({CHILD: "new"} if stored else {})
    if stored:
        with ledger.reading() as transaction:
            assert transaction.sessions.claims() == {}


def test_no_stage_is_stored_once_the_key_is_destroyed(ledger, other):
    """Nobody could delete a record from under it any more."""
    seen = ledger.snapshot().seen(CHILD)
    with other.writing() as transaction:
        transaction.history.note_key_destroyed()
    with pytest.raises(KeyDestroyedError):
        committed(ledger, CHILD, seen)
    assert CHILD not in ledger.snapshot().stages


def test_a_stage_is_not_stored_while_its_slice_still_holds_an_accepted_record(ledger):
    """Between the acceptance and the next version, training reads the old version."""
    accept(ledger, taking(3))
    between = ledger.snapshot().seen(Stage(0, (1,)))
    assert between[PLACES[1]].pending
    assert not committed(ledger, Stage(0, (1,)), between)
    with ledger.writing() as transaction:
        rewrite(transaction, PLACES[1], OLD, [token(3)])
    assert not committed(ledger, Stage(0, (1,)), between)  # nor afterwards: what trained had read the old file
    assert committed(ledger, Stage(0, (1,)), ledger.snapshot().seen(Stage(0, (1,))))


def test_a_stage_is_not_stored_if_a_stage_before_it_is_gone_or_was_trained_again(ledger):
    seen = ledger.snapshot().seen(CHILD)
    assert not committed(ledger, CHILD, seen, parents={FIRST: "another"})
    assert committed(ledger, CHILD, seen, parents={FIRST: STAGES[FIRST]})


@pytest.mark.parametrize("end", ["released", "ended", "dead"])
def test_what_was_announced_and_not_committed_is_erased_before_anything_counts_as_erased(ledger, end):
    """It may hold what was deleted: here the deletion came before, and was gone through already."""
    accept(ledger, taking(3))
    erase(ledger)
    session = Session(process=999999999) if end == "dead" else Session()
    stage = Stage(1, (0,))
    with ledger.writing() as transaction:
        transaction.sessions.enter(session, generation=1)
        claim = {"shard": 1, "prefix": "0", "session": session.name, "key": "put", "device": "cpu", "since": 0.0}
        transaction.rows.upsert(schema.claims, [claim])
        assert transaction.sessions.announced() == {(1, "put")}
    with ledger.writing() as transaction:
        if end == "released":
            assert transaction.sessions.release(stage, session)
            transaction.sessions.end([session.name])
        elif end == "ended":
            transaction.sessions.end([session.name])
        transaction.settle()
    assert (state(ledger, 1), ledger.snapshot().condemned) == ("effective", True)
    assert to_erase(ledger).artifacts == {(1, "put")}
    with ledger.writing() as transaction:
        walk(transaction)
        transaction.settle()
        assert transaction.history.log([1])[0].state == "effective"  # it is still there
        transaction.note_removed([(1, "put")])
        walk(transaction)
        transaction.settle()
    assert state(ledger, 1) == "erased"


STAY = """additions clones deleted depths exports generations held labels notes repairs requests sessions tokens
    visits withdrawals"""
"""Tables of which no deletion of a record removes a row that says something of it."""


def test_every_table_whose_rows_a_deletion_removes_is_vacuumed():
    assert {*_GONE} == {table.name for table in schema.metadata.sorted_tables} - {*STAY.split()}
