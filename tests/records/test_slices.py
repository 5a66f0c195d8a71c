"""Slice files: ordered by keyed hash, digested under the secret, and rewritten without a byte of who left."""

import struct

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3t.errors import IntegrityError
from s3t.partition import Place, Secret, place_of
from s3t.records import read_slice, slice_digest, slice_path, split_into_slices, without_records, write_slice

SECRET = Secret(salt="salt")
PLACE = Place(0, 0)
CANARY = "canaryword"


def table(names, *, subjects=None):
    return pa.table(
        {
            "record": pa.array(names, pa.string()),
            "subject": pa.array(subjects or [None] * len(names), pa.string()),
            "label": pa.array(["a"] * len(names), pa.string()),
            "text": pa.array([f"text of {name}" for name in names], pa.string()),
        }
    )


def token(name):
    return SECRET.token("ledger", "record", name)


NAMES = st.lists(st.text(min_size=1), unique=True, max_size=25)


@given(names=NAMES, shuffled=st.randoms())
def test_the_order_within_a_slice_does_not_depend_on_the_order_of_the_input(names, shuffled):
    other = list(names)
    shuffled.shuffle(other)
    one = split_into_slices(table(names), secret=SECRET, shards=2, slices=3)
    two = split_into_slices(table(other), secret=SECRET, shards=2, slices=3)
    assert {place: rows.to_pylist() for place, rows in one.items()} == {
        place: rows.to_pylist() for place, rows in two.items()
    }


@given(names=NAMES)
def test_every_record_lies_in_the_slice_that_its_hash_names(names):
    contents = split_into_slices(table(names), secret=SECRET, shards=2, slices=3)
    assert len(contents) == 6
    held = {record: place for place, rows in contents.items() for record in rows["record"].to_pylist()}
    assert held == {name: place_of(name, None, secret=SECRET, shards=2, slices=3) for name in names}


@given(names=NAMES, gone=st.data())
def test_without_some_records_the_others_stay_where_and_in_the_order_they_were(names, gone):
    left = [name for name in names if gone.draw(st.booleans())]
    before = split_into_slices(table(names), secret=SECRET, shards=2, slices=3)
    after = split_into_slices(table(left), secret=SECRET, shards=2, slices=3)
    for place, rows in before.items():
        kept = [record for record in rows["record"].to_pylist() if record in left]
        assert after[place]["record"].to_pylist() == kept
        removed = without_records(rows, {token(name) for name in set(names) - set(left)}, SECRET)
        assert removed.to_pylist() == after[place].to_pylist()
        assert slice_digest(removed, SECRET) == slice_digest(after[place], SECRET)


def test_another_secret_gives_another_order():
    names = [f"r{number}" for number in range(50)]
    one = split_into_slices(table(names), secret=SECRET, shards=1, slices=1)[PLACE]
    two = split_into_slices(table(names), secret=Secret(salt="other"), shards=1, slices=1)[PLACE]
    assert one["record"].to_pylist() != two["record"].to_pylist()
    assert one["record"].to_pylist() != names


def test_a_subjects_records_lie_together():
    names = [f"r{number}" for number in range(30)]
    rows = table(names, subjects=[f"p{number % 3}" for number in range(30)])
    contents = split_into_slices(rows, secret=SECRET, shards=5, slices=5)
    subjects = [person for held in contents.values() for person in set(held["subject"].to_pylist())]
    assert sorted(subjects) == ["p0", "p1", "p2"]


def test_a_written_slice_is_read_back_with_its_digest(tmp_path):
    rows = table(["x", "y"])
    write_slice(tmp_path, PLACE, rows, tmp=tmp_path / "tmp")
    content = read_slice(tmp_path, PLACE, SECRET)
    assert content.rows.to_pylist() == rows.to_pylist()
    assert content.digest == slice_digest(rows, SECRET)


def test_an_empty_slice_is_written_and_read_like_any_other(tmp_path):
    write_slice(tmp_path, PLACE, table([]), tmp=tmp_path / "tmp")
    content = read_slice(tmp_path, PLACE, SECRET)
    assert (content.rows.num_rows, content.digest) == (0, slice_digest(table([]), SECRET))
    assert content.rows.column_names == table([]).column_names


