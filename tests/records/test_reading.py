"""Reading: every form of data gives the same table, and a file that cannot be read is named with the remedy."""

import json

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from s3t.errors import DataError
from s3t.records.reading import read_data, read_windows
from s3t.records.requests import read_requests

ROWS = [
    {"id": "007", "text": 'where is, my\n"card"?', "label": "a"},
    {"id": "NA", "text": "äöü 漢字", "label": "null"},
    {"id": "12", "text": " spaces ", "label": "b"},
]
USED = {"id": "name", "text": "text", "label": "category"}


def csv_file(folder):
    pd.DataFrame(ROWS).to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


def json_file(folder):
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS)
    (folder / "rows.jsonl").write_text(f"{lines}\n\n", encoding="utf-8")
    return folder / "rows.jsonl"


def parquet_file(folder):
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), folder / "rows.parquet")
    return folder / "rows.parquet"


def class_labels(_folder):
    names = sorted({row["label"] for row in ROWS})
    made = datasets.Dataset.from_list(ROWS)
    return made.cast_column("label", datasets.ClassLabel(names=names))


FORMS = {
    "csv": csv_file,
    "json lines": json_file,
    "parquet": parquet_file,
    "pandas": lambda _: pd.DataFrame(ROWS),
    "arrow": lambda _: pa.Table.from_pylist(ROWS),
    "datasets": lambda _: datasets.Dataset.from_list(ROWS),
    "datasets with class labels": class_labels,
    "a shuffled dataset put back": lambda _: datasets.Dataset.from_list(ROWS[::-1]).select([2, 1, 0]),
    "a filtered frame": lambda _: pd.DataFrame([*ROWS, ROWS[0]], index=[5, 3, 4, 9]).iloc[:3],
}


def written(folder, name, content):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


def error_of(data):
    with pytest.raises(DataError) as caught:
        read_data(data, columns=USED)
    assert caught.value.where in str(caught.value)
    return caught.value


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_rows(form, tmp_path):
    assert read_data(FORMS[form](tmp_path), columns=USED).rows.to_pylist() == ROWS


def test_an_id_of_a_csv_file_stays_text_where_it_is_asked_to(tmp_path):
    path = written(tmp_path, "x.csv", "id,score\n007,1.5\n")
    assert read_data(path, columns={"id": "name", "score": "number"}).rows.to_pylist() == [
        {"id": "007", "score": "1.5"}
    ]


def test_paths_may_be_strings_and_suffixes_in_capitals(tmp_path):
    path = csv_file(tmp_path).rename(tmp_path / "rows.CSV")
    table = read_data(str(path), columns=USED)
    assert table.rows.to_pylist() == ROWS
    assert table.folder == tmp_path


@pytest.mark.parametrize("form", ["csv", "json lines", "parquet"])
def test_reading_leaves_no_copy(form, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    read_data(FORMS[form](tmp_path), columns=USED)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("keep", [0, 3, 100, -1, -20])
def test_a_truncated_parquet_file_is_named(tmp_path, keep):
    path = parquet_file(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    assert "not a readable Parquet file, perhaps truncated" in error_of(path).problems[0]
    assert error_of(path).where == str(path)


def test_every_malformed_json_line_is_named_by_its_number(tmp_path):
    path = written(tmp_path, "x.jsonl", '{"id": 1}\nnot json\n\n{"id": 2}\n[1]\n{"id": \n')
    problems = error_of(path).problems
    assert [problem.partition(" is ")[0].partition(" holds ")[0] for problem in problems] == [
        "line 2",
        "line 5",
        "line 6",
    ]
    assert all("write one object a line" in problem for problem in problems)


@pytest.mark.parametrize("name", ["x.txt", "x.xlsx", "x", "x.csv.lz4"])
def test_an_unknown_suffix_is_refused_with_those_that_are_known(tmp_path, name):
    assert "use .csv, .tsv, .json, .jsonl" in error_of(written(tmp_path, name, "id\n1\n")).problems[0]


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet"])
def test_a_missing_file_is_named(tmp_path, name):
    assert error_of(tmp_path / name).problems == ("is not a file; check the path",)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", "id,text,label\n1,é,a\n"),
        ("header.csv", "id,text,été\n1,e,a\n"),
        ("x.jsonl", '{"id": "é"}\n'),
    ],
)
def test_a_file_that_is_not_utf8_is_refused(tmp_path, name, content):
    problem = error_of(written(tmp_path, name, content.encode("latin-1"))).problems[0]
    assert "utf" in problem.lower()


