"""The same records, in whatever form people have them: compressed, in arrays, in many files, in memory."""

import bz2
import gzip
import io
import json
import lzma
from itertools import chain

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from s3t.errors import DataError
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest
from s3t.records.reading import read_data, read_rows, read_windows
from testing.language import language_recipe

QUIRKS = [("007", 'where is, my\n"card"?', "null"), ("NA", "äöü 漢字", "x"), ("12", " spaces\t", "x")]
ROWS = [{"id": id, "text": text, "label": label} for id, text, label in QUIRKS]
ROWS += [{"id": f"r{number}", "text": f"a\tb, {number}", "label": "x"} for number in range(4)]
USED = {"id": "name", "text": "text", "label": "category"}
FRAME = pd.DataFrame(ROWS)
CSV, TSV = (FRAME.to_csv(index=False, sep=sep).encode() for sep in ",\t")
ARRAY, LINES = (
    json.dumps(ROWS, indent=1).encode(),
    "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode(),
)


def zstd(content):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def parquet(frame):
    target = io.BytesIO()
    frame.to_parquet(target, row_group_size=2)
    return target.getvalue()


FILES = {
    "rows.csv": CSV,
    "rows.jsonl": LINES + b"\n\n",
    "rows.parquet": parquet(FRAME),
    "rows.tsv": TSV,
    "rows.json": ARRAY,
    "lines.json": LINES,
    "rows.csv.gz": gzip.compress(CSV, mtime=0),
    "rows.tsv.bz2": bz2.compress(TSV),
    "rows.json.xz": lzma.compress(b"\xef\xbb\xbf " + ARRAY),
    "rows.jsonl.zst": zstd(LINES),
    "ROWS.CSV.GZ": gzip.compress(CSV[:60]) + gzip.compress(CSV[60:]),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_the_same_records_in_every_format_and_reading_leaves_no_copy(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = tmp_path / name
    path.write_bytes(FILES[name])
    table = read_data(str(path), columns=USED)
    assert (table.rows.to_pylist(), table.folder) == (ROWS, tmp_path)
    windows = [window.rows.to_pylist() for window in read_windows(str(path), columns=USED, size=3)]
    assert [len(window) for window in windows] == [3, 3, 1]
    assert [*chain(*windows)] == ROWS
    (form,) = (form for form in ("csv", "tsv", "js", "parquet") if form in name.lower())
    form = "jsonl" if form == "js" else form
    assert [row for rows, _ in read_rows(path, form, size=3) for row in rows] == ROWS
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def parts(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    for name, rows in (("p1.parquet", FRAME[:3]), ("p2.parquet", FRAME[3:])):
        rows.to_parquet(folder / name)
    return folder


def test_a_folder_or_a_pattern_of_parquet_files_is_one_table(parts):
    for path in (parts, str(parts / "p?.parquet"), parts.parent / "**" / "*.parquet"):
        table = read_data(path, columns=USED)
        assert table.rows.to_pylist() == ROWS
        assert table.folder == parts  # from which paths of images start
        assert [row for window in read_windows(path, columns=USED, size=2) for row in window.rows.to_pylist()] == ROWS


def test_of_several_files_a_problem_names_the_one(parts, tmp_path):
    recipe = recipe_from(
        {"task": "text-classification", "base_model": str(tmp_path), "labels": "infer", "columns": {"text": "text"}}
    )
    FRAME[3:].assign(text=["w", " ", "w", ""]).to_parquet(parts / "p2.parquet")
    with pytest.raises(DataError, match=r"rows 1 of p2\.parquet, 3 of p2\.parquet: column 'text' is empty or blank"):
        ingest(parts, recipe)
    FRAME[3:].assign(text=[1, 2, 3, 4]).to_parquet(parts / "p2.parquet")
    with pytest.raises(DataError, match="other types of a column"):
        read_data(parts, columns=USED)
    (parts / "p2.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"p2\.parquet:\n  - is not a readable Parquet file"):
        read_data(parts, columns=USED)


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        FRAME,
        pd.DataFrame([*ROWS, ROWS[0]], index=[5, 3, 4, 9, 1, 0, 2, 7]).iloc[:7],
        pa.Table.from_pylist(ROWS),
        datasets.Dataset.from_list(ROWS),
        datasets.Dataset.from_list(ROWS).cast_column("label", datasets.ClassLabel(names=["null", "x"])),
        datasets.Dataset.from_list(ROWS[::-1]).select(range(6, -1, -1)),
    ],
    ids=["rows", "frame", "filtered frame", "arrow", "dataset", "class labels", "shuffled dataset"],
)
def test_data_in_memory_has_the_same_records(data):
    assert read_data(data, columns=USED).rows.to_pylist() == ROWS


def test_a_set_of_one_split_is_data():
    splits = datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)})
    assert read_data(splits, columns=USED).rows.to_pylist() == ROWS
    splits["test"] = splits["train"]
    with pytest.raises(DataError, match="has the splits train, test; pass one of them"):
        read_data(splits, columns=USED)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.csv.gz", gzip.compress(CSV, mtime=0)[:-9], "is no whole gzip file, perhaps truncated"),
        ("a.json.xz", lzma.compress(ARRAY)[:-5], "is no whole xz file"),
        ("a.jsonl.zst", b"plain", "is no whole zstd file"),
        ("a.parquet.gz", b"", "has the suffix '.gz'; use .csv, .tsv"),
        ("a.json", b'[{"id": "1"}, 3, {"id": "2"}, []]', "row 1: holds a int; write an array of objects"),
        ("a.json", b'[{"id": "1", "id": "2"}]', "gives a key of an object twice"),
        ("a.json", b'[{"id": "1"}', "is not JSON, from character 13 on; write an array of objects"),
        ("a.tsv", b'id\ttext\n1\ta\tb\n', "3 cells and the header 2; put cells that hold tabs into quotes"),
        ("a.tsv", b'id\ttext\n1\t"x, y\n2\tb\n', "line 2: a cell begins there with a quote"),
        ("no*.parquet", None, "names no file; check the pattern"),
        ("", None, "holds no Parquet file"),
    ],
    ids=range(11),
)  # fmt: skip
def test_what_cannot_be_read_is_told(name, content, problem, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    for size in (2, 100):
        with pytest.raises(DataError) as told:
            list(read_windows(tmp_path / name, columns={"id": "name", "text": "text"}, size=size))
        assert problem in str(told.value)


def test_chats_of_sharegpt_and_pairs_of_messages_are_chats(tmp_path):
    told = {"from": "human", "value": "w1"}, {"from": "gpt", "value": "w2"}
    same = [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w2"}]
    recipe = recipe_from(language_recipe(tmp_path) | {"columns": {"messages": "conversations"}})
    (chat,) = ingest([{"conversations": list(told)}], recipe).rows["messages"].to_pylist()
    assert json.loads(chat) == same
    pairs = recipe_from(language_recipe(tmp_path) | {"columns": {"messages": ["prompt", "completion"]}})
    rows = [{"prompt": same[:1], "completion": same[1:]}, {"prompt": json.dumps(same[:1]), "completion": same[1:]}]
    assert [json.loads(chat) for chat in ingest(rows, pairs).rows["messages"].to_pylist()] == [same, same]
    rows.append({"prompt": same[:1], "completion": []})
    with pytest.raises(DataError, match=r"row 2: .*'prompt, completion' is no list of messages"):
        ingest(rows, pairs)
