"""The end of a command: its result on stdout, or its error on stderr with an exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from s3t.errors import InputError, S3TError, StorageError, UnknownNamesError
from s3t.program import StdoutError

WRONG_INPUT, FAILED = 2, 1


def show(document: dict[str, Any], as_json: bool, render: Callable[[], None]) -> None:
    """Print the document as JSON, or call `render`."""
    try:
        if as_json:
            _print_json(document)
        else:
            render()
    except BrokenPipeError:  # a reader that has enough, such as head; the command is done
        pass
    except StdoutError as error:
        raise StorageError(f"the command is done, but {error}") from error


@contextmanager
def failures_reported(as_json: bool) -> Iterator[None]:
    """End the program with 2 for wrong input and 1 for anything else, saying why on stderr (and as JSON on stdout).

    Other exceptions pass; `bugs_reported` reports them.
    """
    try:
        yield
    except InputError as error:
        _report(error, {"where": error.where, "problems": list(error.problems)}, as_json)
        raise typer.Exit(WRONG_INPUT) from None
    except UnknownNamesError as error:
        _report(error, {"problems": [str(error)], "unknown": list(error.unknown)}, as_json)
        raise typer.Exit(FAILED) from None
    except S3TError as error:
        _report(error, {"problems": [str(error)]}, as_json)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        typer.echo("stopped; what is done is kept, run the same command again to go on", err=True)
        raise typer.Exit(FAILED) from None


@contextmanager
def bugs_reported(arguments: Sequence[str], commands: Sequence[str]) -> Iterator[None]:
    """End the program with 1 at any other exception, and print a bug report without text of records."""
    try:
        yield
    except S3TError as error:  # what has no command around it, such as --help on a full disk
        _report(error, {"problems": [str(error)]}, as_json=False)
        raise SystemExit(FAILED) from None
    except Exception as error:
        from s3t.bugs import Bug

        command = next((argument for argument in arguments if argument in commands), "none")
        bug = Bug(error, command=command)
        for line in (f"s3t: {bug.sentence}", *bug.lines()):
            typer.echo(line, err=True)
        if "--json" in arguments:
            _print_json({"error": {"kind": bug.kind, "problems": [bug.sentence], "bug": bug.to_json()}})
        raise SystemExit(FAILED) from None


def _report(error: Exception, content: dict[str, Any], as_json: bool) -> None:
    typer.echo(f"s3t: {error}", err=True)
    if as_json:
        aftermath = getattr(error, "aftermath", None)
        change = {} if aftermath is None else {"changed": aftermath.changed}
        _print_json({"error": {"kind": type(error).__name__, **content, **change}})


def _print_json(document: dict[str, Any]) -> None:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:  # half a surrogate pair (an argument that is not UTF-8), or a terminal without Unicode
        text = json.dumps(document, allow_nan=False)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()  # now, while a full disk or a closed pipe can still be told
