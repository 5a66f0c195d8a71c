"""Groups of rows: each from its own cell, kept nowhere, and every mistake in them told at once."""

import pandas as pd
import pyarrow as pa
import pytest

from s3t import DataError, record_ids
from s3t.core import Secret
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest, ingest_inputs, ingest_labelled
from tests.records.splits import split_into_slices

SPLIT = {"shards": 2, "slices": 4}
GROUP = {"column": "age", "slices": {"1": [1, 0], "02": [3, 2]}, "deletion": {"1": 1, "02": 2}}


def recipe(group=GROUP, **columns):
    return recipe_from(
        {
            "task": "text-classification",
            "base_model": "m",
            "columns": {"text": "text"} | columns,
            "labels": ["a", "b"],
            "partition": SPLIT | {"group": group},
        }
    )


WITH_IDS = recipe(id="id")


def frame(ages=("1", "02", "1"), **columns):
    content = {"id": ["x", "y", "z"], "text": ["one", "two", "three"], "label": ["a", "b", "a"], "age": list(ages)}
    return pd.DataFrame(content | columns)


def problems_of(data, wanted=WITH_IDS):
    with pytest.raises(DataError) as caught:
        ingest(data, wanted)
    return caught.value.problems


def test_each_row_may_lie_in_the_slices_of_its_group():
    assert ingest(frame(), WITH_IDS).among == [(0, 1), (2, 3), (0, 1)]
    assert ingest(frame(), recipe(None, id="id")).among is None


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_every_form_of_data_names_the_same_groups(suffix, tmp_path):
    """In CSV the column is read as text: 02 stays 02."""
    path = tmp_path / f"rows.{suffix}"
    if suffix == "csv":
        frame().to_csv(path, index=False)
    elif suffix == "parquet":
        frame().to_parquet(path)
    else:
        frame().to_json(path, orient="records", lines=True)
    assert ingest(path, WITH_IDS).among == [(0, 1), (2, 3), (0, 1)]


def test_a_column_of_numbers_names_groups_as_text():
    numbers = GROUP | {"slices": {1: [0, 1], 2: [2, 3]}, "deletion": {1: 1, 2: 2}}
    for ages in ([1, 2, 1], [1.0, 2.0, 1.0]):
        assert ingest(frame(ages), recipe(numbers, id="id")).among == [(0, 1), (2, 3), (0, 1)]


def test_the_group_is_no_feature_and_is_not_kept():
    records = ingest(frame(), WITH_IDS)
    assert records.rows.column_names == ["record", "subject", "label", "text"]
    slices = split_into_slices(records.rows, secret=Secret(salt="s"), **SPLIT, among=records.among)
    assert all(rows.column_names == records.rows.column_names for rows in slices.values())


def test_records_lie_in_the_slices_of_their_group():
    count = 200
    ages = ["1" if number % 3 else "02" for number in range(count)]
    table = pd.DataFrame({"id": [f"r{number}" for number in range(count)], "text": "t", "label": "a", "age": ages})
    records = ingest(table, WITH_IDS)
    slices = split_into_slices(records.rows, secret=Secret(salt="s"), **SPLIT, among=records.among)
    assert sum(rows.num_rows for rows in slices.values()) == count
    for place, rows in slices.items():
        found = {ages[int(record[1:])] for record in rows["record"].to_pylist()}
        assert found == {"1" if place.slice in (0, 1) else "02"}


def test_ids_are_what_they_are_without_groups():
    without_ids = recipe()
    assert record_ids(frame(), without_ids) == record_ids(frame(), recipe(None))
    assert record_ids(frame(), WITH_IDS) == ["x", "y", "z"]


def test_inputs_and_labelled_data_need_no_group():
    bare = frame().drop(columns="age")
    assert ingest_inputs(bare, WITH_IDS)[0].column_names == ["text"]
    assert ingest_labelled(bare, WITH_IDS).rows.num_rows == 3
    assert ingest_labelled(frame(["?", None, "1"]), WITH_IDS).rows.num_rows == 3


def test_a_missing_group_column_is_named_with_its_field():
    (problem,) = problems_of(frame().drop(columns="age"))
    assert problem.startswith("column 'age' is missing (partition.group.column); the data has 'id', 'text', 'label'")


@pytest.mark.parametrize("other", ["02 ", "\u00a002"])
def test_a_group_that_looks_like_a_declared_one_is_refused_by_its_row(other):
    (problem,) = problems_of(frame(age=[other, "02", "1"]))
    assert problem.startswith("row 0: the group (column 'age') differs from a declared one in blanks or Unicode form")


def test_a_group_column_that_occurs_twice_is_refused():
    twice = pa.Table.from_arrays([pa.array(["x"])] * 5, names=["id", "text", "label", "age", "age"])
    assert "column 'age' occurs 2 times; name each column once" in problems_of(twice)


@pytest.mark.parametrize("empty", ["", None, float("nan")])
def test_an_empty_group_is_named_by_row(empty):
    (problem,) = problems_of(frame(["1", empty, "02"]))
    assert problem == "row 1: the group (column 'age') is empty; give every record one"


def test_a_group_outside_those_declared_is_named_by_row_with_the_remedy():
    (problem,) = problems_of(frame(["1", "2", "2"]))
    assert problem == (
        "rows 1, 2: the group (column 'age') is outside the declared groups; declare it in partition.group or correct "
        "the row"
    )


def test_all_records_of_a_subject_have_one_group():
    people = recipe(id="id", subject="person")
    assert ingest(frame(["1", "02", "1"], person=["p", None, "p"]), people).rows.num_rows == 3
    (problem,) = problems_of(frame(["1", "02", "02"], person=["p", None, "p"]), people)
    assert problem == (
        "row 2: the subject has another group here than in row 0; such records lie in one slice, so give them one group"
    )


def test_identical_rows_without_an_id_have_one_group():
    same = {"text": ["one"] * 3, "label": ["a"] * 3}
    assert len(set(ingest(frame(["1", "1", "1"], **same), recipe()).rows["record"].to_pylist())) == 1
    (problem,) = problems_of(frame(["1", "1", "02"], **same), recipe())
    assert problem.startswith("row 2: the same record has another group here than in row 0")


def test_all_problems_of_groups_are_told_at_once_beside_others():
    table = frame(["1", None, "?"], text=["one", None, "three"], person=["p", "p", "p"])
    table.loc[3] = ["x", "four", "zzz", "02", "p"]
    problems = problems_of(table, recipe(id="id", subject="person"))
    parts = ("(column 'age') is empty", "the group (column 'age') is outside", "the subject", "needs text", "duplicate")
    for part in (*parts, "the label"):
        assert sum(part in problem for problem in problems) == 1, part


def test_labels_that_are_the_groups_are_read_once():
    by_label = {"column": "label", "slices": {"a": [0], "b": [1, 2, 3]}, "deletion": {"a": 1, "b": 2}}
    records = ingest(frame().drop(columns="age"), recipe(by_label, id="id"))
    assert records.among == [(0,), (1, 2, 3), (0,)]
    assert len(problems_of(frame().drop(columns="label"), recipe(by_label, id="id"))) == 1
