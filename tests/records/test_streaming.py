"""Inputs window by window are the inputs of the whole file, and lines are those of an editor."""

import csv
import io
import random

import pandas as pd
import pyarrow as pa
import pytest

from s3t.errors import DataError
from s3t.records.ingest import ingest, ingest_inputs, ingest_windows
from tests.records.given import recipe

RECIPE = recipe(columns={"id": "id", "text": "text"})


def written_csv(rows, end):
    content = io.StringIO(newline="")
    table = csv.DictWriter(content, ["id", "text", "label"], lineterminator=end)
    table.writeheader()
    table.writerows(rows)
    return content.getvalue().encode()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_windows_of_a_csv_file_are_its_rows_and_lines_are_an_editors(tmp_path, end):
    path, rng = tmp_path / "x.csv", random.Random(0)
    for _ in range(15):
        texts = ["".join(rng.choice("ab,\"\n é'") for _ in range(rng.randint(0, 8))) + "z" for _ in range(7)]
        path.write_bytes(written_csv([{"id": str(n), "text": text, "label": "a"} for n, text in enumerate(texts)], end))
        whole = ingest_inputs(path, RECIPE)
        windows = list(ingest_windows(path, None, RECIPE, size=3))
        assert [window.features.num_rows for window in windows] == [3, 3, 1]
        assert pa.concat_tables(window.features for window in windows).equals(whole.features)
        lines = [line for window in windows for line in window.places]
        assert lines == list(whole.places)
        starts = [2 + sum(1 + text.count("\n") for text in texts[:n]) for n in range(7)]
        assert lines == starts


def test_a_file_of_json_lines_may_begin_with_a_mark_and_mix_names(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('\ufeff{"id": 1, "text": "x"}\n\n{"id": "a", "text": "y"}\n', encoding="utf-8")
    (window,) = ingest_windows(path, None, RECIPE, size=5)
    assert (window.ids, list(window.places)) == (["1", "a"], [1, 3])


def test_windows_of_parquet_are_of_one_size_whatever_its_groups_of_rows(tmp_path):
    path = tmp_path / "x.parquet"
    pd.DataFrame({"id": range(10), "text": list("abcdefghij")}).to_parquet(path, row_group_size=3)
    windows = list(ingest_windows(path, None, RECIPE, size=4))
    assert [list(window.places) for window in windows] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.csv", "id,text,label\n1,w,a\n2,,b\n", "line 3: column 'text' is empty"),
        ("x.csv", 'id,text,label\n1,"w\nw",a\n1,w,b\n', "line 4: the id (column 'id') is a duplicate of line 2's"),
        (
            "x.jsonl",
            '{"id": 1, "text": "w", "label": "a"}\n\n{"id": 2, "text": "w", "label": "c"}\n',
            "line 3: the label",
        ),
    ],
)
def test_problems_name_the_line_of_the_file(tmp_path, name, content, problem):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError) as caught:
        ingest(tmp_path / name, RECIPE)
    assert caught.value.problems[0].startswith(problem)


def test_a_column_that_is_like_one_is_told_and_a_runs_recipe_is_not_to_be_changed(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,txt,label\n1,w,a\n")
    with pytest.raises(
        DataError, match=r"did you mean txt\?: correct the data's column names, or the recipe's columns"
    ):
        ingest(path, RECIPE)
    with pytest.raises(DataError) as caught:
        ingest_inputs(path, RECIPE)
    assert "recipe's columns" not in str(caught.value)


def test_parquet_cannot_come_through_a_pipe():
    with pytest.raises(DataError, match="whose end is read first"):
        list(ingest_windows(io.BytesIO(b""), "parquet", RECIPE, size=5))
