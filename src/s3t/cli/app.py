"""The program `s3t`: its commands, in the order of their use."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from s3t.cli import (
    audit,
    delete,
    destroy_key,
    erase,
    evaluate,
    extend,
    ids,
    init,
    locate,
    log,
    plan,
    predict,
    reconcile,
    repair,
    sequences,
    simulate,
    status,
    train,
    tune,
)
from s3t.version import __version__

EPILOG = (
    "Exit status: 0 done, 2 wrong input (all problems are listed), 1 anything else. "
    "Results go to stdout, progress and messages to stderr."
)

app = typer.Typer(
    name="s3t",
    help="Exact machine unlearning of fine-tuned transformers.\n\n"
    "Train on records that belong to people, delete any of them exactly and at once, and go on serving.\n\n"
    "A first run:  s3t init RUN --data records.csv --recipe recipe.yaml, then  s3t train RUN,  "
    "s3t predict RUN --input new.csv,  s3t delete RUN --record 42,  s3t repair RUN,  s3t audit RUN --replay 2.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_COMMANDS = (
    plan,
    sequences,
    simulate,
    tune,
    init,
    train,
    predict,
    evaluate,
    delete,
    locate,
    log,
    status,
    repair,
    extend,
    audit,
    erase,
    reconcile,
    destroy_key,
    ids,
)
for _command in _COMMANDS:
    _name = _command.__name__.rpartition(".")[2].replace("_", "-")
    app.command(name=_name, epilog=EPILOG)(_command.command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"s3t {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def _stop(_number: int, _frame: object) -> None:
    """End as on an error: what is half written is taken away on the way out."""
    raise SystemExit(128 + signal.SIGTERM)


def main() -> None:
    """Run the program; exits."""
    from s3t.deletion.core_dumps import no_core_dumps
    from s3t.memory import keep_freed_memory

    keep_freed_memory()
    no_core_dumps()  # they would hold the records that it had in memory
    signal.signal(signal.SIGTERM, _stop)
    app()
