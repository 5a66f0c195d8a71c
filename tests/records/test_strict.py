"""Files that can be read in two ways are refused with the line, and every cell is read as it was written."""

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from s3t.errors import DataError
from s3t.json_text import JsonError, read_json
from s3t.recipe import recipe_from
from s3t.records import reading
from s3t.records.ingest import ingest
from s3t.records.reading import read_data, read_rows, read_windows
from s3t.records.requests import read_requests

USED = {"id": "name", "text": "text"}
PEOPLE = [b"%d,case number %d" % (n, n) for n in range(1, 21)]
STRAY = [*PEOPLE[:4], b'5,"case number 5', *PEOPLE[5:]]
CLOSED = b'0,"two\r\nlines"'
OPEN_QUOTES = {
    "to the end of the file": ([*STRAY], 6),
    "to another one": ([*STRAY[:9], b'10,"case number 10', *STRAY[10:]], 6),
    "to a cell in quotes": ([*STRAY[:9], b'10,"case, number 10"', *STRAY[10:]], 6),
    "in the last cell": ([*PEOPLE, b'21,"'], 22),
    "behind a cell of two lines": ([*PEOPLE, b'"2\n1","x', b"22,y"], 23),
    "behind rows of two lines": ([CLOSED, CLOSED, *STRAY], 10),
    "with a backslash": ([*PEOPLE, rb'21,"he said \"no\""'], 22),
}
READERS = {
    "a file": lambda path: read_data(path, columns=USED),
    "windows": lambda path: list(read_windows(path, columns=USED, size=3)),
    "a pipe": lambda path: list(read_windows(io.BytesIO(path.read_bytes()), columns=USED, size=3, form="csv")),
    "rows": lambda path: list(read_rows(path, "csv", size=3)),
    "requests": read_requests,
}


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", OPEN_QUOTES)
def test_a_quote_that_would_swallow_rows_is_refused_with_the_line_of_its_cell(what, reader, end, tmp_path):
    rows, line = OPEN_QUOTES[what]
    path = tmp_path / "x.csv"
    path.write_bytes(end.join([b"id,text", *rows]))
    with pytest.raises(DataError, match=rf"^[^;]* line {line}: a cell begins there with a quote") as refused:
        READERS[reader](path)
    assert "case" not in str(refused.value)
    assert refused.value.__context__ is None


CELLS = {
    "line feed": "a\nb",
    "carriage return and line feed": "a\r\nb",
    "lone carriage return": "a\rb",
    "quotes": 'a ""b"" "',
    "characters of several bytes": "aé漢🙂",
    "a zero byte": "a\0b",
    "separators that are no line ends": "a\x0b\x0c\x1c\u2028\u2029\x85b",
    "a mark": "\ufeffa",
    "blanks": " a\t ",
    "commas": ",,",
    "nothing": "",
    "words for nothing": "NULL",
}


@pytest.mark.parametrize("what", CELLS)
def test_a_cell_is_read_as_it_was_written_wherever_it_stands(what, tmp_path):
    """Its bytes stand at every place about the end of a block of a mebibyte, and of the reader's own."""
    cell, path, used = CELLS[what], tmp_path / "x.csv", {"id": "name", "text": "text"}
    for block in (2**13, 2**20):
        content = io.StringIO(newline="")
        rows = csv.writer(content, lineterminator="\n", quoting=csv.QUOTE_ALL)
        written = [["x" * (block - 40), "y"], *[[str(n), cell] for n in range(12)]]
        rows.writerows([["id", "text"], *written])
        path.write_bytes(content.getvalue().encode())
        assert [list(row.values()) for row in read_data(path, columns=used).rows.to_pylist()] == written
        for shift in range(8, 24, 1 if block < 2**20 else 5):
            path.write_bytes(f'id,text\n{"x" * (block - 30 + shift)},"{cell.replace(chr(34), chr(34) * 2)}"\n'.encode())
            assert read_data(path, columns=used).rows["text"].to_pylist() == [cell]


