"""From a table to records: the same from every form of data, and every problem of it at once."""

import io
from dataclasses import replace
from itertools import product

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from s3t import DataError, record_ids
from s3t.records import reading
from s3t.records.ingest import ingest, ingest_inputs, ingest_labelled
from s3t.store import rows as rows_module
from s3t.tasks import TASKS
from s3t.tasks.targets import Classification
from testing import tiny
from tests.records.given import recipe

IMAGES = recipe(task="image-classification", columns={"id": "id", "image": "image"})
ROWS = [
    {"id": "007", "person": "p1", "text": "one", "label": "a"},
    {"id": "r1", "person": None, "text": "two", "label": "b"},
    {"id": "7", "person": "p1", "text": "one", "label": "a"},
]


def problems_of(data, wanted=None):
    with pytest.raises(DataError) as caught:
        ingest(data, wanted or recipe())
    return caught.value.problems


def frame(**columns):
    return pd.DataFrame({"id": ["x", "y"], "text": ["one", "two"], "label": ["a", "b"]} | columns)


def test_rows_are_records_with_labels_of_a_class_label_by_name():
    rows = datasets.Dataset.from_list(ROWS).cast_column("label", datasets.ClassLabel(names=["b", "a"]))
    records = ingest(rows, recipe(columns={"id": "id", "subject": "person", "text": "text"}))
    assert records.labels == ("a", "b")
    assert records.rows.to_pylist() == [
        {"record": row["id"], "subject": row["person"], "label": row["label"], "text": row["text"]} for row in ROWS
    ]


def image_forms(folder):
    contents = [tiny.png([[10, 20], [30, 40]]), tiny.png([[255, 255], [0, 0]])]
    table = {"id": ["x", "y"], "label": ["a", "b"]}
    for name, content in zip("xy", contents, strict=True):
        (folder / f"{name}.png").write_bytes(content)
    paths = [f"{name}.png" for name in "xy"]
    pd.DataFrame(table | {"image": paths}).to_csv(folder / "paths.csv", index=False)
    pa.parquet.write_table(pa.table(table | {"image": contents}), folder / "bytes.parquet")
    absolute = datasets.Dataset.from_dict(table | {"image": [str(folder / path) for path in paths]})
    inline = datasets.Dataset.from_dict(table | {"image": [{"bytes": content, "path": None} for content in contents]})
    yield contents
    yield folder / "paths.csv"
    yield folder / "bytes.parquet"
    yield pd.DataFrame(table | {"image": contents})
    yield absolute.cast_column("image", datasets.Image())
    yield inline.cast_column("image", datasets.Image())
    yield inline.cast_column("image", datasets.Image(decode=False))


def test_images_are_the_same_as_bytes_as_paths_and_as_the_image_feature(tmp_path):
    contents, *forms = image_forms(tmp_path)
    for form in forms:
        assert ingest(form, IMAGES).rows["image"].to_pylist() == contents


def test_images_that_the_image_feature_encoded_itself_are_records(tmp_path):
    pixels = [Image.fromarray(np.full((4, 4), grey, np.uint8)) for grey in (3, 200)]
    features = datasets.Features(
        {"id": datasets.Value("string"), "image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
    )
    made = datasets.Dataset.from_dict({"id": ["x", "y"], "image": pixels, "label": [0, 1]}, features=features)
    records = ingest(made, IMAGES).rows.to_pylist()
    greys = [Image.open(io.BytesIO(row["image"])).getpixel((0, 0)) for row in records]
    assert greys == [3, 200]
    assert [row["label"] for row in records] == ["a", "b"]


def test_missing_columns_are_named_with_their_roles_and_those_there_are():
    (problem,) = problems_of(frame().drop(columns="text"))
    assert problem.startswith("column 'text' is missing (columns.text); the data has 'id', 'label'")
    problems = problems_of(pd.DataFrame({"other": [1]}))
    assert sorted(problem.split("'")[1] for problem in problems) == ["id", "label", "text"]


def test_a_column_that_occurs_twice_is_refused():
    twice = pa.Table.from_arrays([pa.array(["x"])] * 4, names=["id", "text", "text", "label"])
    assert "column 'text' occurs 2 times; name each column once" in problems_of(twice)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (
            {"id": ["x", "x"]},
            "row 1: the id (column 'id') is a duplicate of row 0's; ids must be unique",
        ),
        ({"id": ["x", ""]}, "row 1: the id (column 'id') is empty; give every record one"),
        ({"label": ["a", "zzz"]}, "row 1: the label (column 'label') is outside the declared labels; declare it or"),
        ({"text": ["one", " \n\t"]}, "row 1: column 'text' is empty or blank; every record needs text: fill or drop"),
    ],
)
def test_a_wrong_cell_is_named_by_row(columns, problem):
    (told,) = problems_of(frame(**columns))
    assert told.startswith(problem)