def test_a_csv_file_with_a_ragged_row_is_refused(tmp_path):
    path = written(tmp_path, "x.csv", "id,text,label\n1,x\n2,y,a\n3,z, b,a\n4\n")
    assert [problem.partition(";")[0] for problem in error_of(path).problems] == [
        "line 2: the row has 2 cells and the header 3",
        "line 4: the row has 4 cells and the header 3",
        "line 5: the row has 1 cells and the header 3",
    ]


def test_an_empty_csv_file_is_refused(tmp_path):
    assert "CSV" in error_of(written(tmp_path, "x.csv", "")).problems[0]


def test_a_number_too_big_for_arrow_is_text_not_a_crash(tmp_path):
    path = written(tmp_path, "x.jsonl", '{"id": 1180591620717411303424}\n{"id": 7}\n')
    assert read_data(path, columns=USED).rows["id"].to_pylist() == ["1180591620717411303424", "7"]


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
    path = written(tmp_path, "x.jsonl", '{"id": "x"}\n{"id": "\\ud800"}\n')
    assert "line 2: column 'id'" in error_of(path).problems[0]


def test_a_frame_with_a_column_of_mixed_types_is_refused():
    assert "mixes types" in error_of(pd.DataFrame({"id": [1, "x"]})).problems[0]


@pytest.mark.parametrize("data", [[], [{"id": 1}, 7], {"id": [1]}, 7, None])
def test_what_is_no_data_is_refused_with_what_may_be_passed(data):
    assert "datasets.Dataset" in error_of(data).problems[0]


def test_a_ragged_row_that_is_not_utf8_is_told_once_and_nothing_is_printed(tmp_path, capfd):
    path = tmp_path / "x.csv"
    path.write_bytes(b"id,text\nr1,a\nr2,b,\xff\xfe\n")
    assert error_of(path).problems == ("is not UTF-8 text in line 3; save it as UTF-8",)
    assert capfd.readouterr().err == ""


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


def test_a_column_whose_name_is_no_text_is_named_by_row(tmp_path):
    path = written(tmp_path, "rows.jsonl", '{"id": "a"}\n{"id": "b", "\\ud800": "w1"}\n')
    with pytest.raises(DataError, match="line 2 has a key that holds half a surrogate pair"):
        read_data(path, columns=USED)


@pytest.mark.parametrize("text", ["x" * 10_000_000, 'line "one",\n' * 800_000, "y" * 1_500_000])
def test_a_csv_file_may_hold_cells_of_ten_million_characters(text, tmp_path):
    rows = [{"id": "1", "text": "short"}, {"id": "2", "text": text}, {"id": "3", "text": 'the "end"'}]
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    used = {"id": "name", "text": "text"}
    assert read_data(tmp_path / "rows.csv", columns=used).rows.to_pylist() == rows
    windows = list(read_windows(tmp_path / "rows.csv", columns=used, size=2))
    assert [row for window in windows for row in window.rows.to_pylist()] == rows


def test_a_number_of_five_thousand_digits_is_named_by_line(tmp_path):
    path = written(tmp_path, "rows.jsonl", '{"id": 1}\n{"id": ' + "7" * 5000 + "}\n")
    with pytest.raises(DataError, match="line 2 holds a number of too many digits"):
        read_data(path, columns=USED)
