"""Slice files: ordered by keyed hash, digested under the secret, and rewritten without a byte of who left."""

import struct

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3t.core import Place, Secret
from s3t.errors import IntegrityError
from s3t.store.blobs import LocalBlobs
from s3t.store.disk import OpenedFolder
from s3t.store.slices import Slices, slice_digest, version_name, without_records
from tests.records.given import split_into_slices

SECRET = Secret(salt="salt")
PLACE = Place(0, 0)
CANARY = "canaryword"


def slices_in(folder):
    blobs = LocalBlobs(folder, tmp=folder.parent / f"tmp of {folder.name}", within=OpenedFolder.of(folder.parent))
    return Slices(blobs=blobs, secret=SECRET, run=folder)


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


def test_a_written_slice_is_read_back_with_its_digest(tmp_path):
    slices = slices_in(tmp_path)
    empty = slices.read(PLACE, slices.put(PLACE, table([])))
    assert (empty.num_rows, empty.column_names) == (0, table([]).column_names)
    slices, rows = slices_in(tmp_path / "other"), table(["x", "y"])
    digest = slices.put(PLACE, rows)
    assert digest == slice_digest(rows, SECRET)
    assert slices.read(PLACE, digest).to_pylist() == rows.to_pylist()
    assert slices.read(PLACE, digest, ["record", "subject"])["record"].to_pylist() == ["x", "y"]
    assert (slices.count_rows(PLACE, digest), slices.versions()) == (2, {PLACE: {digest}})


def test_a_version_that_is_there_stays_and_one_that_is_damaged_is_put_again(tmp_path):
    slices, rows = slices_in(tmp_path), table(["x"])
    digest = slices.put(PLACE, rows)
    path = tmp_path / version_name(PLACE, digest)
    before = path.stat().st_ino
    assert slices.put(PLACE, rows) == digest
    assert path.stat().st_ino == before
    path.write_bytes(b"PAR1 nonsense PAR1")
    assert slices.put(PLACE, rows) == digest
    assert slices.read(PLACE, digest).num_rows == 1


def test_a_version_with_other_rows_than_its_name_says_is_refused(tmp_path):
    slices = slices_in(tmp_path)
    one, other = slices.put(PLACE, table(["x"])), slices.put(PLACE, table(["y"]))
    (tmp_path / version_name(PLACE, one)).write_bytes((tmp_path / version_name(PLACE, other)).read_bytes())
    with pytest.raises(IntegrityError, match="not the one that the ledger knows"):
        slices.read(PLACE, one)


def canary_table(count=200):
    names = [f"r{number}" for number in range(count)]
    rows = table(names).to_pylist()
    rows[count // 2] |= {"record": f"{CANARY}-id", "text": f"about {CANARY} " * 5, "label": f"{CANARY}-label"}
    return pa.Table.from_pylist(rows, schema=table([]).schema)


def test_no_byte_of_a_removed_record_is_left_in_the_next_version(tmp_path):
    slices = slices_in(tmp_path)
    digest = slices.put(PLACE, canary_table())
    assert (tmp_path / version_name(PLACE, digest)).read_bytes().count(CANARY.encode()) >= 7
    rows = slices.read(PLACE, digest)
    kept = without_records(rows, {token(f"{CANARY}-id")}, SECRET)
    assert kept.num_rows == rows.num_rows - 1
    slices.put(PLACE, kept)
    slices.erase([(PLACE, digest)])
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or CANARY.encode() not in file.read_bytes()
    assert list(tmp_path.parent.joinpath(f"tmp of {tmp_path.name}").iterdir()) == []


def test_files_are_the_owners_alone_and_plain_so_that_a_byte_search_finds_what_is_there(tmp_path):
    path = tmp_path / version_name(PLACE, slices_in(tmp_path).put(PLACE, canary_table()))
    assert path.stat().st_mode & 0o777 == 0o600
    group = pa.parquet.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    assert len(columns) == 4
    assert {column.compression for column in columns} == {"UNCOMPRESSED"}
    assert not any(column.has_dictionary_page or column.is_stats_set for column in columns)


def test_a_rewritten_file_is_the_one_that_would_have_been_written_without_the_record(tmp_path):
    rows = canary_table()
    kept = without_records(rows, {token(f"{CANARY}-id")}, SECRET)
    never = pa.Table.from_pylist([row for row in rows.to_pylist() if CANARY not in row["record"]], schema=rows.schema)
    one, two = (slices_in(tmp_path / name).put(PLACE, held) for name, held in (("a", kept), ("b", never)))
    assert one == two
    name = version_name(PLACE, one)
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


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


@pytest.mark.parametrize("damage", [None, b"PAR1 nonsense PAR1"])
def test_a_slice_file_that_is_missing_or_damaged_is_named(tmp_path, damage):
    slices = slices_in(tmp_path)
    digest = slices.put(PLACE, table(["x"]))
    path = tmp_path / version_name(PLACE, digest)
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    with pytest.raises(IntegrityError, match="slice 0 of shard 0 cannot be read"):
        slices.read(PLACE, digest)
