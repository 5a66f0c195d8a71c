"""The end of a command: its result on stdout, or its error on stderr with an exit status."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from s3t.errors import InputError, S3TError, StorageError, UnknownNamesError
from s3t.program import StdoutError

if TYPE_CHECKING:
    from s3t.results.base import Result

WRONG_INPUT, FAILED = 2, 1

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout instead of tables, and nothing else there.")
]


class Output(NamedTuple):
    """The result of a command, and a function that prints it for people."""

    result: Result | Mapping[str, Any]
    """The document of --json."""
    render: Callable[[], None]
    failed: bool = False
    """The exit status is 1."""


def with_json(command: Callable[..., Output | None]) -> Callable[..., None]:
    """A command that prints its output, as one document with --json, and reports what fails. See `failures_reported`.

    A command that does something else with --json has the option itself.
    """
    signature = inspect.signature(command, eval_str=True)
    json_option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)
    is_own = json_option.name in signature.parameters

    @wraps(command)
    def run(*, as_json: bool, **given: Any) -> None:
        with failures_reported(as_json):
            output = command(**given, as_json=as_json) if is_own else command(**given)
            if output is not None:
                show(output, as_json=as_json)
                if output.failed:
                    raise typer.Exit(FAILED)

    if not is_own:
        signature = signature.replace(parameters=[*signature.parameters.values(), json_option])
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def show(output: Output, *, as_json: bool) -> None:
    """Print a result as JSON, or for people."""
    try:
        if as_json:
            result = output.result
            _print_json(result if isinstance(result, Mapping) else result.to_json())
        else:
            output.render()
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
    except S3TError as error:
        _report(error, as_json)
        raise typer.Exit(WRONG_INPUT if isinstance(error, InputError) else FAILED) from None
    except KeyboardInterrupt:
        typer.echo("stopped; what is done is kept, run the same command again to go on", err=True)
        raise typer.Exit(FAILED) from None


@contextmanager
def bugs_reported(arguments: Sequence[str], commands: Sequence[str]) -> Iterator[None]:
    """End the program with 1 at any other exception, and print a bug report without text of records."""
    try:
        yield
    except S3TError as error:  # what has no command around it, such as --help on a full disk
        _report(error, as_json=False)
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


def _report(error: S3TError, as_json: bool) -> None:
    typer.echo(f"s3t: {error}", err=True)
    if as_json:
        content: dict[str, Any] = {"kind": type(error).__name__, "problems": [str(error)]}
        if isinstance(error, InputError):
            content |= {"where": error.where, "problems": list(error.problems)}
        if isinstance(error, UnknownNamesError):
            content["unknown"] = list(error.unknown)
        if error.aftermath is not None:
            content["changed"] = error.aftermath.changed
        _print_json({"error": content})


def _print_json(document: Mapping[str, Any]) -> None:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:  # half a surrogate pair (an argument that is not UTF-8), or a terminal without Unicode
        text = json.dumps(document, allow_nan=False)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()  # now, while a full disk or a closed pipe can still be told
