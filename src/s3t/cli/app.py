"""The program `s3t`: its commands, in the order of their use."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from s3t.cli.output import bugs_reported, with_json
from s3t.version import __version__

EPILOG = (
    "Exit status: 0 done, 2 wrong input (all problems are listed), 1 anything else. "
    "Results go to stdout, progress and messages to stderr."
)

_HELP = (
    "Exact machine unlearning of fine-tuned transformers.\n\n"
    "Train on records that belong to people, delete any of them exactly and at once, and go on serving.\n\n"
    "A first run:  s3t init RUN --data records.csv --recipe recipe.yaml, then  s3t train RUN,  "
    "s3t predict RUN --input new.csv,  s3t delete RUN --record 42,  s3t repair RUN,  s3t audit RUN --replay 2."
)

_CHOOSE, _RUNS, _ANSWER, _DELETE = "s3t.cli.choose", "s3t.cli.runs", "s3t.cli.answer", "s3t.cli.delete"
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Choose a system": dict.fromkeys(("compare", "plan", "sequences", "simulate", "tune"), _CHOOSE),
    "Make and train a run": dict.fromkeys(("ids", "init", "train", "add", "sync", "status"), _RUNS),
    "Answer": dict.fromkeys(("predict", "evaluate", "generate", "score", "harness"), _ANSWER) | {"export": _RUNS},
    "Delete": dict.fromkeys(("locate", "delete", "log", "erase"), _DELETE)
    | dict.fromkeys(("expire", "repair", "extend"), _RUNS),
    "Prove and keep": {"audit": _RUNS, "clone": _RUNS, "reconcile": _DELETE, "destroy-key": _DELETE},
}
"""Sections of --help: the library's commands and their modules."""
COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}
"""A package that builds on the library adds its own, which follow in a section of theirs."""


class _Sections(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        others = {name: "" for name in self.commands if name not in COMMANDS}
        for title, names in {**SECTIONS, "Serve": others}.items():
            own = [self.commands[name] for name in names if name in self.commands]
            if own:
                with formatter.section(title):
                    formatter.write_dl([(each.name, each.get_short_help_str(formatter.width - 18)) for each in own])


def app_of(commands: Mapping[str, str] = COMMANDS) -> typer.Typer:
    """The program with these commands. Their modules are imported here, and no other command's."""
    app = typer.Typer(
        name="s3t",
        cls=_Sections,
        help=_HELP,
        epilog=EPILOG,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name, place in commands.items():
        module = import_module(place)
        if hasattr(module, "COMMANDS"):
            group = typer.Typer(help=module.__doc__, epilog=EPILOG, no_args_is_help=True, rich_markup_mode=None)
            for own, command in module.COMMANDS.items():
                group.command(name=own, epilog=EPILOG)(with_json(command))
            app.add_typer(group, name=name)
        else:
            app.command(name=name, epilog=EPILOG)(with_json(getattr(module, name.replace("-", "_"))))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"s3t {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def main(commands: Mapping[str, str] = COMMANDS) -> None:
    """Run the program with these commands; exits."""
    from s3t.program import exit_on_sigterm, set_up_process, set_up_streams

    set_up_streams()
    set_up_process()
    exit_on_sigterm()
    threading.excepthook = _report_thread
    try:
        run(sys.argv[1:], commands)
    finally:
        gc.freeze()  # Python would look through all that was imported, several times, before it ends


def run(arguments: Sequence[str], commands: Mapping[str, str] = COMMANDS) -> NoReturn:
    """Run one command; whatever happens, exits with the status that the documentation gives to it."""
    named = {name: commands[name] for name in arguments[:1] if name in commands}
    with bugs_reported(arguments, tuple(commands)):
        app_of(named or commands)(arguments)
    raise SystemExit(0)


def _report_thread(failed: threading.ExceptHookArgs) -> None:
    """Tell of an exception that has ended a thread of ours."""
    from s3t.bugs import Bug

    if failed.exc_value is not None:
        for line in Bug(failed.exc_value, command="in a thread").lines():
            typer.echo(line, err=True)
