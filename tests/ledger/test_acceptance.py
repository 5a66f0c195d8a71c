"""What an acceptance takes goes out of use in one transaction, and is remembered."""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
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
    log,
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


def test_a_group_is_accepted_at_once_each_with_a_generation_of_its_own(ledger, other):
    key = b"k" * 32
    first, second = taking(1, request=key), taking(3, request=key)
    second = replace(second, tainted={Stage(0, (1,)): "k1"})  # k10 goes with the first
    assert accept(ledger, first, second, taking(5), replace(taking(2), tainted={})) == [1, 2, 3, 4]
    snapshot = other.snapshot()
    assert (snapshot.generation, snapshot.stages, snapshot.condemned) == (4, {}, True)
    assert [snapshot.slices[place].records for place in PLACES] == [0, 1, 1]
    assert {(state.digest, state.pending) for state in snapshot.slices.values()} == {(OLD, True)}
    entries = log(other)[1:]
    assert [(entry.generation, entry.records) for entry in entries] == [(1, 1), (2, 1), (3, 3), (4, 1)]
    assert {entry.state for entry in entries} == {"accepted"}
    assert len({entry.received_at for entry in entries}) == 1
    gone = located(other, 1, 2, 3, 4, 5, subjects=[PERSON])
    assert gone.gone == {token(1): 1, token(3): 2, token(5): 3, token(2): 4, PERSON: 4}
    assert [found.token for found in gone.rows] == [token(4)]
    with other.reading() as transaction:
        assert tokens_since(transaction, 1) == {2: [token(3)], 3: [token(5)], 4: sorted([token(2), PERSON])}
        work = transaction.to_erase()
    assert work.records == {PLACES[0]: {token(1), token(2)}, PLACES[1]: {token(3)}, PLACES[2]: {token(5)}}
    assert work.artifacts == {(0, "k0"), (0, "k10"), (0, "k1"), (1, "k2")}


def test_generations_go_on_above_a_given_number_and_one_may_take_nothing(ledger):
    """So are later deletions, noted outside, that the ledger never knew."""
    with ledger.writing() as transaction:
        assert transaction.accept([taking(), taking()], above=40) == [41, 42]
    with ledger.writing() as transaction:
        assert transaction.accept([taking()], above=7) == [43]
        walk(transaction)
    settle(ledger)
    snapshot = ledger.snapshot()
    assert (snapshot.generation, log(ledger)[-1].state) == (43, "erased")
    assert (snapshot.slices, snapshot.stages) == (states(ROWS.values()), STAGES)


def test_all_records_of_a_subject_are_found_whoever_names_one_of_them(ledger):
    for named in ((), (1,), (2,), (1, 2)):
        assert located(ledger, *named, subjects=[PERSON]).rows == (ROWS[1], ROWS[2])
    found = located(ledger, 3, 1, 99, subjects=[PERSON, b"q" * 32])
    assert (found.rows, found.gone) == ((ROWS[1], ROWS[2], ROWS[3]), {})


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
def test_however_many_are_asked_for_all_are_found(ledger):
    numbers = [*range(100, 25_100), 5]
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


def test_tokens_of_deletions_elsewhere_are_remembered_with_the_last_one(ledger):
    """The ledger of a restored run may know a token as deleted and present."""
    with ledger.writing() as transaction:
        transaction.history.remember([token(3)], generation=0)
    accept(ledger, taking(3))
    with ledger.writing() as transaction:
        transaction.history.remember([token(98), token(99)], generation=1)
    assert located(ledger, 3, 98, 99).gone == {token(3): 1, token(98): 1, token(99): 1}
    with ledger.reading() as transaction:
        assert tokens_since(transaction, 0) == {1: sorted([token(3), token(98), token(99)])}
        assert transaction.history.deleted_since(1) == {}


