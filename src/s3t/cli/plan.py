"""`s3t plan`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s3t.cli import as_needed, service
from s3t.cli.declarations import noted
from s3t.cli.display import print_table, working
from s3t.cli.options import JsonOption, seed_problems
from s3t.cli.outcome import failures_reported, show
from s3t.cli.proposal import left_out, recipe_lines
from s3t.errors import InputError

if TYPE_CHECKING:
    from s3t.planning.plan import Candidate, Demand, Plan
    from s3t.recipe import Recipe

GRID: dict[str, Any] = {"share": 0.1, "max_shards": 20, "max_slices": 12, "max_sequences": 12}
"""Options of fixed orders alone, as they are if absent."""
MOST_SIZE = 1_000_000_000
"""Megabytes of a stage, or hours of a training."""

LookOption = Annotated[float, typer.Option("--months", metavar="N", help="Months to plan for.")]
ArrivalOption = Annotated[
    float | None,
    typer.Option(
        "--deletions-per-month",
        metavar="N",
        help="Records to be deleted, each asked for by itself. This or the next is required.",
    ),
]
PersonsOption = Annotated[
    float | None,
    typer.Option(
        "--persons-per-month",
        metavar="N",
        help="Persons who ask, instead. All records of a person lie in one slice, so each hits one slice once.",
    ),
]
LayersOption = Annotated[
    int | None,
    typer.Option(
        "--layers",
        metavar="N",
        help="Transformer layers of the model, which the slices share out. Without, and without --recipe, 12.",
    ),
]
LayersPerSliceOption = Annotated[
    int | None,
    typer.Option(
        "--layers-per-slice",
        metavar="K",
        help="Layers a slice. Without: what the recipe says, else as many as there is room for.",
    ),
]
RecipeOption = Annotated[
    Path | None,
    typer.Option("--recipe", metavar="YAML", help="The recipe to plan for; its base model gives the layers."),
]
HoursOption = Annotated[
    float | None,
    typer.Option(
        "--training-hours",
        metavar="H",
        help="Hours of one full training: costs of repairs are then given in hours, too.",
    ),
]
BillOption = Annotated[
    float | None,
    typer.Option(
        "--budget",
        metavar="X",
        help="Largest cost of the first training and all repairs, in full trainings.",
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
MaxShardsOption = Annotated[int, typer.Option("--max-shards", metavar="M", help="Shards at most, up to 100.")]
MaxSlicesOption = Annotated[
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
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the simulations.")]


def command(
    budget: BillOption = None,
    deletions_per_month: ArrivalOption = None,
    persons_per_month: PersonsOption = None,
    months: LookOption = 12,
    mean_depth: service.DepthOption = None,
    never_dead: service.NeverDeadOption = False,
    depth_after_deletion: service.AfterOption = None,
    score: service.ScoreOption = None,
    scores: service.ScoresOption = None,
    hours_a_day: service.HoursADayOption = None,
    shards: service.ShardsOption = None,
    slices: service.SlicesOption = None,
    stage_seconds: as_needed.StageSecondsOption = None,
    plot: service.PlotOption = None,
    share: ShareOption = GRID["share"],
    recipe: RecipeOption = None,
    layers: LayersOption = None,
    layers_per_slice: LayersPerSliceOption = None,
    max_shards: MaxShardsOption = GRID["max_shards"],
    max_slices: MaxSlicesOption = GRID["max_slices"],
    max_sequences: SequencesOption = GRID["max_sequences"],
    training_hours: HoursOption = None,
    stage_megabytes: SizeOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Propose fixed orders for a budget of training, or repair as needed for a level of service.

    Of the systems within the budget it proposes the one that falls below the acceptable depth least often; of the
    repairs as needed that meet a level of service, the cheapest:

        s3t plan --deletions-per-month 20 --months 12 --share 0.1 --budget 60 --layers 6

        s3t plan --deletions-per-month 20 --shards 5 --slices 6 --mean-depth 4 --never-dead
    """
    with failures_reported(as_json):
        level: Any = {"mean_depth": mean_depth, "never_dead": never_dead, "after_deletion": depth_after_deletion}
        level |= {"score": score, "scores": scores}
        system: Any = {"shards": shards, "slices": slices, "stage_seconds": stage_seconds}
        limits: Any = {"hours_a_day": hours_a_day, "trainings": budget, "training_hours": training_hours}
        asked = service.Asked(**level, **system, **limits, plot=plot)
        grid = {"share": share, "max_shards": max_shards, "max_slices": max_slices, "max_sequences": max_sequences}
        problems = _problems_of_numbers(deletions_per_month, persons_per_month, stage_megabytes, training_hours, seed)
        problems += _mixed(asked, grid, stage_megabytes)
        base_model, layers, layers_per_slice = _model(recipe, layers, layers_per_slice)
        model: Any = {"recipe": base_model, "layers": layers, "layers_per_slice": layers_per_slice}
        planned = service.Planned(
            deletions_per_month=next((n for n in (deletions_per_month, persons_per_month) if n is not None), 1),
            persons=persons_per_month is not None,
            months=months,
            seed=seed,
            **model,
        )
        if asked.is_level:
            service.plan_service(asked, planned, problems, as_json)
        else:
            _plan_orders(planned, grid, budget, training_hours, stage_megabytes, problems, as_json)


