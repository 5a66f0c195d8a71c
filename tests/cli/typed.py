"""Commands as somebody types them, in this process."""

import json

from typer.testing import CliRunner

from s3t.cli.app import app


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def document(*arguments, status=0, quiet=False):
    """The one JSON document on stdout; with `quiet`, and nothing on stderr."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == status, result.stderr
    assert result.stdout.count("\n") == 1
    assert not quiet or result.stderr == ""
    return json.loads(result.stdout)


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
