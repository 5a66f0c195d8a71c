"""Groups of rows: each from its own cell, kept nowhere, and every mistake in them told at once."""

import pandas as pd
import pyarrow as pa
import pytest

from s3t import DataError, record_ids
from s3t.core import Secret
from s3t.records.ingest import ingest, ingest_inputs, ingest_labelled
from tests.records import given
from tests.records.given import split_into_slices

SPLIT = {"shards": 2, "slices": 4}
GROUP = {"column": "age", "slices": {"1": [1, 0], "02": [3, 2]}, "deletion": {"1": 1, "02": 2}}


def recipe(group=GROUP, **columns):
    return given.recipe(columns={"text": "text"} | columns, partition=SPLIT | {"group": group})


WITH_IDS = recipe(id="id")


def frame(ages=("1", "02", "1"), **columns):
    content = {"id": ["x", "y", "z"], "text": ["one", "two", "three"], "label": ["a", "b", "a"], "age": list(ages)}
    return pd.DataFrame(content | columns)


def problems_of(data, wanted=WITH_IDS):
    with pytest.raises(DataError) as caught:
        ingest(data, wanted)
    return caught.value.problems


def test_each_row_may_lie_in_the_slices_of_its_group_whatever_the_column_s_type(tmp_path):
    """Of a CSV file it is read as text: 02 stays 02."""
    frame().to_csv(tmp_path / "rows.csv", index=False)
    for data in (frame(), tmp_path / "rows.csv"):
        assert ingest(data, WITH_IDS).among == [(0, 1), (2, 3), (0, 1)]
    numbers = GROUP | {"slices": {1: [0, 1], 2: [2, 3]}, "deletion": {1: 1, 2: 2}}
    for ages in ([1, 2, 1], [1.0, 2.0, 1.0]):
        assert ingest(frame(ages), recipe(numbers, id="id")).among == [(0, 1), (2, 3), (0, 1)]
    assert ingest(frame(), recipe(None, id="id")).among is None


def test_records_lie_in_the_slices_of_their_group():
    count = 200
    ages = ["1" if number % 3 else "02" for number in range(count)]
    table = pd.DataFrame({"id": [f"r{number}" for number in range(count)], "text": "t", "label": "a", "age": ages})
    records = ingest(table, WITH_IDS)
    slices = split_into_slices(records.rows, secret=Secret(salt="s"), **SPLIT, among=records.among)
    assert sum(rows.num_rows for rows in slices.values()) == count
    for place, rows in slices.items():
        assert rows.column_names == ["record", "subject", "label", "text"]  # the group is no feature, and not kept
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


@pytest.mark.parametrize(
    ("age", "problem"),
    [
        (
            ["\u00a002", "02", "1"],
            "row 0: the group (column 'age') differs from a declared one in blanks or Unicode form",
        ),
        (["1", "", "02"], "row 1: the group (column 'age') is empty; give every record one"),
        (["1", float("nan"), "02"], "row 1: the group (column 'age') is empty; give every record one"),
        (
            ["1", "2", "2"],
            "rows 1, 2: the group (column 'age') is outside the declared groups; declare it in partition.",
        ),
        (None, "column 'age' is missing (partition.group.column); the data has 'id', 'text', 'label'"),
    ],
)
def test_a_wrong_group_is_named_by_row_and_a_missing_column_with_its_field(age, problem):
    (told,) = problems_of(frame().drop(columns="age") if age is None else frame(age))
    assert told.startswith(problem)
    twice = pa.Table.from_arrays([pa.array(["x"])] * 5, names=["id", "text", "label", "age", "age"])
    assert "column 'age' occurs 2 times; name each column once" in problems_of(twice)


def test_all_records_of_a_subject_have_one_group():
    people = recipe(id="id", subject="person")
    assert ingest(frame(["1", "02", "1"], person=["p", None, "p"]), people).rows.num_rows == 3
    (problem,) = problems_of(frame(["1", "02", "02"], person=["p", None, "p"]), people)
    assert problem == (
        "row 2: the subject has another group here than in row 0; such records lie in one slice, so give them one group"
    )
    same = {"text": ["one"] * 3, "label": ["a"] * 3}  # so have identical rows without an id
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
