"""Whatever is wrong with data, no message, no log and no exception behind a message holds a value of a record."""

import io
import json
import logging
import traceback

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import s3t
from s3t.cli.app import app_of
from s3t.cli.options import names_in
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest, ingest_inputs
from s3t.records.public import public_records
from s3t.records.requests import read_requests, requested
from testing import tiny

CANARY = "Zebedee Quill"
HALF = f"{CANARY}\ud800"
CODE = CANARY.encode()


def recipe(**changes):
    fields = {
        "task": "text-classification",
        "base_model": "m",
        "columns": {"id": "id", "subject": "person", "text": "text", "label": "label"},
        "labels": ["a", "b"],
    }
    return recipe_from(fields | changes)


IMAGES = {"task": "image-classification", "columns": {"id": "id", "image": "image"}}
GROUPS = {
    "columns": {"id": "id", "subject": "person", "text": "text"},
    "partition": {
        "shards": 1,
        "slices": 2,
        "group": {"column": "age", "slices": {"x": [0], "y": [1]}, "deletion": {"x": 1, "y": 2}},
    },
}
ROW = {"id": "1", "person": "p", "text": "t", "label": "a"}
HEADER = b"id,person,text,label\n"


def lines(*rows):
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows).encode()


def parquet(**columns):
    content = io.BytesIO()
    pa.parquet.write_table(pa.table({name: pa.array([value]) for name, value in ROW.items()} | columns), content)
    return content.getvalue()


not_utf8 = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer((0).to_bytes(4, "little") + (3).to_bytes(4, "little")), pa.py_buffer(b"Z\xffQ")]
)