def _mixed(asked: service.Asked, grid: Mapping[str, float], stage_megabytes: float | None) -> list[str]:
    """Options that do not go together: some are of a level of service, others of fixed orders."""
    if not asked.is_level:
        level = f"{', '.join(service.LEVEL[:-1])} or {service.LEVEL[-1]}"
        problems = [f"{name} is of a level of service; give {level}, too" for name in asked.given]
        return problems if asked.trainings is not None else [*problems, f"give --budget, or a level: {level}"]
    stray = [f"--{name.replace('_', '-')}" for name, value in grid.items() if value != GRID[name]]
    stray += [] if stage_megabytes is None else ["--stage-megabytes"]
    return [f"{name} is of fixed orders, not of a level of service; leave it out" for name in stray]


def _plan_orders(
    planned: service.Planned,
    grid: Mapping[str, Any],
    budget: float | None,
    training_hours: float | None,
    stage_megabytes: float | None,
    problems: list[str],
    as_json: bool,
) -> None:
    from s3t.planning.plan import Demand, plan
    from s3t.planning.rounding import rounded

    with noted(problems):
        demand = Demand(
            deletions_per_month=planned.deletions_per_month,
            months=planned.months,
            budget=1 if budget is None else budget,
            layers=planned.layers_or_assumed,
            layers_per_slice=planned.layers_per_slice,
            **grid,
        )
    if problems:
        raise InputError("the command", problems)
    with working("simulating systems"):
        result = plan(demand, seed=planned.seed)
    lines = _lines(result, planned.recipe)

    def render() -> None:
        _print_demand(result, persons=planned.persons, assumed=planned.layers is None, recipe=planned.recipe)
        _print_proposal(result, lines, training_hours)
        _print_table(result, stage_megabytes)

    show(rounded(result.to_json() | {"recipe": lines, "stage_megabytes": stage_megabytes}), as_json, render)


def _problems_of_numbers(
    records: float | None, persons: float | None, megabytes: float | None, hours: float | None, seed: int
) -> list[str]:
    sizes = ((megabytes, "megabytes a stage"), (hours, "hours of training"))
    return [
        *(
            f"{value} {what}: give a number above 0 and up to {MOST_SIZE:,}"
            for value, what in sizes
            if value is not None and not 0 < value <= MOST_SIZE
        ),
        *seed_problems(seed),
        *(
            ["give one of --deletions-per-month and --persons-per-month"]
            if (records is None) == (persons is None)
            else []
        ),
    ]


def _model(path: Path | None, layers: int | None, layers_per_slice: int | None) -> tuple[Recipe | None, Any, Any]:
    """(Recipe, layers of the model, layers of a slice), each from the options, else from the recipe, else None."""
    if path is None:
        return None, layers, layers_per_slice
    from s3t.models.source import layer_count, model_folder
    from s3t.recipe import load_recipe

    recipe = load_recipe(path)
    if recipe.method.one_order:
        raise InputError(str(path), f"method: {recipe.method} has one order a shard; only s3t is planned for")
    if layers is None:
        layers = layer_count(model_folder(recipe.base_model, revision=recipe.revision))
    if layers_per_slice is None and "layers_per_slice" in recipe.adapter.model_fields_set:
        layers_per_slice = recipe.adapter.layers_per_slice
    return recipe, layers, layers_per_slice


