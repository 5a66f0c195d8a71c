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


def reads(suffix, content, *readers, **changes):
    """Errors of what reads a file of that content: as records of a recipe with changes, if nothing else is given."""

    def errors(folder):
        path = folder / f"x.{suffix}"
        path.write_bytes(content)
        return [error_of(read, path, recipe(**changes)) for read in readers or (ingest,)]

    return errors


def in_csv(rows, header=HEADER, **changes):
    return reads("csv", header + rows.encode(), **changes)


def in_json(content, **changes):
    return reads("jsonl", content if isinstance(content, bytes) else content.encode(), **changes)


def in_parquet(**columns):
    return reads("parquet", parquet(**columns), **(IMAGES if "image" in columns else {}))


def in_frame(**columns):
    rows = {name: [value, value] for name, value in ROW.items()} | {"id": [1, 2]} | columns
    return lambda _: [error_of(ingest, pd.DataFrame(rows, dtype=object), recipe())]


def asks(inputs):
    return lambda _: [error_of(ingest_inputs, inputs, recipe())]


def requests(suffix, content):
    return reads(suffix, content, lambda path, _: read_requests(path))


def names(given):
    return lambda _: [error_of(requested, "records", given)]


def in_yaml(content):
    return reads("yaml", content.encode("latin-1"), lambda path, _: s3t.load_recipe(path))


def public(path, declared):
    return public_records(path, declared, [ingest(pd.DataFrame([ROW]), recipe()).rows])


