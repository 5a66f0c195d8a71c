"""Records that are read window by window are those that are read at once, and so is what is wrong with them."""

import json
import tempfile
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from s3t.core import Secret
from s3t.errors import DataError
from s3t.records.ingest import ingest, ingest_into
from s3t.records.reading import read_windows
from s3t.records.splitting import Split
from s3t.store.spill import Spill
from s3t.tasks import TASKS
from tests.records import given
from tests.records.given import split_into_slices

SECRET = Secret(salt="salt")
SIZES = {"shards": 2, "slices": 4}
GROUP = {"column": "age", "slices": {"1": [1, 0], "02": [3, 2]}, "deletion": {"1": 1, "02": 2}}
ROWS = 40


def recipe(group=None, *, task="text-classification", labels=("a", "b"), **columns):
    inputs = replace(TASKS[task].inputs, window_rows=3)
    return given.recipe(
        task=replace(TASKS[task], inputs=inputs),
        columns={"text": "text", "label": "label"} | columns,
        labels=list(labels) if isinstance(labels, tuple) else labels,
        partition=SIZES | ({"group": group} if group else {}),
    )


def frame(**columns):
    people = [None if row % 4 == 3 else f"p{row % 6}" for row in range(ROWS)]
    content = {
        "id": [f"r{row}" for row in range(ROWS)],
        "text": [f'text {row % 15},\n"é"' for row in range(ROWS)],
        "label": ["ab"[row % 2] for row in range(ROWS)],
        "person": people,
        "age": ["1" if row % 4 == 3 or row % 2 else "02" for row in range(ROWS)],
        "number": [row / 3 for row in range(ROWS)],
    }
    return pd.DataFrame(content | columns)


def as_csv(table, folder):
    table.to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


def as_json(table, folder):
    lines = [row.dropna().to_json(force_ascii=False) + "\n" for _, row in table.iterrows()]
    (folder / "x.jsonl").write_text("\n".join(lines))
    return folder / "x.jsonl"


def as_parquet(table, folder):
    table.to_parquet(folder / "x.parquet", row_group_size=7)
    return folder / "x.parquet"


FORMS = {
    "csv": as_csv,
    "jsonl": as_json,
    "parquet": as_parquet,
    "frame": lambda table, _: table,
    "arrow": lambda table, _: pa.Table.from_pandas(table),
}
RECIPES = {
    "ids": recipe(id="id"),
    "no ids": recipe(),
    "subjects": recipe(id="id", subject="person"),
    "subjects without ids": recipe(subject="person"),
    "groups": recipe(GROUP, id="id", subject="person"),
    "groups without ids": recipe(GROUP, subject="person"),
    "labels": recipe(id="id", labels="infer"),
    "numbers": recipe(id="id", task="text-regression", labels=..., label="number"),
}


def in_windows(data, wanted):
    with Spill(Path(tempfile.gettempdir())) as spill:
        split = Split(spill, secret=SECRET, **SIZES)
        labels = ingest_into(split, data, wanted)
        return labels, {place: rows.to_pylist() for place, rows in split.items()}


@pytest.mark.parametrize(("name", "form"), [*product(RECIPES, ["csv"]), *product(["groups without ids"], FORMS)])
def test_records_are_those_that_are_read_at_once(name, form, tmp_path):
    data = FORMS[form](frame(), tmp_path)
    records = ingest(data, RECIPES[name])
    slices = split_into_slices(records.rows, secret=SECRET, **SIZES, among=records.among)
    whole = {place: rows.to_pylist() for place, rows in slices.items()}
    assert in_windows(data, RECIPES[name]) == (records.labels, whole)


def with_cell(column, row, value):
    table = frame()
    table[column] = table[column].astype(object)
    table.loc[row, column] = value
    return table


