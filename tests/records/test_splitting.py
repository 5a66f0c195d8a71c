"""A table is gone through in windows, and divided into slices with few bytes a record; windows change nothing."""

import tempfile
import tracemalloc
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3t.core import place_of
from s3t.errors import DataError
from s3t.ledger.filling import WaitingRecords, record_rows
from s3t.records import reading, splitting
from s3t.records.ingest import ingest
from s3t.records.splitting import Split
from s3t.store import rows as rows_module
from s3t.store.rows import Cells, DuplicateFinder, count_distinct, short_digest
from s3t.store.slices import copies_in_order, count_copies
from s3t.store.spill import Spill
from s3t.store.tables import rows_at
from tests.records.splits import split_into_slices
from tests.records.test_ingest import frame, recipe
from tests.records.test_slices import NAMES, PLACE, SECRET, table

SIZES = {"shards": 2, "slices": 3}


@pytest.fixture(params=[1, 2, 3])
def narrow(request, monkeypatch):
    """Windows of few rows."""
    for module in (rows_module, reading):
        monkeypatch.setattr(module, "WINDOW_ROWS", request.param)


@given(names=NAMES, window=st.integers(1, 5))
def test_records_in_windows_are_divided_as_one_after_the_other(names, window):
    rows, plain = table(names), {}
    for record in names:
        place = place_of(record, None, secret=SECRET, **SIZES)
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


@given(names=NAMES, people=st.lists(st.sampled_from([None, "p", "q"]), min_size=25, max_size=25))
def test_waiting_records_are_those_of_the_slices_in_the_order_of_their_tokens(names, people):
    rows, expected = table(names, subjects=people[: len(names)]), []
    with Spill(Path(tempfile.gettempdir())) as spill:
        waiting = WaitingRecords(spill)
        for place, part in split_into_slices(rows, secret=SECRET, **SIZES).items():
            assert dict(copies_in_order(part)) == count_copies(part)
            expected += record_rows(place, count_copies(part), SECRET)
            waiting.add(place, record_rows(place, count_copies(part), SECRET))
        assert list(waiting) == sorted(expected, key=lambda row: row.token)


def test_windows_change_nothing_of_what_is_ingested(narrow, monkeypatch):
    data = pd.DataFrame(
        {
            "id": [f"e\u0301{number}" for number in range(7)],
            "text": [f"text {number % 3}" for number in range(7)],
            "label": list("abababa"),
            "person": ["p", None, "q", "p", None, "e\u0301", "p"],
        }
    )
    wanted = recipe(columns={"id": "id", "text": "text", "label": "label", "subject": "person"})
    found = ingest(data, wanted).rows
    monkeypatch.undo()
    assert found.to_pylist() == ingest(data, wanted).rows.to_pylist()
    assert found["record"].to_pylist() == [f"\u00e9{number}" for number in range(7)]


def test_problems_name_their_rows_across_windows(narrow):
    data = frame(id=["x", "x"], text=["one", " "], label=["c", None])
    with pytest.raises(DataError) as refused:
        ingest(data, recipe())
    message = str(refused.value)
    assert "row 1: the id (column 'id') is a duplicate of row 0's" in message
    assert "row 1: column 'text' is empty or blank" in message
    assert "row 0: the label (column 'label') is outside the declared labels" in message
    assert "row 1: the label (column 'label') does not hold" in message


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
            records.add(PLACE, record_rows(PLACE, count_copies(rows.slice(start, 1000)), SECRET))
        for _ in records:
            pass


@pytest.mark.integration
@pytest.mark.parametrize(("act", "most"), [(named, 35), (divided, 15), (waiting, 15)])
def test_each_record_more_takes_few_bytes(act, most):
    few, many = 20_000, 60_000
    assert (peak(many, act) - peak(few, act)) / (many - few) < most