def canary_table(count=200):
    names = [f"r{number}" for number in range(count)]
    rows = table(names).to_pylist()
    rows[count // 2] |= {"record": f"{CANARY}-id", "text": f"about {CANARY} " * 5, "label": f"{CANARY}-label"}
    return pa.Table.from_pylist(rows, schema=table([]).schema)


def test_no_byte_of_a_removed_record_is_left_in_the_file(tmp_path):
    write_slice(tmp_path, PLACE, canary_table(), tmp=tmp_path / "tmp")
    path = slice_path(tmp_path, PLACE)
    assert path.read_bytes().count(CANARY.encode()) >= 7
    content = read_slice(tmp_path, PLACE, SECRET)
    kept = without_records(content.rows, {token(f"{CANARY}-id")}, SECRET)
    assert kept.num_rows == content.rows.num_rows - 1
    write_slice(tmp_path, PLACE, kept, tmp=tmp_path / "tmp")
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or CANARY.encode() not in file.read_bytes()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_files_are_plain_so_that_a_byte_search_finds_what_is_there(tmp_path):
    write_slice(tmp_path, PLACE, canary_table(), tmp=tmp_path / "tmp")
    group = pa.parquet.ParquetFile(slice_path(tmp_path, PLACE)).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    assert len(columns) == 4
    assert {column.compression for column in columns} == {"UNCOMPRESSED"}
    assert not any(column.has_dictionary_page or column.is_stats_set for column in columns)


def test_a_rewritten_file_is_the_one_that_would_have_been_written_without_the_record(tmp_path):
    rows = canary_table()
    kept = without_records(rows, {token(f"{CANARY}-id")}, SECRET)
    never = pa.Table.from_pylist([row for row in rows.to_pylist() if CANARY not in row["record"]], schema=rows.schema)
    for name, held in (("a", kept), ("b", never)):
        write_slice(tmp_path / name, PLACE, held, tmp=tmp_path / "tmp")
    one, two = (slice_path(tmp_path / name, PLACE).read_bytes() for name in "ab")
    assert one == two


def test_slice_files_are_the_owners_alone(tmp_path):
    write_slice(tmp_path, PLACE, table(["x"]), tmp=tmp_path / "tmp")
    assert slice_path(tmp_path, PLACE).stat().st_mode & 0o777 == 0o600


def test_the_digest_depends_on_the_secret_the_rows_and_their_order():
    rows = table(["x", "y"])
    digests = {
        slice_digest(rows, SECRET),
        slice_digest(rows, Secret(salt="other")),
        slice_digest(rows.take(pa.array([1, 0])), SECRET),
        slice_digest(rows.slice(0, 1), SECRET),
        slice_digest(table(["x", "z"]), SECRET),
        slice_digest(table(["x", "y"], subjects=["p", None]), SECRET),
        slice_digest(table([]), SECRET),
    }
    assert len(digests) == 7


def test_the_digest_changes_with_any_cell():
    """Of every column: a label that was flipped is another slice."""
    rows = table(["x", "y"], subjects=["p", "q"])
    digests = {slice_digest(rows, SECRET)}
    for at, name in enumerate(rows.column_names):
        changed = [*rows[name].to_pylist()[:-1], "another"]
        digests.add(slice_digest(rows.set_column(at, name, pa.array(changed)), SECRET))
    assert len(digests) == 1 + len(rows.column_names)


def test_the_digest_tells_types_apart_and_no_cell_runs_into_the_next():
    """A text, a file and a number of the same bytes, and the same letters cut elsewhere."""
    contents = [
        {"label": [b"12345678"], "text": ["c"]},
        {"label": ["12345678"], "text": ["c"]},
        {"label": struct.unpack(">d", b"12345678"), "text": ["c"]},
        {"label": ["xsy"], "text": ["z"]},  # s marks a text
        {"label": ["x"], "text": ["ysz"]},
        {"label": [None], "text": ["c"]},
        {"label": [""], "text": ["c"]},
    ]
    assert len({slice_digest(pa.table(content), SECRET) for content in contents}) == len(contents)


def test_the_digest_does_not_depend_on_the_order_of_columns_or_on_chunks():
    rows = table(["x", "y"])
    assert slice_digest(rows.select(rows.column_names[::-1]), SECRET) == slice_digest(rows, SECRET)
    assert slice_digest(pa.concat_tables([rows.slice(0, 1), rows.slice(1)]), SECRET) == slice_digest(rows, SECRET)


@pytest.mark.parametrize("damage", [None, b"", b"PAR1 nonsense PAR1"])
def test_a_slice_file_that_is_missing_or_damaged_is_named(tmp_path, damage):
    write_slice(tmp_path, PLACE, table(["x"]), tmp=tmp_path / "tmp")
    path = slice_path(tmp_path, PLACE)
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    with pytest.raises(IntegrityError, match="slice 0 of shard 0 cannot be read"):
        read_slice(tmp_path, PLACE, SECRET)