WRONG = {
    "a text that is missing": (with_cell("text", 30, None), RECIPES["ids"]),
    "a label that is not declared": (with_cell("label", 38, "c"), RECIPES["ids"]),
    "an id that is missing": (with_cell("id", 20, None), RECIPES["ids"]),
    "an id that is one of another window": (with_cell("id", 33, "r2"), RECIPES["ids"]),
    "a column that is missing": (frame().drop(columns="label"), RECIPES["ids"]),
    "a subject with two groups": (with_cell("age", 36, "1"), RECIPES["groups"]),
    "a group that is not declared": (with_cell("age", 39, "7"), RECIPES["groups"]),
    "one label alone": (frame(label="a"), RECIPES["labels"]),
    "no rows": (frame().iloc[:0], RECIPES["ids"]),
    "a number that is none": (with_cell("number", 35, "x").astype({"number": str}), RECIPES["numbers"]),
}


@pytest.mark.parametrize(("name", "form"), [*product(WRONG, ["csv"]), *zip(WRONG, cycle(FORMS))])
def test_what_is_wrong_is_told_as_of_what_is_read_at_once(name, form, tmp_path):
    table, wanted = WRONG[name]
    data = FORMS[form](table, tmp_path)
    with pytest.raises(DataError) as whole:
        ingest(data, wanted)
    with pytest.raises(DataError) as refused:
        in_windows(data, wanted)
    assert refused.value.problems == whole.value.problems


MALFORMED = {
    "ragged rows": ("x.csv", b"id,text,label\n" + b"1,w,a\n" * 50 + b"1,w\n" + b"1,w,a\n" * 50 + b"1,2,3,4\n"),
    "no header": ("x.csv", b"\n\n"),
    "nothing": ("x.csv", b""),
    "not UTF-8": ("x.csv", b"id,text,label\n" + b"1,w,a\n" * 50 + b"1,\xff,a\n1,w,a\n"),
    "half a character": ("x.csv", b"id,text,label\n" + b"1,w,a\n" * 50 + b"1,a,\xc3"),
    "no JSON": ("x.jsonl", b'{"id": 1, "text": "w", "label": "a"}\n' * 9 + b"{\n\n[]\n" + b'{"id": 1}\n' * 30),
    "much that is no JSON": ("x.jsonl", b"{\n" * 30),
    "half a surrogate": ("x.jsonl", b'{"id": 1, "text": "w", "label": "a"}\n' * 9 + b'{"text": "\\ud800"}\n' * 5),
    "no Parquet": ("x.parquet", b"PAR1"),
    "another suffix": ("x.txt", b"id"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_refused_in_the_same_words(name, tmp_path):
    path = tmp_path / MALFORMED[name][0]
    path.write_bytes(MALFORMED[name][1])
    with pytest.raises(DataError) as whole:
        ingest(path, RECIPES["ids"])
    with pytest.raises(DataError) as refused:
        in_windows(path, RECIPES["ids"])
    assert refused.value.problems == whole.value.problems
    assert refused.value.__context__ is None


def test_json_lines_may_name_a_subject_late_but_not_an_id(tmp_path):
    path = tmp_path / "x.jsonl"
    rows = [json.dumps({"id": row, "text": "w", "label": "ab"[row % 2]}) for row in range(9)]
    path.write_text("\n".join([*rows, '{"id": 9, "text": "w", "label": "a", "person": "p"}']))
    wanted = recipe(id="id", subject="person")
    assert sum(map(len, in_windows(path, wanted)[1].values())) == 10
    path.write_text("\n".join([*(row.replace("id", "no") for row in rows), '{"id": 9, "text": "w", "label": "a"}']))
    with pytest.raises(DataError, match=r"column 'id' is missing before line 10; give every record one"):
        in_windows(path, recipe(id="id"))


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    path = as_csv(frame(), tmp_path)
    windows = read_windows(path, columns={"id": "name"}, size=3)
    next(windows)
    with path.open("a") as file:
        file.write("r40,t,a,,1,0\n")
    with pytest.raises(DataError, match="changed while it was read"):
        list(windows)


def test_no_more_than_a_window_is_read_ahead(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": 1}\n' * 10_000)
    with path.open("rb") as file:
        next(read_windows(file, columns={}, size=10, form="jsonl"))
        assert file.tell() < 10_000
