"""The end of a command: its result on stdout, or its error on stderr with an exit status."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from operator import methodcaller
from typing import Annotated, Any, NamedTuple

import typer

from s3t.errors import InputError, S3TError, StorageError, UnknownNamesError
from s3t.program import StdoutError

WRONG_INPUT, FAILED = 2, 1

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout instead of tables, and nothing else there.")
]


class Output(NamedTuple):
    """The result of a command, which yields it once, and afterwards prints it for people."""

    result: Any
    """The document of --json: a result, or what `json` knows, with results in it."""
    failed: bool = False
    """The exit status is 1."""


def with_json(command: Callable[..., Iterator[Output]]) -> Callable[..., None]:
    """A command that prints its document with --json, else goes on for people, and reports what fails.

    A command that does something else with --json has the option itself.
    """
    signature = inspect.signature(command, eval_str=True)
    is_own = "as_json" in signature.parameters
    if not is_own:
        json_option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)
        signature = signature.replace(parameters=[*signature.parameters.values(), json_option])

    @wraps(command)
    def run(*, as_json: bool, **given: Any) -> None:
        with failures_reported(as_json):
            steps = command(**given, as_json=as_json) if is_own else command(**given)
            output = next(steps, None)
            if output is None:  # it has printed all that there is
                return
            with printing():
                if as_json:
                    _print_json(output.result)
                else:
                    next(steps, None)
            if output.failed:
                raise SystemExit(FAILED)

    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


@contextmanager
def printing() -> Iterator[None]:
    """While within, a result is printed: a reader that goes away is no error, a full stdout is one."""
    try:
        yield
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
        typer.echo(f"s3t: {error}", err=True)
        if as_json:
            _print_json({"error": _document(error)})
        raise SystemExit(WRONG_INPUT if isinstance(error, InputError) else FAILED) from None
    except KeyboardInterrupt:
        typer.echo("stopped; what is done is kept, run the same command again to go on", err=True)
        raise SystemExit(FAILED) from None


@contextmanager
def bugs_reported(arguments: Sequence[str], commands: Sequence[str]) -> Iterator[None]:
    """End the program with 1 at any other exception, and print a bug report without text of records."""
    try:
        with failures_reported(as_json=False):  # of what has no command around it, such as --help on a full disk
            yield
    except Exception as error:
        from s3t.bugs import Bug

        command = next((argument for argument in arguments if argument in commands), "none")
        bug = Bug(error, command=command)
        for line in (f"s3t: {bug.sentence}", *bug.lines()):
            typer.echo(line, err=True)
        if "--json" in arguments:
            _print_json({"error": {"kind": bug.kind, "problems": [bug.sentence], "bug": bug.document}})
        raise SystemExit(FAILED) from None


def _document(error: S3TError) -> dict[str, Any]:
    content: dict[str, Any] = {"kind": type(error).__name__, "problems": [str(error)]}
    if isinstance(error, InputError):
        content |= {"where": error.where, "problems": list(error.problems)}
    if isinstance(error, UnknownNamesError):
        content["unknown"] = list(error.unknown)
    if error.aftermath is not None:
        content["changed"] = error.aftermath.changed
    return content


def _print_json(document: Any) -> None:
    printed = partial(json.dumps, document, allow_nan=False, default=methodcaller("to_json"))
    text = printed(ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:  # half a surrogate pair (an argument that is not UTF-8), or a terminal without Unicode
        text = printed()
    sys.stdout.write(text + "\n")
    sys.stdout.flush()  # now, while a full disk or a closed pipe can still be told