def test_states_and_times_come_one_after_the_other(ledger, other):
    accept(ledger, taking(3), taking(5))
    assert [entry.generation for entry in log(ledger, [2, 1, 77])] == [1, 2]
    assert log(ledger, []) == []
    (accepted,) = log(ledger, [1])
    assert (accepted.state, accepted.accepted_at, accepted.effective_at) == ("accepted", None, None)
    settle(other)  # whoever comes next notes it, once and for all
    (effective,) = log(ledger, [1])
    assert (effective.state, effective.erased_at) == ("effective", None)
    settle(ledger)
    assert log(ledger, [1]) == [effective]
    erase(ledger)
    settle(ledger)
    (erased,) = log(ledger, [1])
    assert erased.state == "erased"
    assert accepted.received_at == erased.received_at <= erased.accepted_at <= erased.effective_at <= erased.erased_at
    assert (erased.accepted_at, erased.effective_at) == (effective.accepted_at, effective.effective_at)


def test_an_entry_tells_its_times_in_utc():
    entry = LogEntry(generation=2, records=1, received_at=0.0, accepted_at=0.25, effective_at=86400.5, erased_at=None)
    assert entry.to_json() == {"generation": 2, "records": 1, "state": "effective", "to_withdraw": []} | {
        "received_at": "1970-01-01T00:00:00.000+00:00",
        "accepted_at": "1970-01-01T00:00:00.250+00:00",
        "effective_at": "1970-01-02T00:00:00.500+00:00",
        "erased_at": None,
    }


def test_a_request_is_known_by_its_key_with_what_it_did(ledger, other):
    key, content = b"k" * 32, b"c" * 32
    known = []
    for handle, numbers, deleted in ((ledger, (3,), 1), (other, (5, 1), 4)):
        with handle.writing() as transaction:
            known.append(transaction.history.request(key))
            transaction.accept([taking(numbers[0], request=key), *map(taking, numbers[1:])])
            transaction.history.note_request(key, content=content, names=deleted, deleted=deleted)
    with ledger.reading() as transaction:
        known.append(transaction.history.request(key))
        assert transaction.history.request(b"K" * 32) is None
    assert known == [
        None,
        RequestRow(content=content, names=1, deleted=1, generations=frozenset({1})),
        RequestRow(content=content, names=4, deleted=4, generations=frozenset({1, 2})),
    ]


def test_what_begins_after_accepted_never_sees_the_record_however_slow_the_disk_is(ledger, other):
    """The commit takes long: a reader that begins meanwhile still sees the record, and began before `accepted_at`."""
    reads, done = [], threading.Event()

    def read():
        while not done.is_set():
            with other.reading() as transaction:
                began = transaction.rows.now()
                reads.append((began, bool(transaction.locate(records=[token(3)], subjects=()).rows)))
            time.sleep(0.001)

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            with ledger.writing() as transaction:
                began = transaction.rows.now()
                transaction.accept([replace(taking(3), waited=5.0)])
                transaction.settle()  # it must not take its own deletions for durable
                assert transaction.history.log([1])[0].accepted_at is None
                time.sleep(0.2)  # of the disk, before COMMIT
            settle(other)
        finally:
            done.set()
        reading.result()
    (entry,) = log(ledger, [1])
    assert any(found and at > began for at, found in reads)
    assert [at for at, found in reads if found and utc(at) >= entry.accepted_at] == []
    began = utc(began)
    assert timedelta(seconds=4) < began - entry.received_at < timedelta(seconds=6)
    assert entry.received_at <= began < entry.accepted_at <= entry.effective_at


def test_times_never_run_backwards_whatever_the_clock_does(ledger, monkeypatch):
    monkeypatch.setattr(Rows, "now", lambda rows: 1000.0)
    accept(ledger, taking(3))
    monkeypatch.setattr(Rows, "now", lambda rows: 10.0)
    settle(ledger)
    erase(ledger)
    settle(ledger)
    (entry,) = log(ledger, [1])
    assert {entry.received_at, entry.accepted_at, entry.effective_at, entry.erased_at} == {utc(1000)}
