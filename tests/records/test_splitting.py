"""A table is gone through in windows, and divided into slices with few bytes a record; windows change nothing."""

import tracemalloc

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3t.errors import DataError
from s3t.ledger.filling import CompactRecords, record_rows
from s3t.partition import Secret, place_of
from s3t.records import cells, columns
from s3t.records.canonical import contents, count_distinct
from s3t.records.ingest import ingest
from s3t.records.slices import count_copies
from s3t.records.splitting import split_into_slices
from tests.records.test_ingest import frame, recipe
from tests.records.test_slices import NAMES, PLACE, SECRET, table

SIZES = {"shards": 2, "slices": 3}


@pytest.fixture(params=[1, 2, 3])
def narrow(request, monkeypatch):
    """Windows of few rows."""
    for module in (cells, columns):
        monkeypatch.setattr(module, "WINDOW_ROWS", request.param)


@given(names=NAMES, chunk=st.integers(1, 5))
def test_a_table_in_chunks_is_divided_as_one_row_after_the_other(names, chunk):
    rows = table(names)
    chunked = pa.Table.from_batches(rows.to_batches(max_chunksize=chunk), rows.schema)
    plain = {}
    for record in names:
        place = place_of(record, None, secret=SECRET, **SIZES)
        plain.setdefault(place, []).append((SECRET.token("order", "record", record), record))
    split = split_into_slices(chunked, secret=SECRET, **SIZES)
    assert list(split) == sorted(split)
    for place, part in split.items():
        assert part["record"].to_pylist() == [record for _, record in sorted(plain.get(place, []))]
        assert part.schema == rows.schema
        assert all(column.num_chunks <= 1 for column in part.columns)


def test_rows_with_one_id_stay_together():
    split = split_into_slices(table(["x", "y", "x"]), secret=SECRET, shards=1, slices=1)
    assert sorted(split[PLACE]["record"].to_pylist()) == ["x", "x", "y"]


@given(st.lists(st.binary(max_size=3)))
def test_distinct_contents_are_counted(contents):
    assert count_distinct(contents) == len(set(contents))


@given(names=NAMES, people=st.lists(st.sampled_from([None, "p", "q"]), min_size=25, max_size=25))
def test_compact_records_are_those_of_the_slices_in_the_order_of_their_tokens(names, people):
    rows, compact, expected = table(names, subjects=people[: len(names)]), CompactRecords(), []
    for place, part in split_into_slices(rows, secret=SECRET, **SIZES).items():
        expected += record_rows(place, count_copies(part), SECRET)
        compact.add(place, record_rows(place, count_copies(part), SECRET))
    assert list(compact) == sorted(expected, key=lambda row: row.token)


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
    assert count_distinct(contents(found, ["label", "text"])) == 6
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
    assert "row 1: column 'label' does not hold" in message


def peak(records, act):
    """Bytes that Python and numpy take at most."""
    rows = table([f"record {number}" for number in range(records)])
    tracemalloc.start()
    act(rows)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def compacted(rows):
    compact = CompactRecords()
    for place, part in split_into_slices(rows, secret=SECRET, shards=4, slices=64).items():
        compact.add(place, record_rows(place, count_copies(part), SECRET))
    for _ in compact:
        pass


@pytest.mark.parametrize(
    "act",
    [
        lambda rows: split_into_slices(rows, secret=Secret(salt="s"), shards=4, slices=4),
        lambda rows: count_distinct(contents(rows, ["label", "text"])),
        compacted,
    ],
    ids=["split", "repeated rows", "rows of the ledger"],
)
def test_each_record_more_takes_tens_of_bytes(act):
    few, many = 20_000, 40_000
    assert (peak(many, act) - peak(few, act)) / (many - few) < 150
