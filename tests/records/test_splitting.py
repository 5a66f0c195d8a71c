"""A table is gone through in windows, and divided into slices with few bytes a record; windows change nothing."""

import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3t.core import place_of
from s3t.ledger.filling import WaitingRecords, record_rows
from s3t.records import splitting
from s3t.records.splitting import Split
from s3t.store.rows import Cells, DuplicateFinder, count_distinct, short_digest
from s3t.store.slices import copies_in_order
from s3t.store.spill import Spill
from s3t.store.tables import rows_at
from tests.records.given import split_into_slices
from tests.records.test_slices import NAMES, PLACE, SECRET, table

SIZES = {"shards": 2, "slices": 3}
PEOPLE = st.lists(st.sampled_from([None, "p", "q"]), min_size=25, max_size=25)


@given(names=NAMES, people=PEOPLE, window=st.integers(1, 5))
def test_records_in_windows_are_divided_as_one_after_the_other(names, people, window):
    """By the hash of their owners, in the order of their own hashes."""
    rows, plain = table(names, subjects=people[: len(names)]), {}
    for record, person in zip(names, people, strict=False):
        place = place_of(record, person, secret=SECRET, **SIZES)
        plain.setdefault(place, []).append((SECRET.token("order", "record", record), record))
    split = split_into_slices(rows, secret=SECRET, **SIZES, windows=window)
    assert list(split) == sorted(split)
    for place, part in split.items():
        assert part["record"].to_pylist() == [record for _, record in sorted(plain.get(place, []))]
        assert part.schema == rows.schema
        assert all(column.num_chunks <= 1 for column in part.columns)


def test_rows_with_one_id_stay_together():
    split = split_into_slices(table(["x", "y", "x"]), secret=SECRET, shards=1, slices=1)
    assert sorted(split[PLACE]["record"].to_pylist()) == ["x", "x", "y"]


def test_a_window_with_a_column_of_several_pieces_is_divided_as_another(monkeypatch):
    """As arrow keeps one of more than 2 GB."""

    def in_pieces(rows, numbers):
        return pa.concat_tables(rows_at(rows, [number]) for number in numbers)

    rows = table([f"record {number}" for number in range(9)])
    whole = split_into_slices(rows, secret=SECRET, **SIZES)
    with Spill(Path(tempfile.gettempdir())) as spill:
        split = Split(spill, secret=SECRET, **SIZES)
        with monkeypatch.context() as patched:
            patched.setattr(splitting, "rows_at", in_pieces)
            split.add(rows)
        assert dict(split.items()) == whole


@given(st.lists(st.binary(max_size=3)))
def test_distinct_contents_are_counted(contents):
    assert count_distinct(b"".join(map(short_digest, contents))) == len(set(contents))


@given(st.lists(st.sampled_from([None, "a", "b", "c", "d"])), st.integers(0, 20))
def test_repeated_names_are_told_with_the_first_row_of_each(rows, cut):
    names = DuplicateFinder()
    names.add(rows[:cut])
    names.add(rows[cut:])
    pairs = [(row, rows.index(name)) for row, name in enumerate(rows) if name is not None and name in rows[:row]]
    assert list(zip(*map(list, names.repeated()), strict=True)) == pairs


@given(names=NAMES, people=PEOPLE)
def test_waiting_records_are_those_of_the_slices_in_the_order_of_their_tokens(names, people):
    rows, expected = table(names, subjects=people[: len(names)]), []
    with Spill(Path(tempfile.gettempdir())) as spill:
        waiting = WaitingRecords(spill)
        for place, part in split_into_slices(rows, secret=SECRET, **SIZES).items():
            names = zip(part["record"].to_pylist(), part["subject"].to_pylist(), strict=True)
            assert dict(copies_in_order(part)) == Counter(names)
            expected += record_rows(place, dict(copies_in_order(part)), SECRET)
            waiting.add(place, record_rows(place, dict(copies_in_order(part)), SECRET))
        assert list(waiting) == sorted(expected, key=lambda row: row.token)


def peak(records, act):
    """Bytes that Python and numpy take at most."""
    rows = table([f"record {number}" for number in range(records)])
    tracemalloc.start()
    act(rows)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def named(rows):
    names = DuplicateFinder()
    names.add(Cells(rows["record"]))
    names.repeated()


def divided(rows):
    with Spill(Path(tempfile.gettempdir())) as spill:
        split = Split(spill, secret=SECRET, shards=4, slices=64)
        for start in range(0, rows.num_rows, 5000):
            split.add(rows.slice(start, 5000))
        for _ in split.values():
            pass


def waiting(rows):
    with Spill(Path(tempfile.gettempdir())) as spill:
        records = WaitingRecords(spill)
        for start in range(0, rows.num_rows, 1000):
            records.add(PLACE, record_rows(PLACE, dict(copies_in_order(rows.slice(start, 1000))), SECRET))
        for _ in records:
            pass


@pytest.mark.integration
@pytest.mark.parametrize(("act", "most"), [(named, 35), (divided, 15), (waiting, 15)])
def test_each_record_more_takes_few_bytes(act, most):
    few, many = 20_000, 60_000
    assert (peak(many, act) - peak(few, act)) / (many - few) < most