FILES = {
    "CSV: an unquoted comma": ("x.csv", HEADER + f"1,p,{CANARY}, more,a\n".encode(), {}),
    "CSV: a comma that shifts text into the label": ("x.csv", HEADER + f"1,p,t,{CANARY}\n".encode(), {}),
    "CSV: too few cells": ("x.csv", HEADER + f"1,{CANARY}\n".encode(), {}),
    "CSV: a quote that is not closed": ("x.csv", HEADER + f'1,p,"{CANARY},a\n2,p,t,a\n'.encode(), {}),
    "CSV: no header": ("x.csv", f"1,p,{CANARY},a\n2,p,t,a\n".encode(), {}),
    "CSV: a header of records that do not fit": ("x.csv", f"{CANARY}\n{CANARY},x\n".encode(), {}),
    "CSV: not UTF-8": ("x.csv", HEADER + f"1,p,{CANARY}\xff,a\n".encode("latin-1"), {}),
    "CSV: not UTF-8 in the header": ("x.csv", f"{CANARY}\xff,a\n1,p\n".encode("latin-1"), {}),
    "CSV: UTF-16": ("x.csv", f"id,text\n1,{CANARY}\n".encode("utf-16"), {}),
    "CSV: repeated ids": ("x.csv", HEADER + f"{CANARY},p,t,a\n{CANARY},p,t,a\n".encode(), {}),
    "CSV: an id with white space": ("x.csv", HEADER + f"{CANARY} ,p,t,a\n".encode(), {}),
    "CSV: a subject with white space": ("x.csv", HEADER + f"1, {CANARY},t,a\n".encode(), {}),
    "CSV: no number": ("x.csv", HEADER + f"1,p,t,{CANARY}\n".encode(), {"task": "text-regression", "labels": None}),
    "CSV: an image path": ("x.csv", f"id,image,label\n1,{CANARY}.png,a\n".encode(), IMAGES),
    "CSV: an image path that is a folder": ("x.csv", b"id,image,label\n1,/tmp,a\n", IMAGES),
    "CSV: an unknown group": ("x.csv", b"age," + HEADER + f"{CANARY},1,p,t,a\n".encode(), GROUPS),
    "CSV: two groups of one subject": (
        "x.csv",
        b"age," + HEADER + f"x,1,{CANARY},t,a\ny,2,{CANARY},t,a\n".encode(),
        GROUPS,
    ),
    "JSON: no JSON": ("x.jsonl", f'{{"id": "{CANARY}"\n'.encode(), {}),
    "JSON: text": ("x.jsonl", f"{CANARY}\n".encode(), {}),
    "JSON: a bad escape": ("x.jsonl", f'{{"id": "{CANARY}\\x"}}\n'.encode(), {}),
    "JSON: a list": ("x.jsonl", f'["{CANARY}"]\n'.encode(), {}),
    "JSON: nested too deeply": ("x.jsonl", f'{{"{CANARY}": {"[" * 100_000}\n'.encode(), {}),
    "JSON: a number of many digits": ("x.jsonl", f'{{"{CANARY}": {"9" * 5000}}}\n'.encode(), {}),
    "JSON: half a surrogate pair": ("x.jsonl", lines(ROW | {"text": HALF}), {}),
    "JSON: a key that is half a surrogate pair": ("x.jsonl", lines({HALF: 1}), {}),
    "JSON: a list and a text": ("x.jsonl", lines(ROW | {"text": [CANARY]}, ROW | {"id": 2}), {}),
    "JSON: a text and a number": ("x.jsonl", lines(ROW | {"text": 1}, ROW | {"id": "2", "text": CANARY}), {}),
    "JSON: a mapping as an id": ("x.jsonl", lines(ROW | {"id": {CANARY: 1}}), {}),
    "JSON: an unknown label": ("x.jsonl", lines(ROW | {"label": CANARY}), {}),
    "JSON: a list as a label": ("x.jsonl", lines(ROW | {"label": [CANARY]}), {}),
    "JSON: not UTF-8": ("x.jsonl", lines(ROW) + CODE + b"\xff\n", {}),
    "JSON: other keys": ("x.jsonl", lines({CANARY: 1}), {}),
    "Parquet: cut": ("x.parquet", parquet(text=pa.array([CANARY]))[:-30], {}),
    "Parquet: text that is not UTF-8": ("x.parquet", parquet(text=not_utf8), {}),
    "Parquet: an id that is not UTF-8": ("x.parquet", parquet(id=not_utf8), {}),
    "Parquet: bytes as an id": ("x.parquet", parquet(id=pa.array([CODE])), {}),
    "Parquet: a list as a subject": ("x.parquet", parquet(person=pa.array([[CANARY]])), {}),
    "Parquet: a mapping as a text": ("x.parquet", parquet(text=pa.array([{"a": CANARY}])), {}),
    "Parquet: bytes as a label": ("x.parquet", parquet(label=pa.array([CODE])), {}),
    "Parquet: bytes that are no image": ("x.parquet", parquet(image=pa.array([b"\x89PNG\r\n\x1a\n" + CODE])), IMAGES),
    "Parquet: an image without its chunks": (
        "x.parquet",
        parquet(image=pa.array([b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0d" + CODE + CODE])),
        IMAGES,
    ),
}


def error_of(call, *arguments, **options):
    with pytest.raises(s3t.InputError) as caught:
        call(*arguments, **options)
    return caught.value


def all_of(error):
    """All that is or could be printed of an error: also the exceptions behind it, that `from None` hides."""
    told = ["".join(traceback.format_exception(error))]
    waiting, seen = [error], set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        told += [str(one), repr(one), repr(one.args), repr(getattr(one, "doc", "")), repr(getattr(one, "object", ""))]
        waiting += [one.__cause__, one.__context__]
    return "\n".join(told)


def assert_silent(error, caplog):
    for part in CANARY.split():
        assert part not in all_of(error)
        assert part not in caplog.text
    assert error.problems


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_malformed_is_refused_without_a_value_of_it(what, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    name, content, changes = FILES[what]
    path = tmp_path / name
    path.write_bytes(content)
    assert_silent(error_of(ingest, path, recipe(**changes)), caplog)


@pytest.mark.parametrize("what", [name for name in FILES if name.startswith("CSV: an unq") or "half" in name])
def test_the_same_as_inputs_to_predict_and_as_public_records(what, tmp_path, caplog):
    name, content, changes = FILES[what]
    path = tmp_path / name
    path.write_bytes(content)
    assert_silent(error_of(ingest_inputs, path, recipe(**changes)), caplog)
    private = [ingest(pd.DataFrame([ROW]), recipe()).rows]
    assert_silent(error_of(public_records, path, recipe(**changes), private), caplog)


def test_public_records_that_are_private_are_named_by_row(tmp_path, caplog):
    rows = pd.DataFrame([ROW, ROW | {"id": CANARY, "text": CANARY}])
    rows.to_csv(tmp_path / "public.csv", index=False)
    private = [ingest(rows.iloc[1:], recipe()).rows]
    error = error_of(public_records, tmp_path / "public.csv", recipe(), private)
    assert error.problems[0].startswith("line 3: 1 records are in the run's data")
    assert_silent(error, caplog)


FRAMES = {
    "mixed types": {"id": [1, CANARY]},
    "lists and text": {"text": [[CANARY], CANARY]},
    "half a surrogate pair": {"text": ["x", HALF]},
    "an object": {"label": [type(CANARY.split()[0], (), {})(), "a"]},
    "a number too large": {"id": [2**80, 1]},
    "column names of records": {CANARY: ["x", "y"]},
}


@pytest.mark.parametrize("what", FRAMES)
def test_a_frame_that_is_malformed_is_refused_without_a_value_of_it(what, caplog):
    frame = pd.DataFrame(
        {name: [value, value] for name, value in ROW.items()} | {"id": [1, 2]} | FRAMES[what], dtype=object
    )
    if what == "column names of records":
        frame = frame[[CANARY]]
    assert_silent(error_of(ingest, frame, recipe()), caplog)


INPUTS = {
    "one string": f"{CANARY}. More",
    "half a surrogate pair": [HALF],
    "rows of several shapes": [{"text": CANARY}, {"text": [CANARY]}],
    "no rows": [CANARY, 7],
    "half a surrogate pair in a row": [{"text": HALF}],
    "blank": [{"text": CANARY}, {"text": " "}],
}


@pytest.mark.parametrize("what", INPUTS)
def test_inputs_to_predict_that_are_malformed_are_refused_without_a_value(what, caplog):
    assert_silent(error_of(ingest_inputs, INPUTS[what], recipe()), caplog)


REQUESTS = {
    "an unquoted comma": ("x.csv", f"record\n{CANARY}, Ann\n".encode()),
    "no header": ("x.csv", f"{CANARY}\nAnn\n".encode()),
    "no JSON": ("x.jsonl", f'{{"record": "{CANARY}"\n'.encode()),
    "a list": ("x.jsonl", lines({"record": [CANARY]})),
    "bytes": ("x.parquet", parquet(record=pa.array([CODE]))),
    "not UTF-8": ("x.csv", b"record\n" + CODE + b"\xff\n"),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_a_file_of_requests_that_is_malformed_is_refused_without_a_name(what, tmp_path, caplog):
    name, content = REQUESTS[what]
    path = tmp_path / name
    path.write_bytes(content)
    assert_silent(error_of(read_requests, path), caplog)


@pytest.mark.parametrize("names", [CANARY, [f"{CANARY} "], [HALF], [CODE], [[CANARY]], [{CANARY}]], ids=repr)
def test_names_that_cannot_be_are_refused_without_being_repeated(names, caplog):
    assert_silent(error_of(requested, "records", names), caplog)


YAMLS = {
    "a quote that is not closed": f'partition: {{salt: "{CANARY}\n',
    "a tab": f"task: x\n\t{CANARY}: 1\n",
    "an alias": "task: *Zebedee\n",
    "a tag": f"task: !Zebedee {CANARY}\n",
    "records as CSV": f"id,text\n1,{CANARY}: a\n2,'{CANARY}'\n",
    "records as JSON lines": f'{{"text": "{CANARY}"}}\n{{"text": "{CANARY}"}}\n',
    "not UTF-8": f"salt: {CANARY}\xff\n",
    "a salt that is a list": f"partition: {{salt: [{CANARY}]}}\n",
    "a date": f"salt: {CANARY}\nday: 2020-99-99\n",
}


def test_names_on_stdin_that_cannot_be_read_are_refused_without_what_they_are(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CODE + b"\n\xff\n")))
    assert_silent(error_of(names_in, ["-"], None, None, verb="delete"), caplog)


@pytest.mark.parametrize("what", YAMLS)
def test_a_recipe_that_cannot_be_read_is_refused_without_what_it_holds(what, tmp_path, caplog):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(YAMLS[what].encode("latin-1"))
    assert_silent(error_of(s3t.load_recipe, path), caplog)


def test_the_command_line_is_as_silent(tmp_path, text_model, caplog):
    """The two that were found: `init` printed a record's text, and `delete --file` the name of who asked."""
    run, data, asked = tmp_path / "run", tmp_path / "records.csv", tmp_path / "gone.csv"
    (tmp_path / "recipe.yaml").write_text(json.dumps(tiny.recipe(text_model)))
    good = tiny.text_table()
    good.to_csv(data, index=False)
    broken = tmp_path / "broken.csv"
    broken.write_text(data.read_text() + f"r99,{CANARY}, and more,a\n")
    asked.write_text(f"record\n{CANARY}, Ann\n")
    init = ["init", str(run), "--recipe", str(tmp_path / "recipe.yaml"), "--data"]
    results = [CliRunner().invoke(app_of(), [*init, str(broken), *more]) for more in ([], ["--json"])]
    assert CliRunner().invoke(app_of(), [*init, str(data)]).exit_code == 0
    results.append(CliRunner().invoke(app_of(), ["delete", str(run), "--file", str(asked)]))
    for result in results:
        assert result.exit_code == 2
        assert "row" in result.stderr
        assert not any(part in result.stdout + result.stderr + caplog.text for part in CANARY.split())