@pytest.mark.parametrize("value", ["much", None, float("inf"), 1e39])
def test_a_regression_label_is_a_finite_number(value):
    regression = recipe(task="text-regression", labels=...)
    table = pa.table({"id": ["x"], "text": ["one"], "label": pa.array([value])})
    assert "does not hold a number between -1e15 and 1e15; correct or drop the row" in problems_of(table, regression)[0]


def test_regression_labels_are_numbers_from_text_too():
    table = frame(label=["1.5", "2"])
    assert ingest(table, recipe(task="text-regression", labels=...)).rows["label"].to_pylist() == [1.5, 2.0]


def test_a_pair_needs_both_texts():
    pair = recipe(columns={"id": "id", "text": "text", "text_pair": "other"})
    assert ingest(frame(other=["x", "y"]), pair).rows["text_pair"].to_pylist() == ["x", "y"]
    assert "column 'other' is empty" in problems_of(frame(other=["x", None]), pair)[0]


def test_rows_with_the_same_unreadable_image_are_told_in_one_sentence():
    table = pd.DataFrame({"id": [f"r{n}" for n in range(15)], "image": [b"broken"] * 15, "label": ["a"] * 15})
    (problem,) = problems_of(table, IMAGES)
    assert problem.startswith("rows 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 5 more: the image (column 'image') is none of PNG")


def test_a_missing_image_path_is_named(tmp_path):
    pd.DataFrame({"id": ["y"], "image": ["nowhere.png"], "label": ["b"]}).to_csv(tmp_path / "rows.csv", index=False)
    (problem,) = problems_of(tmp_path / "rows.csv", IMAGES)
    assert problem == ("line 2: the image (column 'image') cannot be read: No such file or directory; correct the path")


@pytest.mark.parametrize(("cell", "said"), [(7, "is neither bytes nor a path"), (None, "is neither"), ("a\0b", "")])
def test_an_image_cell_that_holds_neither_bytes_nor_a_path_is_named(cell, said):
    table = pa.table({"id": ["x"], "image": pa.array([cell]), "label": ["a"]})
    assert problems_of(table, IMAGES)[0].startswith(f"row 0: the image (column 'image') {said}")


@pytest.mark.parametrize("rows", [None, 1], ids=["at once", "in windows"])
def test_all_problems_of_a_table_are_told_at_once_with_their_rows(rows, monkeypatch):
    for module in (rows_module, reading) if rows else ():
        monkeypatch.setattr(module, "WINDOW_ROWS", rows)
    table = pd.DataFrame(
        {"id": ["x", "x", "", "z"], "text": ["one", None, "three", "four"], "label": ["a", "b", "zzz", None]}
    )
    problems = problems_of(table)
    parts = {"duplicate of row 0": 1, "is empty; give": 2, "every record needs text": 1, "is outside": 2}
    for part, row in (parts | {"does not hold": 3}).items():
        (problem,) = (problem for problem in problems if part in problem)
        assert problem.startswith(f"row {row}: ")


def test_a_table_without_records_is_refused():
    assert problems_of(frame().iloc[:0]) == ("holds no records",)


UNSEEN = "in blanks or Unicode form alone; write both alike"


def labelled(task, *labels):
    """A row for each label."""
    cells = (
        [[label] for label in labels] if task in ("text-multi-label-classification", "token-classification") else labels
    )
    texts = [[label] for label in labels] if task == "token-classification" else labels
    return pa.table({"id": [str(row) for row in range(len(labels))], "text": texts, "label": cells})


