"""What may be an id or a subject: one table, the same in every form of data and in requests."""

import datetime
import decimal
import json
import unicodedata
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from s3t import DataError, InputError
from s3t.records.ingest import ingest, ingest_inputs
from s3t.records.requests import read_requests, requested
from tests.records import given

COMPOSED = "Zoë Ångström"
DECOMPOSED = unicodedata.normalize("NFD", COMPOSED)
WHOLE = [7, np.int64(7), np.uint8(7)]
ACCEPTED = [("7", "7"), ("007", "007"), ("a b", "a b"), (COMPOSED, COMPOSED), (DECOMPOSED, COMPOSED), ("NaN", "NaN")]
ACCEPTED += [(whole, "7") for whole in WHOLE]
REFUSED = [7.0, 7.5, float("nan"), True, b"7", ["7"], ("7",), {"7": "7"}, datetime.date(2020, 1, 1), uuid.UUID(int=7)]
REFUSED += [decimal.Decimal(7), np.float64(7), " ", "\t", "7 ", " 7", "7\n", "\u00a07"]
MISSING = ["", None]


def recipe(**columns):
    return given.recipe(columns={"text": "text"} | columns)


def forms_of(folder, column, value):
    """The value as a name of the one record of each form of data that can hold it."""
    rows = {"id": ["x"], "person": ["p"], "text": ["t"], "label": ["a"], "record": ["y"]} | {column: [value]}
    yield pd.DataFrame(rows)
    try:
        pa.parquet.write_table(pa.table(rows), folder / "rows.parquet")
        yield folder / "rows.parquet"
        yield pa.table(rows)
    except (pa.ArrowException, TypeError):
        pass
    if isinstance(value, str):
        pd.DataFrame(rows).to_csv(folder / "rows.csv", index=False)
        yield folder / "rows.csv"
    if isinstance(value, str | int | float | list | dict) and value == value:
        (folder / "rows.jsonl").write_text(json.dumps({name: held[0] for name, held in rows.items()}))
        yield folder / "rows.jsonl"


@pytest.mark.parametrize(("value", "kept"), ACCEPTED, ids=repr)
def test_a_name_is_text_or_a_whole_number_at_init_as_in_a_request(value, kept, tmp_path):
    for role, column, where in (("id", "id", "record"), ("subject", "person", "subject")):
        for data in forms_of(tmp_path, column, value):
            assert ingest(data, recipe(**{role: column})).rows[where].to_pylist() == [kept]
    assert requested("records", [value]) == [kept]
    for data in forms_of(tmp_path, "record", value):
        assert requested("records", read_requests(data)[0]) == [kept]


@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_whatever_else_is_refused_at_init_as_in_a_request(value, tmp_path):
    is_nan = isinstance(value, float) and value != value  # a frame has it for a missing value
    for role, column in (("id", "id"), ("subject", "person")):
        for data in forms_of(tmp_path, column, value):
            if not (is_nan and role == "subject"):
                with pytest.raises(DataError, match=f"column '{column}'"):
                    ingest(data, recipe(**{role: column}))
    with pytest.raises(InputError, match="name 2 "):
        requested("records", ["a", value])
    for data in forms_of(tmp_path, "record", value):
        if not is_nan:
            with pytest.raises(InputError):
                requested("records", read_requests(data)[0])


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_a_missing_name_is_refused_for_an_id_and_nobody_for_a_subject(value, tmp_path):
    for data in forms_of(tmp_path, "id", value):
        with pytest.raises(DataError, match="is empty; give every record one"):
            ingest(data, recipe(id="id"))
    for data in forms_of(tmp_path, "person", value):
        assert ingest(data, recipe(subject="person")).rows["subject"].to_pylist() == [None]
    for data in forms_of(tmp_path, "record", value):
        with pytest.raises(DataError, match="holds no names"):
            read_requests(data)
    with pytest.raises(InputError, match="is empty"):
        requested("records", [value])


def test_a_column_of_numbers_with_a_gap_is_refused_with_the_remedy():
    """A frame makes floating-point numbers of it, which a file of the same rows does not."""
    frame = pd.DataFrame({"person": [7, None], "text": ["t", "u"], "label": ["a", "b"]})
    with pytest.raises(DataError, match=r"holds floating-point numbers; .* text or a whole number, so convert"):
        ingest(frame, recipe(subject="person"))
    assert ingest(frame.astype({"person": "Int64"}), recipe(subject="person")).rows["subject"][0].as_py() == "7"


def test_ids_that_one_form_makes_equal_are_one_id():
    frame = pd.DataFrame({"id": [COMPOSED, DECOMPOSED], "text": ["t", "u"], "label": ["a", "b"]})
    with pytest.raises(DataError, match=r"row 1: the id .* is a duplicate of row 0's"):
        ingest(frame, recipe(id="id"))


def test_a_content_id_is_of_the_subject_as_it_was_given():
    frame = pd.DataFrame({"person": [DECOMPOSED], "text": ["t"], "label": ["a"]})
    (record,) = ingest(frame, recipe(subject="person")).rows["record"].to_pylist()
    assert record == "ed6a52523ce1b48c00316b8b2ee102fb4cf7c3b916f72b82b1a890438441ce1f"


@pytest.mark.parametrize("value", [7.5, True, b"7", ["7"]], ids=repr)
def test_ids_of_inputs_are_told_back_as_they_are_but_of_the_same_types(value, tmp_path):
    assert ingest_inputs([{"id": " 7 ", "text": "t"}, {"id": None, "text": "u"}], recipe(id="id"))[1] == [" 7 ", ""]
    for data in forms_of(tmp_path, "id", value):
        with pytest.raises(DataError):
            ingest_inputs(data, recipe(id="id"))
