"""How a command ends: its result on stdout, or what went wrong on stderr with the exit status that fits."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import typer

from s3t.errors import InputError, S3TError

WRONG_INPUT, FAILED = 2, 1


class Result(Protocol):
    """What `Run`'s methods return."""

    def to_json(self) -> dict[str, Any]:
        """One JSON document."""
        ...


def show(document: dict[str, Any], as_json: bool, render: Callable[[], None]) -> None:
    """Print the document, or what `render` makes of it."""
    if as_json:
        sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        render()


@contextmanager
def failures_reported(as_json: bool) -> Iterator[None]:
    """End the program with 2 for wrong input and 1 for anything else, saying why on stderr (and as JSON on stdout)."""
    try:
        yield
    except InputError as error:
        _report(error, {"where": error.where, "problems": list(error.problems)}, as_json)
        raise typer.Exit(WRONG_INPUT) from None
    except S3TError as error:
        _report(error, {"problems": [str(error)]}, as_json)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        typer.echo("stopped; what is done is kept, run the same command again to go on", err=True)
        raise typer.Exit(FAILED) from None
    except (typer.Exit, SystemExit, BrokenPipeError):  # the last of a reader that has enough, such as head
        raise
    except Exception as error:
        logging.getLogger("s3t").exception("unexpected failure")
        _report(error, {"problems": [f"{type(error).__name__}: {error}"]}, as_json)
        raise typer.Exit(FAILED) from None


def _report(error: Exception, content: dict[str, Any], as_json: bool) -> None:
    typer.echo(f"s3t: {error}", err=True)
    if as_json:
        document = {"error": {"kind": type(error).__name__, **content}}
        sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")