def _lines(result: Plan, recipe: Recipe | None) -> list[str]:
    best = result.proposal
    if best is None:
        return []
    return recipe_lines(
        recipe,
        partition={"shards": best.shards, "slices": best.slices},
        sequences={"budget": best.budget, "selector": best.selector},
        layers_per_slice=result.demand.layers_of(best.slices),
        repair={"below-depth": best.depth},
    )


def _print_demand(result: Plan, *, persons: bool, assumed: bool, recipe: Recipe | None) -> None:
    demand = result.demand
    unit = "deletions of a person's records" if persons else "deletions of a record"
    typer.echo(
        f"{demand.deletions} {unit} in {demand.months:g} months. Training anew after each would cost "
        f"{1 + demand.deletions} full trainings."
    )
    known = "assumed, for neither --layers nor --recipe is given" if assumed else "the model"
    each = "as many as there is room for" if demand.layers_per_slice is None else str(demand.layers_per_slice)
    typer.echo(f"{known}: {demand.layers} layers; layers a slice: {each}; slices at most: {demand.most_slices}")
    if recipe is not None and (names := left_out(recipe)):
        typer.echo(f"not planned for, and not in the lines below: the recipe's {', '.join(names)}")


def _print_proposal(result: Plan, lines: list[str], training_hours: float | None) -> None:
    demand, best = result.demand, result.proposal
    if best is None:
        typer.echo(
            f"no system stays within {demand.budget:g} full trainings; the cheapest costs {result.cheapest.cost:.1f}. "
            "Raise --budget, lower --share, or allow more shards"
        )
        return
    typer.echo(
        f"proposed: {best.shards} shards, {best.slices} slices, {best.budget} sequences a shard; repair a shard "
        f"with fewer than {best.depth} of its slices left. In the recipe, in place of its lines of these names:"
    )
    for line in lines:
        typer.echo(f"  {line}")
    typer.echo(_silence(best, demand, training_hours))


def _silence(best: Candidate, demand: Demand, training_hours: float | None) -> str:
    """A sentence about shards that wait for repair: their answers, how often, and for how long."""
    each = f"{best.cost_of_a_repair:.2g} full trainings"
    if training_hours is not None:
        hours = best.cost_of_a_repair * training_hours
        each += f" ({hours:.2g} hours)"
    expected = f"expected {best.repairs:.1f} times in {demand.months:g} months, each for the time of {each}"
    if not best.is_silent_below:
        return (
            f"Until it is repaired, such a shard answers with fewer slices than accepted, or with nothing: {expected}."
        )
    rest = "the others answer" if best.shards > 1 else "nor does the system, which has no other"
    return f"Until it is repaired, such a shard does not answer, {rest}; {expected}."


def _print_table(result: Plan, stage_megabytes: float | None) -> None:
    rows = [_row(candidate, stage_megabytes) for candidate in _shown(result)]
    print_table("systems by cost; none is both cheaper and repaired less", rows)
    typer.echo(
        "m shards, L slices, B sequences a shard. A shard with fewer slices than `below` is repaired. Costs are in\n"
        "full trainings. Share: of all records, what a shard's model has learnt from in the mean."
    )


def _shown(result: Plan) -> list[Candidate]:
    """Rows of the printed table: up to a dozen systems of the frontier around the budget, and the proposal."""
    proposed = [result.proposal] if result.proposal else []
    others = [found for found in result.frontier if found.shape not in [best.shape for best in proposed]]
    within = [candidate for candidate in others if candidate.cost <= result.demand.budget][-6:]
    beyond = [candidate for candidate in others if candidate.cost > result.demand.budget][:5]
    return sorted([*within, *beyond, *proposed], key=lambda candidate: candidate.cost)


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
