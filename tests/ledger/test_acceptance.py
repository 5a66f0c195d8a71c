"""What an acceptance takes goes out of use in one transaction, and is remembered."""

import itertools
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from s3t.core import Place, Stage
from s3t.ledger import Acceptance, Ledger
from s3t.ledger.rows import Rows, chunks
from s3t.ledger.state import RequestRow
from s3t.results.base import utc
from s3t.results.log import LogEntry
from tests.ledger.world import (
    OLD,
    PERSON,
    PLACES,
    ROWS,
    STAGES,
    accept,
    erase,
    open_ledger,
    row,
    settle,
    states,
    taking,
    token,
    tokens_since,
    walk,
)


def located(ledger, *numbers, subjects=()):
    with ledger.reading() as transaction:
        return transaction.locate(records=[token(number) for number in numbers], subjects=subjects)


def log(ledger, generations=None):
    with ledger.reading() as transaction:
        return transaction.history.log(generations)


def test_acceptance_changes_everything_in_one_transaction(ledger):
    assert accept(ledger, taking(1)) == [1]
    snapshot = ledger.snapshot()
    assert snapshot.generation == 1
    hit = snapshot.slices[PLACES[0]]
    assert (hit.records, hit.pending, hit.digest) == (1, True, OLD)
    untouched = states(ROWS.values())
    assert all(snapshot.slices[place] == untouched[place] for place in PLACES[1:])
    assert snapshot.stages == {Stage(0, (1,)): "k1", Stage(1, (0,)): "k2"}
    assert snapshot.condemned
    with ledger.reading() as transaction:
        work = transaction.to_erase()
    assert work.records == {PLACES[0]: {token(1)}}
    assert work.artifacts == {(0, "k0"), (0, "k10")}
    assert located(ledger, 1).gone == {token(1): 1}
    assert located(ledger, 1).rows == ()


def test_copies_of_a_record_leave_together(ledger):
    accept(ledger, taking(5))
    assert ledger.snapshot().slices[PLACES[2]].records == 1
    assert log(ledger)[1].records == 3


def test_a_group_is_accepted_at_once_each_with_a_generation_of_its_own(ledger, other):
    key = b"k" * 32
    first, second = taking(1, request=key), taking(3, request=key)
    second = replace(second, tainted={Stage(0, (1,)): "k1"})  # k10 goes with the first
    assert accept(ledger, first, second, taking(5), replace(taking(2), tainted={})) == [1, 2, 3, 4]
    snapshot = other.snapshot()
    assert snapshot.generation == 4
    assert snapshot.stages == {}
    assert [snapshot.slices[place].records for place in PLACES] == [0, 1, 1]
    entries = log(other)[1:]
    assert [(entry.generation, entry.records, entry.state) for entry in entries] == [
        (1, 1, "accepted"),
        (2, 1, "accepted"),
        (3, 3, "accepted"),
        (4, 1, "accepted"),
    ]
    assert len({entry.received_at for entry in entries}) == 1
    gone = located(other, 1, 2, 3, 4, 5, subjects=[PERSON])
    assert gone.gone == {token(1): 1, token(3): 2, token(5): 3, token(2): 4, PERSON: 4}
    assert [found.token for found in gone.rows] == [token(4)]
    with other.reading() as transaction:
        assert tokens_since(transaction, 1) == {2: [token(3)], 3: [token(5)], 4: sorted([token(2), PERSON])}


def test_generations_go_on_above_a_given_number(ledger):
    with ledger.writing() as transaction:
        assert transaction.accept([taking(3), taking(5)], above=40) == [41, 42]
    with ledger.writing() as transaction:
        assert transaction.accept([taking(1)], above=7) == [43]
    assert ledger.snapshot().generation == 43


def test_an_acceptance_of_nothing_alive_changes_no_slice_but_is_a_generation(ledger):
    """So are later deletions, noted outside, that the ledger never knew."""
    nothing = taking()
    assert accept(ledger, nothing) == [1]
    snapshot = ledger.snapshot()
    assert snapshot.slices == states(ROWS.values())
    assert snapshot.stages == STAGES
    with ledger.writing() as transaction:
        walk(transaction)
    settle(ledger)
    assert log(ledger)[1].state == "erased"


