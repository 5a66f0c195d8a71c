"""Commands as somebody types them, in this process."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import s3t
from s3t.cli.app import app_of, run
from s3t.comparison import Comparison
from s3t.planning.plan import Plan
from s3t.planning.simulation import Simulation
from s3t.results.log import AdditionEntry
from s3t.results.serving import Held, Token
from s3t_server.program import COMMANDS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
RESULTS = (
    s3t.Added,
    s3t.Audit,
    s3t.Deletion,
    s3t.Exports,
    s3t.Location,
    s3t.LogEntry,
    AdditionEntry,
    Held,
    Token,
    s3t.Reconciliation,
    s3t.Status,
    s3t.Training,
    Comparison,
    Plan,
    Simulation,
)
"""Results that docs/cli.md leaves to their schemas."""
KEYED_BY_DATA = {
    "bug",
    "demand",
    "depth",
    "depth_falls_below",
    "depth_falls_below_between",
    "expected_depth",
    "left_out",
    "probabilities",
    "quantiles",
    "recipe",
    "repair",
    "values",
}
"""Fields whose values are keyed by labels, numbers, or names of options and fields."""


def invoke(*arguments, stdin=None):
    """One command; as in the program, the others are not even imported."""
    words = [*map(str, arguments)]
    named = {name: COMMANDS[name] for name in words[:1] if name in COMMANDS}
    return CliRunner().invoke(app_of(named or COMMANDS), words, input=stdin)


@cache
def in_schemas():
    """Names of fields in the schemas of results, at any depth."""
    schemas = [model.model_json_schema(mode="serialization") for model in RESULTS]
    parts = [part for schema in schemas for part in (schema, *schema.get("$defs", {}).values())]
    return {name for part in parts for name in part.get("properties", {})}


def document(*arguments, status=0, quiet=False):
    """The one JSON document on stdout, of fields that docs/cli.md or a result's schema names; with `quiet`, and nothing
    on stderr."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == status, result.stderr
    assert result.stdout.count("\n") == 1
    assert not quiet or result.stderr == ""
    found = json.loads(result.stdout)
    others = {name for name in fields_in(found) if name not in in_schemas()}
    undocumented = {name for name in others if f'"{name}"' not in PAGE and f"`{name}`" not in PAGE}
    assert not undocumented, f"fields that neither docs/cli.md nor a schema names: {sorted(undocumented)}"
    return found


def fields_in(value):
    """Names of the fields of a document, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from fields_in(item)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in KEYED_BY_DATA:
                yield from fields_in(inner)


def problems(*arguments):
    """What is wrong, and that it is said twice: in the document and on stderr."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == 2, result.stdout
    error = json.loads(result.stdout)["error"]
    assert set(error) == {"kind", "where", "problems"}
    for problem in error["problems"]:
        assert problem in result.stderr
    plain = invoke(*arguments)
    assert (plain.exit_code, plain.stdout, plain.stderr) == (2, "", result.stderr)
    return error["problems"]


def in_slices(run, words):
    """Whether a slice's file of the run holds a text."""
    return any(words.encode() in path.read_bytes() for path in run.glob("slices/**/*.parquet"))


def program(*arguments):
    """The whole program in this process, with its net below the commands; `invoke` is the commands alone."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace") for _ in range(2)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]), pytest.raises(SystemExit) as ended:
        run([*map(str, arguments)], COMMANDS)
    stdout, stderr = ((stream.flush(), stream.buffer.getvalue())[1].decode() for stream in streams)
    return SimpleNamespace(status=ended.value.code or 0, stdout=stdout, stderr=stderr)