def test_blank_lines_are_no_rows_and_lone_carriage_returns_end_them(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b'\r\rid,text\r\r1,a\r\r2,"b\rc"\r\r')
    table = read_data(path, columns=USED)
    assert table.rows.to_pylist() == [{"id": "1", "text": "a"}, {"id": "2", "text": "b\rc"}]
    assert table.problems.positions.numbers(range(2)) == [5, 7]


def test_a_window_of_long_texts_has_fewer_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_MOST_CHARACTERS", 2**14)
    path = tmp_path / "x.csv"
    path.write_bytes(b"id,text\n" + b"1,%s\n" % (b"x" * 2**10) * 40)
    assert [window.rows.num_rows for window in read_windows(path, columns=USED, size=100)] == [16, 16, 8]
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"text": "%s"}\n' % (b"x" * 2**10) * 40)
    assert len(list(read_windows(path, columns=USED, size=100))) == 3


def test_rows_for_a_server_have_each_column_once(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,id,text\n1,2,a\n")
    with pytest.raises(DataError, match="two columns have one name"):
        list(read_rows(path, "csv", size=5))


def test_rows_for_a_server_are_utf8_in_every_column(tmp_path):
    broken = pa.array([b"a", b"\xff"]).view(pa.string())
    pa.parquet.write_table(pa.table({"text": ["a", "b"], "more": broken}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="row 1: column 'more' is not UTF-8 text; correct it"):
        list(read_rows(tmp_path / "x.parquet", "parquet", size=5))


TWICE = {
    "the owner": '{"id": "ann", "text": "t", "label": "a", "id": "bob"}',
    "what is not used": '{"id": "ann", "text": "t", "label": "a", "no": 1, "no": 1}',
    "an escaped key": '{"id": "ann", "text": "t", "label": "a", "\\u0069d": "bob"}',
    "within a list": '{"id": "ann", "text": "t", "label": "a", "no": [{"b": {"c": 1, "c": 2}}]}',
}


@pytest.mark.parametrize("what", TWICE)
def test_a_row_of_json_that_gives_a_key_twice_is_refused_with_its_line(what, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"id": "x"}}\n\n{TWICE[what]}\n')
    for reader in (lambda: read_data(path, columns=USED), lambda: list(read_rows(path, "jsonl", size=9))):
        with pytest.raises(DataError, match="line 3 gives a key of an object twice; keep one of the two") as refused:
            reader()
        assert "ann" not in str(refused.value)


def test_a_chat_in_a_cell_that_gives_a_key_twice_is_refused(tmp_path):
    content = {"task": "causal-lm", "base_model": "m", "columns": {"messages": "chat"}}
    turn = '{"role": "assistant", "content": "a", "content": "b"}'
    (tmp_path / "x.csv").write_text('chat\n"' + f"[{turn}]".replace('"', '""') + '"\n')
    (tmp_path / "x.jsonl").write_text(f'{{"chat": [{turn}]}}\n')
    (tmp_path / "y.jsonl").write_text(json.dumps({"chat": f"[{turn}]"}))
    for name in ("x.csv", "x.jsonl", "y.jsonl"):
        with pytest.raises(DataError, match="gives a key of an object twice"):
            ingest(tmp_path / name, recipe_from(content))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"a": NaN}', "NaN or Infinity"),
        (b'{"a": [-Infinity]}', "NaN or Infinity"),
        (b'{"a": 1e999}', "a number that is too large"),
        (b'{"a": ' + b"7" * 5000 + b"}", "a number of too many digits"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"\xff\xfe{\0}\0", "not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{'a': 1}", "from character 2 on"),
        (b'{"a": 1} {}', "from character 10 on"),
        (b"", "from character 1 on"),
    ],
)
def test_what_python_takes_for_json_and_is_none_is_refused_in_words(text, problem):
    with pytest.raises(JsonError, match=problem) as refused:
        read_json(text)
    assert refused.value.__context__ is None