def test_records_are_found_by_id_and_by_subject_each_once(ledger):
    found = located(ledger, 3, 1, 99, subjects=[PERSON, b"q" * 32])
    assert found.rows == (ROWS[1], ROWS[2], ROWS[3])
    assert found.gone == {}


def test_all_records_of_a_subject_are_found_whoever_names_one_of_them(ledger):
    for named in ((), (1,), (2,), (1, 2)):
        assert located(ledger, *named, subjects=[PERSON]).rows == (ROWS[1], ROWS[2])


def test_a_subject_is_gone_when_its_last_record_is(ledger):
    accept(ledger, taking(1))
    found = located(ledger, 1, 2, subjects=[PERSON])
    assert (found.rows, found.gone) == ((ROWS[2],), {token(1): 1})
    accept(ledger, replace(taking(2), tainted={}))
    found = located(ledger, 2, subjects=[PERSON])
    assert (found.rows, found.gone) == ((), {token(2): 2, PERSON: 2})


@pytest.mark.parametrize("count", [0, 1, 9_999, 10_000, 10_001, 20_000, 25_000])
def test_pieces_of_a_statement_hold_every_row_once(count):
    """A name that falls between two pieces would be unknown, which is a success."""
    pieces = list(chunks(list(range(count))))
    assert [*itertools.chain(*pieces)] == list(range(count))
    assert all(0 < len(piece) <= 10_000 for piece in pieces)


@pytest.mark.integration
@pytest.mark.parametrize("count", [1, 9_999, 25_000])
def test_however_many_are_asked_for_all_are_found(ledger, count):
    numbers = [*range(100, 100 + count - 1), 5]
    found = located(ledger, *numbers, subjects=[token(number) for number in numbers])
    assert found.rows == (ROWS[5],)


