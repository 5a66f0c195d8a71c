"""Files that can be read in two ways are refused with the line, and every cell is read as it was written."""

import csv
import io
import json
import uuid
from itertools import product

import pyarrow as pa
import pyarrow.parquet
import pytest

from s3t.errors import DataError, InputError
from s3t.json_text import JsonError, read_json
from s3t.recipe import recipe_from
from s3t.records import reading
from s3t.records.ingest import ingest
from s3t.records.reading import read_data, read_rows, read_windows
from s3t.records.requests import read_requests, requested_names

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


ENDS = [b"\n", b"\r\n", b"\r"]


@pytest.mark.parametrize(
    ("what", "reader", "end"),
    [
        *product(OPEN_QUOTES, ["windows"], ENDS[:1]),
        *product(["to a cell in quotes"], READERS, ENDS[1:2]),
        *product(["behind rows of two lines"], ["a file", "windows"], ENDS),
    ],
)
def test_a_quote_that_would_swallow_rows_is_refused_with_the_line_of_its_cell(what, reader, end, tmp_path):
    rows, line = OPEN_QUOTES[what]
    path = tmp_path / "x.csv"
    path.write_bytes(end.join([b"id,text", *rows]))
    with pytest.raises(DataError, match=rf"^[^;]* line {line}: a cell begins there with a quote") as refused:
        READERS[reader](path)
    assert "case" not in str(refused.value)
    assert refused.value.__context__ is None


OF_LABELS = {
    "task": "text-classification",
    "columns": {"text": "text", "label": "label"},
    "labels": ["pos", "neg"],
}
OF_NUMBERS = {"task": "text-regression", "columns": {"text": "text", "label": "score"}}
OF_TAGS = {
    "task": "text-multi-label-classification",
    "columns": {"text": "text", "label": "tags", "delimiter": ";"},
    "labels": list("abcd"),
}
OF_ANSWERS = {"task": "causal-lm", "columns": {"prompt": "text", "completion": "more"}}
OF_TEXTS = {"task": "causal-lm", "columns": {"text": "text"}}
HEADERS = {
    "id,customer,label,text": OF_LABELS,
    "id,customer,text,label": OF_LABELS,
    "text,id,customer,label": OF_LABELS,
    "id,customer,text,score": OF_NUMBERS,
    "text,score": OF_NUMBERS,
    "id,customer,text,tags": OF_TAGS,
    "text,tags": OF_TAGS,
    "id,customer,text,more": OF_ANSWERS,
    "id,text,more": OF_ANSWERS,
    "text,customer": OF_TEXTS,
    "mail,text": OF_TEXTS,
    "id,text": OF_TEXTS,
    "text,id": OF_TEXTS,
    "uuid,text": OF_TEXTS,
}
ROLES = {"id": "id", "uuid": "id", "customer": "subject", "mail": "subject"}


def rows_of(header, texts):
    """Rows of ten people, or of one for each text."""
    cells = {
        "id": str,
        "uuid": lambda n: str(uuid.uuid5(uuid.NAMESPACE_OID, str(n))),
        "customer": lambda n: f"c{n}",
        "mail": lambda n: f"{chr(97 + n) * 3}@x.org",
        "text": lambda n: texts[n - 1],
        "label": lambda n: "pos" if n % 2 else "neg",
        "more": lambda n: f"answer {n}",
        "score": lambda n: f"{n / 4 - 1:.2f}",
        "tags": lambda n: ";".join("abcd"[n % 3 : n % 3 + 1 + n % 2]),
    }
    return [[cells[name](n) for name in header] for n in range(1, len(texts) + 1)]


def taken_in(path, header, model):
    content = HEADERS[header]
    owners = {ROLES[name]: name for name in header.split(",") if name in ROLES}
    return ingest(path, recipe_from(content | {"base_model": str(model), "columns": content["columns"] | owners}))


LASTS = [("id,customer,label,text", 9), ("id,text", 9), ("text,id", 9), ("text,score", 9)]


@pytest.mark.parametrize(("header", "last"), [*product(HEADERS, [6]), *LASTS])
def test_rows_between_two_stray_quotes_are_refused_with_the_line_of_the_first(header, last, tmp_path, text_model):
    """The file is whole for any reader: only what is in the cell tells."""
    texts = [{5: '"12 inch TV', last: 'TV of 12"'}.get(n, f"case {n}") for n in range(1, 11)]
    lines = [header, *(",".join(row) for row in rows_of(header.split(","), texts))]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    told = "line 6: column 'text' holds other rows, between a stray quote"
    with pytest.raises(DataError, match=told) as refused:
        taken_in(tmp_path / "x.csv", header, text_model)
    assert "TV" not in str(refused.value)


@pytest.mark.parametrize("header", HEADERS)
def test_texts_of_several_lines_and_commas_are_no_rows(header, tmp_path, text_model):
    texts = [
        "Dear Sir,\nI ask, again, and\nthank you",
        "a,b,c,d\ne,f,g,h",
        "Ann Lee\n12, Main Street\nSpringfield, IL, 62701",
        "12, Main Street\n40, Main Street",
        "Two roads diverged in a yellow wood,\nAnd sorry I could not travel both",
        "for i in range(1,10):\n    print(i,i*2)\n",
        "def f(a,b):\n    return a,b",
        "name,age\nAnn,12\nBob,15",
        "my list:\n1,apple\n2,pear",
        "id,customer,text\n1,c1,foo\n2,c2,bar",
        "it cost me 1,000\nand broke",
        "2024-01-02,ok\n2024-01-03,no",
        "1,2\n3,4",
        "pos\nneg",
        "1,c1\n,,,\n",
    ]
    with (tmp_path / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows_of(header.split(","), texts)])
    assert taken_in(tmp_path / "x.csv", header, text_model).rows.num_rows == len(texts)


@pytest.mark.parametrize("column", ["record", "subject"])
def test_a_name_that_holds_a_line_s_end_is_refused(column, tmp_path):
    """Names between two stray quotes would be one that nobody knows."""
    (tmp_path / "x.csv").write_text(f'{column}\nc1\n"c2\nc3\nc4"\nc6\n')
    records, subjects = read_requests(tmp_path / "x.csv")
    with pytest.raises(InputError, match="name 2 holds a line's end; in a file, look for a stray quote before it"):
        requested_names(records, subjects)


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


@pytest.mark.parametrize("reader", [ingest, lambda path, _: list(read_rows(path, "parquet", size=5))])
def test_mappings_of_arrow_that_give_a_field_twice_are_refused_by_their_column(reader, tmp_path):
    turns = pa.StructArray.from_arrays([pa.array(["a", "b"])] * 3, names=["role", "content", "content"])
    table = pa.table({"chat": pa.ListArray.from_arrays(pa.array([0, 2]), turns)})
    recipe = recipe_from({"task": "causal-lm", "base_model": "m", "columns": {"messages": "chat"}})
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    for data in (tmp_path / "x.parquet", *([table] if reader is ingest else [])):
        with pytest.raises(DataError, match="column 'chat' holds mappings that give a field twice; keep one of the"):
            reader(data, recipe)


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