ALL = (ingest, ingest_inputs, public)
CASES = {
    "CSV: an unquoted comma": reads("csv", HEADER + f"1,p,{CANARY}, more,a\n".encode(), *ALL),
    "CSV: a comma that shifts text into the label": in_csv(f"1,p,t,{CANARY}\n"),
    "CSV: too few cells": in_csv(f"1,{CANARY}\n"),
    "CSV: a quote that is not closed": in_csv(f'1,p,"{CANARY},a\n2,p,t,a\n'),
    "CSV: no header": in_csv(f"1,p,{CANARY},a\n2,p,t,a\n", b""),
    "CSV: a header of records that do not fit": in_csv(f"{CANARY}\n{CANARY},x\n", b""),
    "CSV: not UTF-8": reads("csv", HEADER + f"1,p,{CANARY}\xff,a\n".encode("latin-1")),
    "CSV: not UTF-8 in the header": reads("csv", f"{CANARY}\xff,a\n1,p\n".encode("latin-1")),
    "CSV: UTF-16": reads("csv", f"id,text\n1,{CANARY}\n".encode("utf-16")),
    "CSV: repeated ids": in_csv(f"{CANARY},p,t,a\n{CANARY},p,t,a\n"),
    "CSV: an id with white space": in_csv(f"{CANARY} ,p,t,a\n"),
    "CSV: a subject with white space": in_csv(f"1, {CANARY},t,a\n"),
    "CSV: no number": in_csv(f"1,p,t,{CANARY}\n", task="text-regression", labels=None),
    "CSV: an image path": in_csv(f"1,{CANARY}.png,a\n", b"id,image,label\n", **IMAGES),
    "CSV: an unknown group": in_csv(f"{CANARY},1,p,t,a\n", b"age," + HEADER, **GROUPS),
    "CSV: two groups of one subject": in_csv(f"x,1,{CANARY},t,a\ny,2,{CANARY},t,a\n", b"age," + HEADER, **GROUPS),
    "JSON: no JSON": in_json(f'{{"id": "{CANARY}"\n'),
    "JSON: text": in_json(f"{CANARY}\n"),
    "JSON: a bad escape": in_json(f'{{"id": "{CANARY}\\x"}}\n'),
    "JSON: a list": in_json(f'["{CANARY}"]\n'),
    "JSON: nested too deeply": in_json(f'{{"{CANARY}": {"[" * 100_000}\n'),
    "JSON: a number of many digits": in_json(f'{{"{CANARY}": {"9" * 5000}}}\n'),
    "JSON: half a surrogate pair": reads("jsonl", lines(ROW | {"text": HALF}), *ALL),
    "JSON: a key that is half a surrogate pair": in_json(lines({HALF: 1})),
    "JSON: a list and a text": in_json(lines(ROW | {"text": [CANARY]}, ROW | {"id": 2})),
    "JSON: a text and a number": in_json(lines(ROW | {"text": 1}, ROW | {"id": "2", "text": CANARY})),
    "JSON: a mapping as an id": in_json(lines(ROW | {"id": {CANARY: 1}})),
    "JSON: an unknown label": in_json(lines(ROW | {"label": CANARY})),
    "JSON: a list as a label": in_json(lines(ROW | {"label": [CANARY]})),
    "JSON: not UTF-8": in_json(lines(ROW) + CODE + b"\xff\n"),
    "JSON: other keys": in_json(lines({CANARY: 1})),
    "Parquet: cut": reads("parquet", parquet(text=pa.array([CANARY]))[:-30]),
    "Parquet: text that is not UTF-8": in_parquet(text=not_utf8),
    "Parquet: an id that is not UTF-8": in_parquet(id=not_utf8),
    "Parquet: bytes as an id": in_parquet(id=pa.array([CODE])),
    "Parquet: a list as a subject": in_parquet(person=pa.array([[CANARY]])),
    "Parquet: a mapping as a text": in_parquet(text=pa.array([{"a": CANARY}])),
    "Parquet: bytes as a label": in_parquet(label=pa.array([CODE])),
    "Parquet: bytes that are no image": in_parquet(image=pa.array([b"\x89PNG\r\n\x1a\n" + CODE])),
    "frame: mixed types": in_frame(id=[1, CANARY]),
    "frame: lists and text": in_frame(text=[[CANARY], CANARY]),
    "frame: half a surrogate pair": in_frame(text=["x", HALF]),
    "frame: an object": in_frame(label=[type(CANARY.split()[0], (), {})(), "a"]),
    "frame: a number too large": in_frame(id=[2**80, 1]),
    "frame: column names of records": lambda _: [error_of(ingest, pd.DataFrame({CANARY: ["x", "y"]}), recipe())],
    "inputs: one string": asks(f"{CANARY}. More"),
    "inputs: half a surrogate pair": asks([HALF]),
    "inputs: rows of several shapes": asks([{"text": CANARY}, {"text": [CANARY]}]),
    "inputs: no rows": asks([CANARY, 7]),
    "inputs: half a surrogate pair in a row": asks([{"text": HALF}]),
    "inputs: blank": asks([{"text": CANARY}, {"text": " "}]),
    "requests: an unquoted comma": requests("csv", f"record\n{CANARY}, Ann\n".encode()),
    "requests: no header": requests("csv", f"{CANARY}\nAnn\n".encode()),
    "requests: no JSON": requests("jsonl", f'{{"record": "{CANARY}"\n'.encode()),
    "requests: a list": requests("jsonl", lines({"record": [CANARY]})),
    "requests: bytes": requests("parquet", parquet(record=pa.array([CODE]))),
    "requests: not UTF-8": requests("csv", b"record\n" + CODE + b"\xff\n"),
    "names: one string": names(CANARY),
    "names: white space": names([f"{CANARY} "]),
    "names: half a surrogate pair": names([HALF]),
    "names: bytes": names([CODE]),
    "names: a list": names([[CANARY]]),
    "names: a set": names([{CANARY}]),
    "recipe: a quote that is not closed": in_yaml(f'partition: {{salt: "{CANARY}\n'),
    "recipe: a tab": in_yaml(f"task: x\n\t{CANARY}: 1\n"),
    "recipe: an alias": in_yaml("task: *Zebedee\n"),
    "recipe: a tag": in_yaml(f"task: !Zebedee {CANARY}\n"),
    "recipe: records as CSV": in_yaml(f"id,text\n1,{CANARY}: a\n2,'{CANARY}'\n"),
    "recipe: records as JSON lines": in_yaml(f'{{"text": "{CANARY}"}}\n{{"text": "{CANARY}"}}\n'),
    "recipe: not UTF-8": in_yaml(f"salt: {CANARY}\xff\n"),
    "recipe: a salt that is a list": in_yaml(f"partition: {{salt: [{CANARY}]}}\n"),
    "recipe: a date": in_yaml(f"salt: {CANARY}\nday: 2020-99-99\n"),
}


@pytest.mark.parametrize("what", CASES)
def test_what_is_malformed_is_refused_without_a_value_of_it(what, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    for error in CASES[what](tmp_path):
        assert_silent(error, caplog)


def test_public_records_that_are_private_are_named_by_row(tmp_path, caplog):
    rows = pd.DataFrame([ROW, ROW | {"id": CANARY, "text": CANARY}])
    rows.to_csv(tmp_path / "public.csv", index=False)
    private = [ingest(rows.iloc[1:], recipe()).rows]
    error = error_of(public_records, tmp_path / "public.csv", recipe(), private)
    assert error.problems[0].startswith("line 3: 1 records are in the run's data")
    assert_silent(error, caplog)


def test_names_on_stdin_that_cannot_be_read_are_refused_without_what_they_are(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CODE + b"\n\xff\n")))
    assert_silent(error_of(names_in, ["-"], None, None, verb="delete"), caplog)


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
