"""`s3t plan`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s3t.cli.declarations import noted
from s3t.cli.display import print_line, print_table, working
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show
from s3t.errors import InputError

if TYPE_CHECKING:
    from s3t.planning import Candidate, Plan


LookOption = Annotated[float, typer.Option("--months", metavar="N", help="How far to look ahead.")]
ArrivalOption = Annotated[
    float, typer.Option("--deletions-per-month", metavar="N", help="Records to be deleted.", show_default=False)
]
BillOption = Annotated[
    float,
    typer.Option(
        "--budget",
        metavar="X",
        help="What the first training and all repairs may cost, in full trainings.",
        show_default=False,
    ),
]
ShareOption = Annotated[
    float,
    typer.Option(
        "--share",
        metavar="S",
        help="Smallest acceptable depth: the share of all records that every shard's model has learnt from, above 0 "
        "and up to 1. A shard with less is repaired.",
    ),
]
ShardsOption = Annotated[int, typer.Option("--max-shards", metavar="M", help="Shards at most, up to 100.")]
SlicesOption = Annotated[
    int, typer.Option("--max-slices", metavar="L", help="Slices at most, up to 32: no more than layers.")
]
SequencesOption = Annotated[
    int, typer.Option("--max-sequences", metavar="B", help="Sequences a shard at most, up to 32.")
]
SizeOption = Annotated[
    float | None,
    typer.Option(
        "--stage-megabytes",
        metavar="MB",
        help="Size of a stage's artifact, block and head, to print the storage. By default stages are counted.",
        show_default=False,
    ),
]
PictureOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw cost against repairs, into a .png, .svg or .pdf file."),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Of the simulations.")]


def command(
    deletions_per_month: ArrivalOption,
    budget: BillOption,
    months: LookOption = 12,
    share: ShareOption = 0.1,
    max_shards: ShardsOption = 20,
    max_slices: SlicesOption = 12,
    max_sequences: SequencesOption = 12,
    stage_megabytes: SizeOption = None,
    seed: SeedOption = 0,
    plot: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Propose shards, slices and sequences for the deletions that you expect and the training that you can pay.

    Of the systems within the budget it proposes the one that falls below the acceptable depth least often. Takes about
    ten seconds. An example:

    s3t plan --deletions-per-month 20 --months 12 --share 0.1 --budget 60
    """
    with failures_reported(as_json):
        from s3t.drawing import check_picture, draw_plan
        from s3t.planning import Demand, plan

        problems: list[str] = []
        if stage_megabytes is not None and not 0 < stage_megabytes < math.inf:
            problems.append(f"{stage_megabytes} megabytes a stage: give a finite number above 0")
        if seed < 0:
            problems.append(f"seed {seed} is negative")
        with noted(problems):
            if plot is not None:
                check_picture(plot)
        with noted(problems):
            demand = Demand(
                deletions_per_month=deletions_per_month,
                months=months,
                share=share,
                budget=budget,
                max_shards=max_shards,
                max_slices=max_slices,
                max_sequences=max_sequences,
            )
        if problems:
            raise InputError("the command", problems)
        with working("simulating systems"):
            found = plan(demand, seed=seed)
        if plot is not None:
            draw_plan(found, plot)
        document = found.to_json() | {"stage_megabytes": stage_megabytes}

        def render() -> None:
            _print(found, stage_megabytes)
            if plot is not None:
                print_line(f"drawn: {plot}")

        show(document, as_json, render)


def _print(found: Plan, stage_megabytes: float | None) -> None:
    demand, best = found.demand, found.proposal
    print_line(
        f"{demand.deletions} deletions in {demand.months:g} months. Training anew after each would cost "
        f"{1 + demand.deletions} full trainings."
    )
    if best is None:
        print_line(
            f"no system stays within {demand.budget:g} full trainings; the cheapest costs {found.cheapest.cost:.1f}. "
            "Raise --budget, lower --share, or allow more shards"
        )
    else:
        print_line(
            f"proposed: {best.shards} shards, {best.slices} slices, {best.budget} sequences a shard; repair a shard "
            f"with fewer than {best.depth} of its slices left\n"
            f"  partition: {{shards: {best.shards}, slices: {best.slices}}}\n"
            f"  sequences: {{budget: {best.budget}, selector: {best.selector}}}"
        )
    rows = [_row(candidate, stage_megabytes) for candidate in _shown(found)]
    print_table("systems by cost; none is both cheaper and repaired less", rows)
    print_line(
        "m shards, L slices, B sequences a shard. A shard with fewer slices than `below` is repaired. Costs are in\n"
        "full trainings. Share: of all records, what a shard's model has learnt from in the mean."
    )


def _shown(found: Plan) -> list[Candidate]:
    """At most a dozen of the frontier around the budget, and the proposal among them."""
    frontier = found.others
    within = [candidate for candidate in frontier if candidate.cost <= found.demand.budget][-6:]
    beyond = [candidate for candidate in frontier if candidate.cost > found.demand.budget][:5]
    chosen = [*within, *beyond, *([found.proposal] if found.proposal else [])]
    return sorted(chosen, key=lambda candidate: candidate.cost)


def _row(candidate: Candidate, stage_megabytes: float | None) -> dict[str, Any]:
    if stage_megabytes is None:
        storage = {"stages": str(candidate.stages)}
    else:
        storage = {"GB": f"{candidate.stages * stage_megabytes / 1000:.2f}"}
    return {
        "m": candidate.shards,
        "L": candidate.slices,
        "B": candidate.budget,
        "below": candidate.depth,
        "training": f"{candidate.training:.1f}",
        "repairs": f"{candidate.repairs:.1f}",
        "their cost": f"{candidate.repair_cost:.1f}",
        "cost": f"{candidate.cost:.1f}",
        "share": f"{candidate.data_share:.1%}",
    } | storage
