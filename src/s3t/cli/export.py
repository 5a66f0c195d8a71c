"""`s3t export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import s3t
from s3t.cli.display import print_unfinished
from s3t.cli.options import JsonOption, MovedOption, RunArgument
from s3t.cli.outcome import failures_reported, show
from s3t.progress import ProgressBar
from s3t.wording import numbers

if TYPE_CHECKING:
    from s3t.results.changes import Exports
    from s3t.results.state import Status


OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="DIR",
        help="Folder in which each export gets a folder of its own, named by its content. Made if it is missing.",
    ),
]
ShardOption = Annotated[
    int | None, typer.Option("--shard", metavar="I", help="Export this shard alone; by default all that answer.")
]
MergeOption = Annotated[
    bool,
    typer.Option("--merge", help="Write the whole model, with the adapter folded into its weights, for transformers."),
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--for",
        metavar="ENGINE",
        help="Reader of the adapter: peft, vllm or sglang. What the engine would refuse is refused here, with all "
        "reasons.",
    ),
]
WithdrawnOption = Annotated[
    str | None,
    typer.Option(
        "--withdrawn",
        metavar="NAME",
        help="Export nothing: say that no copy of the export NAME is left, in no folder and in no server. Deletions "
        "wait for it no more. Refused while it is still there on this host.",
    ),
]


def command(
    run: RunArgument,
    output: OutputOption = None,
    shard: ShardOption = None,
    merge: MergeOption = False,
    engine: EngineOption = "peft",
    withdrawn: WithdrawnOption = None,
    moved: MovedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the live chain of each shard for other programs: an adapter that PEFT loads, or a whole model.

    An export is a copy of what records were used for, and the run knows it. A deletion that hits it says so, and is not
    erased before the export is withdrawn: by --withdrawn, or by the command in deletion.export_hook.

        s3t export RUN --output adapters --for vllm
    """
    with failures_reported(as_json):
        if output is not None and withdrawn is None:
            given: Any = engine  # checked with the other arguments
            with s3t.Run.open(run, moved=moved) as opened:
                report = opened.export(output, shard=shard, merge=merge, engine=given, progress=ProgressBar())
            show(report.to_json(), as_json, lambda: _print(report, run))
        elif withdrawn is not None and (output, shard, merge, engine) == (None, None, False, "peft"):
            with s3t.Run.open(run, moved=moved) as opened:
                status = opened.withdraw(withdrawn)
            show(status.to_json(), as_json, lambda: _print_withdrawn(withdrawn, status, run))
        else:
            problem = "name a folder with --output, or, without other options, an export with --withdrawn"
            raise s3t.InputError("the command", problem)


def _print_withdrawn(name: str, status: Status, run: Path) -> None:
    typer.echo(f"export {name} is withdrawn")
    print_unfinished(status, run)


def _print(report: Exports, run: Path) -> None:
    for export in report.exports:
        known = "" if export.new else " (it was there already)"
        typer.echo(f"shard {export.shard}, slices {numbers(export.prefix)}: {export.path}{known}")
    for notice in report.notices:
        typer.echo(f"note: {notice}")
    typer.echo(f"s3t status {run} lists the exports; a deletion that hits one waits until it is withdrawn")