@pytest.mark.parametrize(
    ("task", "other"),
    [
        *product(["text-classification"], ["cafe\u0301 x", "caf\u00e9 x ", "caf\u00e9  x", "\u00a0caf\u00e9 x"]),
        ("text-ordinal-classification", "caf\u00e9\u00a0x"),
        ("text-multi-label-classification", "\ufeffcaf\u00e9 x"),
        ("token-classification", "cafe\u0301 x"),
    ],
)
def test_a_label_that_looks_like_another_is_refused_by_its_row(task, other):
    told = "row 2: the label (column 'label') differs from {} " + UNSEEN
    data = labelled(task, "b", "caf\u00e9 x", other)
    declared = recipe(task=task, labels=["b", "caf\u00e9 x"])
    assert problems_of(data, declared) == (told.format("a declared one"),)
    with pytest.raises(DataError) as caught:  # what is evaluated
        ingest_labelled(data, declared, labels=("b", "caf\u00e9 x"))
    assert caught.value.problems == (told.format("the run's"),)
    if task != "text-ordinal-classification":
        assert problems_of(data, recipe(task=task, labels="infer")) == (told.format("row 1's"),)


def test_a_label_that_looks_like_a_named_value_is_refused():
    named = recipe(labels={"x  y": "a", 1: "b"})
    assert ingest(frame(label=["x  y", "b"]), named).rows["label"].to_pylist() == ["a", "b"]
    assert UNSEEN in problems_of(frame(label=["x y", "b"]), named)[0]


def test_inferred_labels_are_those_of_the_records_in_order():
    assert ingest(frame(label=["z", "a"]), recipe(labels="infer")).labels == ("a", "z")
    assert "at least 2" in problems_of(frame(label=["z", "z"]), recipe(labels="infer"))[0]
    assert "does not hold a label" in problems_of(frame(label=["\u00a0", "b"]), recipe(labels="infer"))[-1]  # blank


CONTENT = recipe(columns={"text": "text", "subject": "person"})


def test_without_an_id_column_identical_rows_share_an_id_and_others_do_not():
    rows = [("p", "one", "a"), ("p", "one", "a"), ("q", "one", "a"), ("p", "two", "a"), ("p", "one", "b")]
    table = pd.DataFrame(rows, columns=["person", "text", "label"])
    ids = record_ids(table, CONTENT)
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4
    pair = recipe(columns={"text": "text", "text_pair": "other"})  # words do not run from a column into the next
    table = pd.DataFrame({"text": ["ab", "a"], "other": ["c", "bc"], "label": ["a", "a"]})
    assert len(set(record_ids(table, pair))) == 2


def test_content_ids_do_not_depend_on_the_rows_around_or_the_form(tmp_path):
    table = pd.DataFrame([("p", "one", "a"), ("q", "two", "b")], columns=["person", "text", "label"])
    table.to_csv(tmp_path / "rows.csv", index=False)
    ids = record_ids(table, CONTENT)
    assert record_ids(table.iloc[1:], CONTENT) == ids[1:]
    assert record_ids(tmp_path / "rows.csv", CONTENT) == ids
    assert record_ids(datasets.Dataset.from_pandas(table), CONTENT) == ids


def test_inputs_need_neither_labels_nor_ids_and_keep_ids_that_are_there():
    features, ids, _ = ingest_inputs(frame().drop(columns=["label", "id"]), recipe())
    assert (features.column_names, ids) == (["text"], None)
    assert ingest_inputs(frame(), recipe())[1] == ["x", "y"]
    twice = pa.Table.from_arrays([pa.array(["x"])] * 3, names=["id", "id", "text"])
    assert ingest_inputs(twice, recipe())[1] is None
    with pytest.raises(DataError, match=r"columns\.text"):
        ingest_inputs(frame().drop(columns="text"), recipe())


def test_labelled_data_needs_no_ids_but_labels():
    assert ingest_labelled(frame(id=["x", "x"]), recipe()).rows.num_rows == 2
    with pytest.raises(DataError, match=r"columns\.label"):
        ingest_labelled(frame().drop(columns="label"), recipe())


def test_a_task_whose_target_reads_no_label_needs_no_label_column():
    """Its records are features and their owner, and their ids follow from that alone."""
    target = replace(Classification(), column=None, has_labels=False)
    unlabelled = replace(TASKS["text-classification"], name="x", target=target)
    wanted = recipe(task=unlabelled, labels=..., columns={"text": "text"})
    records = ingest(pd.DataFrame({"text": ["one", "two", "one"]}), wanted)
    assert set(records.rows.column_names) == {"record", "subject", "text"}
    first, second, third = records.rows["record"].to_pylist()
    assert first == third != second
    assert ingest_labelled(pd.DataFrame({"text": ["one"]}), wanted).rows.column_names == ["record", "subject", "text"]
