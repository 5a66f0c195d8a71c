"""`s3t extend`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

import s3t
from s3t.cli.display import in_hours, print_training
from s3t.cli.options import JsonOption, MovedOption, RunArgument, WorkersOption, number_of
from s3t.cli.outcome import failures_reported, show
from s3t.errors import InputError
from s3t.progress import ProgressBar
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.run.extension import Extension, RepairExtension

LEAST_DEPTH = 0.1
"""Mean depth, in slices, below which a shard is as good as dead with any orders."""


def command(
    run: RunArgument,
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget", metavar="B", help="Orders a shard, more than it has now, up to L!.", show_default=False
        ),
    ] = None,
    spares: Annotated[
        int | None,
        typer.Option(
            "--spares", metavar="N", help="If the run is repaired as needed: chains beside the main one, fewer than L."
        ),
    ] = None,
    spare_depth: Annotated[
        int | None,
        typer.Option("--spare-depth", metavar="K", help="If the run is repaired as needed: slices of each spare."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="POLICY",
            help="Another deletion.repair, as in a recipe: eager, or '{policy: as-needed, depth: 3}'.",
        ),
    ] = None,
    workers: WorkersOption = "1",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show costs and gain, and change nothing.")] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Add orders that make no shard survive longer, too.")
    ] = False,
    moved: MovedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add orders, or spares, to every shard, so that it survives more deletions, and train the stages that are missing.

    The old orders stay, and stay first. If the training is killed, s3t train goes on where it was. Orders that would
    add no survival are refused unless --anyway is given, or the recipe uses them (prediction.ensemble: sequences,
    prediction.select: validation). A run that is repaired as needed takes --spares, --spare-depth, or both. --policy
    changes between such a run and one with fixed orders; orders and live stages are kept.
    """
    with failures_reported(as_json):
        with s3t.Run.open(run, moved=moved) as opened:
            asked = {"budget": budget, "spares": spares, "spare_depth": spare_depth, "policy": _parsed(policy)}
            forecast = opened.extension(**asked, progress=ProgressBar())
            told = _told(forecast)
            if dry_run:
                show(forecast.to_json(), as_json, lambda: typer.echo(told))
                return
            if forecast.buys_nothing and not anyway:
                remedy = "give --anyway to train them all the same, or deepen shards with s3t repair"
                raise InputError("the budget", f"{told}; {remedy}")
            typer.echo(told, err=True)
            report = opened.extend(**asked, workers=number_of(workers), progress=ProgressBar())
            status = opened.status()

        def render() -> None:
            typer.echo(f"{forecast.described} now")
            print_training(report, status, run)

        show({**forecast.bought(), **report.to_json()}, as_json, render)


def _parsed(policy: str | None) -> Any:
    """A policy from YAML; what is wrong with its fields is found when they are checked."""
    if policy is None:
        return None
    from s3t.recipe.loading import parse_yaml

    try:
        return parse_yaml(policy)
    except ValueError as error:
        raise InputError("the policy", f"{error}. Quote it for the shell: '{{policy: as-needed, depth: 3}}'") from None


def _told(extension: Extension | RepairExtension) -> str:
    """Costs and gain of an extension, in one line."""
    from s3t.run.extension import RepairExtension

    lost = f" and {extension.lost} that are missing already" if extension.lost else ""
    if isinstance(extension, RepairExtension):
        hours = "" if extension.hours is None else f", {in_hours(extension.hours)}"
        return (
            f"{counted(extension.stages, 'stage')} to train for {extension.described}{lost}{hours}; expected "
            f"depth of a shard right after its next hit: {extension.before:.2f} -> {extension.after:.2f}"
        )
    gain = extension.gain
    changes = ", ".join(
        f"{before:.2f} -> {after:.2f} after {count}"
        for count, before, after in zip(gain.deletions, gain.before, gain.after, strict=True)
        if after >= LEAST_DEPTH
    )
    nothing = ": these orders add no survival" if gain.is_none else ""
    return (
        f"{counted(extension.stages, 'stage')} to train for the new orders{lost}; expected depth of a shard by "
        f"deletions in it: {changes}{nothing}"
    )