@pytest.mark.integration
def test_thousands_of_records_leave_in_one_transaction(address):
    count = 23_456  # more than one statement takes, and no round number
    place = Place(0, 0)
    rows = [row(number, place, subject=token(10**6 + number // 3)) for number in range(count)]
    ledger = Ledger.create(address, slices=states(rows, [place]), records=rows)
    taken = Acceptance(rows=rows[1:], losses={place: count - 1}, tainted={})
    accept(ledger, taken)
    with ledger.reading() as transaction:
        assert transaction.records_in(place) == rows[:1]
        assert transaction.to_erase().records == {place: {found.token for found in rows[1:]}}
        gone = tokens_since(transaction, 0)[1]
    subjects = {found.subject for found in rows} - {rows[0].subject}
    assert set(gone) == {found.token for found in rows[1:]} | subjects
    ledger.close()


def test_a_record_that_came_back_and_goes_again_is_remembered_with_its_last_deletion(ledger):
    """The ledger of a restored run may know a token as deleted and present."""
    with ledger.writing() as transaction:
        transaction.history.remember([token(3)], generation=0)
    accept(ledger, taking(3))
    assert located(ledger, 3).gone == {token(3): 1}


def test_tokens_that_the_ledger_never_knew_are_remembered_too(ledger):
    accept(ledger, taking(3))
    with ledger.writing() as transaction:
        transaction.history.remember([token(98), token(99)], generation=1)
    assert located(ledger, 98, 99).gone == {token(98): 1, token(99): 1}
    with ledger.reading() as transaction:
        assert tokens_since(transaction, 0) == {1: sorted([token(3), token(98), token(99)])}
        assert transaction.history.deleted_since(1) == {}


def test_the_log_gives_the_generations_asked_for_in_their_order(ledger):
    with ledger.writing() as transaction:
        transaction.accept([taking(3), taking(5)])
        transaction.accept([taking(1)])
    assert [entry.generation for entry in log(ledger)] == [0, 1, 2, 3]
    assert [entry.generation for entry in log(ledger, [3, 1, 77])] == [1, 3]
    assert log(ledger, []) == []


def test_states_and_times_come_one_after_the_other(ledger):
    accept(ledger, taking(3))
    (accepted,) = log(ledger, [1])
    assert (accepted.state, accepted.effective_at, accepted.erased_at) == ("accepted", None, None)
    settle(ledger)
    (effective,) = log(ledger, [1])
    assert (effective.state, effective.erased_at) == ("effective", None)
    with ledger.writing() as transaction:
        erase(transaction)
        transaction.settle()
    (erased,) = log(ledger, [1])
    assert erased.state == "erased"
    assert accepted.accepted_at is None
    assert accepted.received_at == erased.received_at <= erased.accepted_at <= erased.effective_at <= erased.erased_at
    assert (erased.accepted_at, erased.effective_at) == (effective.accepted_at, effective.effective_at)


def test_an_entry_tells_its_times_in_utc():
    entry = LogEntry(generation=2, records=1, received_at=0.0, accepted_at=0.25, effective_at=86400.5, erased_at=None)
    assert entry.to_json() == {
        "generation": 2,
        "records": 1,
        "state": "effective",
        "received_at": "1970-01-01T00:00:00.000+00:00",
        "accepted_at": "1970-01-01T00:00:00.250+00:00",
        "effective_at": "1970-01-02T00:00:00.500+00:00",
        "erased_at": None,
        "to_withdraw": [],
    }


def test_a_request_is_known_by_its_key_with_what_it_did(ledger, other):
    key = b"k" * 32
    with ledger.writing() as transaction:
        assert transaction.history.request(key) is None
        transaction.accept([taking(3, request=key)])
        transaction.history.note_request(key, content=b"c" * 32, names=1, deleted=1)
    with other.writing() as transaction:
        assert transaction.history.request(key) == RequestRow(
            content=b"c" * 32, names=1, deleted=1, generations=frozenset({1})
        )
        transaction.accept([taking(5, request=key), taking(1)])
        transaction.history.note_request(key, content=b"c" * 32, names=2, deleted=4)
    with ledger.reading() as transaction:
        assert transaction.history.request(key) == RequestRow(
            content=b"c" * 32, names=2, deleted=4, generations=frozenset({1, 2})
        )
        assert transaction.history.request(b"K" * 32) is None


def test_what_begins_after_accepted_never_sees_the_record_however_slow_the_disk_is(ledger, other):
    """The commit takes long: a reader that begins meanwhile still sees the record, and began before `accepted_at`."""
    reads, done = [], threading.Event()

    def read():
        while not done.is_set():
            with other.reading() as transaction:
                began = transaction.rows.now()
                located = transaction.locate(records=[token(3)], subjects=())
            reads.append((began, bool(located.rows)))
            time.sleep(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with ledger.writing() as transaction:
            began = transaction.rows.now()
            transaction.accept([replace(taking(3), waited=5.0)])
            # The transaction must not take its own deletions for durable.
            transaction.settle()
            assert transaction.history.log([1])[0].accepted_at is None
            time.sleep(0.2)  # of the disk, before COMMIT
        settle(other)
    finally:
        done.set()
        reader.join()
    (entry,) = log(ledger, [1])
    assert any(found and at > began for at, found in reads)
    assert [at for at, found in reads if found and utc(at) >= entry.accepted_at] == []
    began = utc(began)
    assert timedelta(seconds=4) < began - entry.received_at < timedelta(seconds=6)
    assert entry.received_at <= began < entry.accepted_at <= entry.effective_at


def test_a_deletion_that_a_crash_kept_from_being_noted_is_noted_by_the_next(ledger, address):
    accept(ledger, taking(3))
    opened = open_ledger(address)  # as after a crash
    assert log(opened, [1])[0].accepted_at is None
    settle(opened)
    assert log(opened, [1])[0].accepted_at is not None
    noted = log(opened)
    settle(opened)
    assert log(ledger) == noted  # once and for all
    opened.close()


def test_times_never_run_backwards_whatever_the_clock_does(ledger, monkeypatch):
    monkeypatch.setattr(Rows, "now", lambda rows: 1000.0)
    accept(ledger, taking(3))
    monkeypatch.setattr(Rows, "now", lambda rows: 10.0)
    with ledger.writing() as transaction:
        transaction.settle()
        erase(transaction)
        transaction.settle()
    (entry,) = log(ledger, [1])
    assert entry.received_at == entry.accepted_at == entry.effective_at == entry.erased_at == utc(1000)
