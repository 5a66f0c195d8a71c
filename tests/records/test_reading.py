"""Reading: every form of data gives the same table, and a file that cannot be read is named with the remedy."""

import io

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from s3t.errors import DataError
from s3t.records.reading import read_data, read_windows
from s3t.records.requests import read_requests

USED = {"id": "name", "text": "text", "label": "category"}


def written(folder, name, content):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


def error_of(data):
    with pytest.raises(DataError) as caught:
        read_data(data, columns=USED)
    assert caught.value.where in str(caught.value)
    return caught.value


def parquet(keep):
    """Bytes of a file that breaks off."""
    target = io.BytesIO()
    pa.parquet.write_table(pa.table({"id": ["1"]}), target)
    return target.getvalue()[:keep]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.csv", None, "is not a file; check the path"),
        ("x", "id\n1\n", "use .csv, .tsv, .json, .jsonl"),
        ("x.csv.lz4", "id\n1\n", "use .csv, .tsv, .json, .jsonl"),
        ("x.csv", "", "CSV"),
        ("x.csv", "id,text,label\n1,é,a\n".encode("latin-1"), "UTF-8"),
        ("x.csv", "id,text,été\n1,e,a\n".encode("latin-1"), "UTF-8"),
        ("x.jsonl", '{"id": "é"}\n'.encode("latin-1"), "UTF-8"),
        ("x.csv", b"id,text\nr1,a\nr2,b,\xff\xfe\n", "is not UTF-8 text in line 3; save it as UTF-8"),
        ("x.parquet", parquet(3), "not a readable Parquet file, perhaps truncated"),
        ("x.parquet", parquet(-20), "not a readable Parquet file, perhaps truncated"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(name, content, problem, tmp_path, capfd):
    error = error_of(tmp_path / name if content is None else written(tmp_path, name, content))
    assert error.where == str(tmp_path / name)
    (told,) = error.problems
    assert problem in told
    assert capfd.readouterr().err == ""


def test_every_malformed_json_line_is_named_by_its_number(tmp_path):
    path = written(tmp_path, "x.jsonl", '{"id": 1}\nnot json\n\n{"id": 2}\n[1]\n{"id": \n')
    problems = error_of(path).problems
    assert [problem.partition(" is ")[0].partition(" holds ")[0] for problem in problems] == [
        "line 2",
        "line 5",
        "line 6",
    ]
    assert all("write one object a line" in problem for problem in problems)


def test_a_csv_file_with_a_ragged_row_is_refused(tmp_path):
    path = written(tmp_path, "x.csv", "id,text,label\n1,x\n2,y,a\n3,z, b,a\n4\n")
    assert [problem.partition(";")[0] for problem in error_of(path).problems] == [
        "line 2: the row has 2 cells and the header 3",
        "line 4: the row has 4 cells and the header 3",
        "line 5: the row has 1 cells and the header 3",
    ]


def test_a_number_too_big_for_arrow_is_text_and_one_of_five_thousand_digits_is_named_by_line(tmp_path):
    path = written(tmp_path, "x.jsonl", '{"id": 1180591620717411303424}\n{"id": 7}\n')
    assert read_data(path, columns=USED).rows["id"].to_pylist() == ["1180591620717411303424", "7"]
    path = written(tmp_path, "rows.jsonl", '{"id": 1}\n{"id": ' + "7" * 5000 + "}\n")
    assert "line 2 holds a number of too many digits" in error_of(path).problems[0]


def test_a_json_column_of_mixed_types_is_text_as_single_values_are(tmp_path):
    values = '"x"', "7", "null", "7.0", "true"
    lines = [f'{{"id": {value}, "label": {value}}}' for value in values]
    path = written(tmp_path, "names.jsonl", "\n".join(lines[:3]))
    assert read_data(path, columns=USED).rows["id"].to_pylist() == ["x", "7", None]
    path = written(tmp_path, "x.jsonl", "\n".join([*lines, "{}"]))
    columns = {"label": "category"}
    assert read_data(path, columns=columns).rows["label"].to_pylist() == ["x", "7", None, "7", "true", None]
    assert [problem.partition(";")[0] for problem in error_of(path).problems] == [
        "line 4: column 'id' holds a value of type float that does not fit",
        "line 5: column 'id' holds a value of type bool that does not fit",
    ]


def test_half_a_surrogate_pair_is_refused_by_row_and_column(tmp_path):
    cell = error_of(written(tmp_path, "x.jsonl", '{"id": "x"}\n{"id": "\\ud800"}\n'))
    assert "line 2: column 'id'" in cell.problems[0]
    key = error_of(written(tmp_path, "rows.jsonl", '{"id": "a"}\n{"id": "b", "\\ud800": "w1"}\n'))
    assert "line 2 has a key that holds half a surrogate pair" in key.problems[0]


@pytest.mark.parametrize("data", [[], [{"id": 1}, 7], {"id": [1]}, None])
def test_what_is_no_data_is_refused_with_what_may_be_passed(data):
    assert "datasets.Dataset" in error_of(data).problems[0]
    assert "mixes types" in error_of(pd.DataFrame({"id": [1, "x"]})).problems[0]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_requests_are_records_and_subjects_once_each_without_empty_cells(tmp_path, suffix):
    path = tmp_path / f"gone.{suffix}"
    frame = pd.DataFrame({"record": ["007", "", "r2", "007"], "subject": ["", "p1", "", "p1"], "why": list("abcd")})
    if suffix == "csv":
        frame.to_csv(path, index=False)
    elif suffix == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    assert read_requests(path) == (("007", "r2"), ("p1",))


def test_requests_without_either_column_are_refused_with_the_columns_there_are(tmp_path):
    with pytest.raises(DataError, match="needs a column 'record' or 'subject' \\(the only column has another name"):
        read_requests(written(tmp_path, "x.csv", "id\n1\n"))


def test_a_column_of_requests_that_occurs_twice_counts_twice(tmp_path):
    assert read_requests(written(tmp_path, "x.csv", "record,record\nr1,r2\n")) == (("r1", "r2"), ())


def test_a_csv_file_may_hold_cells_of_ten_million_characters(tmp_path):
    text = 'line "one",\n' * 850_000
    rows = [{"id": "1", "text": "short"}, {"id": "2", "text": text}, {"id": "3", "text": 'the "end"'}]
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    used = {"id": "name", "text": "text"}
    assert read_data(tmp_path / "rows.csv", columns=used).rows.to_pylist() == rows
    windows = list(read_windows(tmp_path / "rows.csv", columns=used, size=2))
    assert [row for window in windows for row in window.rows.to_pylist()] == rows
