"""`s3t plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer import Option

from s3t.cli.declarations import SeedOption, StageSecondsOption, noted, numbers_in
from s3t.cli.display import print_table, working
from s3t.cli.options import JsonOption, seed_problems
from s3t.cli.outcome import failures_reported, show
from s3t.errors import InputError
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.planning.plan import Plan, System
    from s3t.recipe import Recipe


Number: TypeAlias = float | None
Count: TypeAlias = int | None


def command(
    deletions_per_month: Annotated[float, Option(metavar="N", help="Requests, each for a record or a person.")],
    months: Annotated[float, Option(metavar="N", help="Months to plan for.")] = 12,
    budget: Annotated[Number, Option(metavar="X", help="Most full trainings, with those of repairs.")] = None,
    hours_a_day: Annotated[Number, Option(metavar="H", help="Most hours of repairs a day, if times are known.")] = None,
    share: Annotated[
        Number, Option(metavar="S", help="Least share of all records that a shard has learnt from.")
    ] = None,
    mean_depth: Annotated[Number, Option(metavar="X", help="Service: slices after repairs, at least.")] = None,
    depth_after_deletion: Annotated[
        int,
        Option(metavar="K", help="Service: slices right after any one deletion, at least. 1: no shard is ever dead."),
    ] = 0,
    shards: Annotated[Count, Option(metavar="M", help="Shards. A service's are the recipe's if absent.")] = None,
    slices: Annotated[Count, Option(metavar="L", help="Slices a shard, alike.")] = None,
    stage_seconds: StageSecondsOption = None,
    training_hours: Annotated[Number, Option(metavar="H", help="Hours of one full training, if known.")] = None,
    recipe: Annotated[Path | None, Option(metavar="YAML", help="Recipe; its base model gives the layers.")] = None,
    layers: Annotated[Count, Option(metavar="N", help="Layers of the model; 12 if not known.")] = None,
    layers_per_slice: Annotated[
        Count, Option(metavar="K", help="Layers a slice; as many as have room if absent.")
    ] = None,
    max_shards: Annotated[int, Option(metavar="M", help="Shards at most, up to 100.")] = 20,
    max_slices: Annotated[int, Option(metavar="L", help="Slices at most, up to 32: no more than layers.")] = 12,
    max_sequences: Annotated[int, Option(metavar="B", help="Sequences a shard at most, up to 32.")] = 12,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Propose a system for the deletions that are expected, and its recipe lines.

    With fixed sequences: of the systems within the budget the one that falls below the acceptable depth least often.
    For a level of service: the cheapest chains that are repaired as needed.

        s3t plan --deletions-per-month 20 --months 12 --share 0.1 --budget 60 --layers 6

        s3t plan --deletions-per-month 20 --shards 5 --slices 6 --mean-depth 4 --depth-after-deletion 1
    """
    asked: dict[str, Any] = dict(locals())
    with failures_reported(asked.pop("as_json")):
        from s3t.planning.plan import Demand, plan

        problems = list(seed_problems(asked.pop("seed")))
        base = None if recipe is None else _of_recipe(recipe, asked)
        asked = {name: value for name, value in asked.items() if value is not None and name != "recipe"}
        with noted(problems):
            if stage_seconds is not None:
                asked["stage_seconds"] = tuple(numbers_in(stage_seconds, where="--stage-seconds"))
            demand = Demand(**asked)
        if problems:
            raise InputError("the command", problems)
        with working("simulating systems"):
            found = plan(demand, seed=seed)
        if base is not None:
            found = found.model_copy(update={"recipe": _merged(base, found.recipe)})
        known = "the model" if "layers" in asked else "assumed, for neither --layers nor --recipe is given"
        show(found.model_dump(mode="json"), as_json, lambda: _print(found, known, base))


def _of_recipe(path: Path, asked: dict[str, Any]) -> Recipe:
    """The recipe; it fills in what the options leave out of the model and, for a level of service, of the system."""
    from s3t.models.source import layer_count, model_folder
    from s3t.recipe import load_recipe

    recipe = load_recipe(path)
    if recipe.method.one_order:
        raise InputError(str(path), f"method: {recipe.method} has one order a shard; only s3t is planned for")
    if asked["layers"] is None:
        asked["layers"] = layer_count(model_folder(recipe.base_model, revision=recipe.revision))
    if asked["layers_per_slice"] is None and "layers_per_slice" in recipe.adapter.model_fields_set:
        asked["layers_per_slice"] = recipe.adapter.layers_per_slice
    if asked["mean_depth"] is not None or asked["depth_after_deletion"]:
        for name in ("shards", "slices"):
            asked[name] = getattr(recipe.partition, name) if asked[name] is None else asked[name]
    return recipe


def _merged(recipe: Recipe, fields: Any) -> dict[str, Any]:
    """Proposed fields; of the recipe's `adapter` and `deletion` what the plan does not decide is kept."""
    kept = recipe.model_dump(mode="json", by_alias=True, exclude_unset=True, include={"adapter", "deletion"})
    return {name: kept.get(name, {}) | value for name, value in fields.items()}


def _print(found: Plan, known: str, base: Recipe | None) -> None:
    from s3t.recipe.loading import to_yaml

    demand, best = found.demand, found.proposal
    typer.echo(
        f"{counted(found.deletions, 'deletion')} in {demand.months:g} months. Training anew after each would cost "
        f"{1 + found.deletions} full trainings."
    )
    each = "as many as there is room for" if demand.layers_per_slice is None else str(demand.layers_per_slice)
    typer.echo(f"{known}: {demand.layers} layers; layers a slice: {each}")
    if best is None:
        cost, hours = found.cheapest.cost, found.cheapest.hours_a_day
        each = f"{cost:.3g} full trainings" + ("" if hours is None else f", {hours:.3g} hours of repairs a day")
        typer.echo(f"no system stays within the limits; the cheapest costs {each}. Raise the limits, or ask for less")
    else:
        typer.echo(
            f"proposed: {_described(best)}. In the recipe, in place of its lines of these names, and of sequences:"
        )
        for name, value in found.recipe.items():
            typer.echo(f"  {name}: {to_yaml(value, default_flow_style=True, width=float('inf')).strip()}")
        if base is not None and (names := _left_out(base)):
            typer.echo(f"not planned for, and not in these lines: the recipe's {', '.join(names)}")
        typer.echo(_waiting(best, found))
    shown = [
        system
        for system in found.frontier
        if best is None or system.repair != best.repair or system.shards != best.shards
    ]
    rows = sorted([*shown, *([] if best is None else [best])], key=lambda system: system.cost)
    print_table("systems by cost", [_row(system) for system in rows])
    typer.echo(
        "m shards, L slices, B sequences a shard. Depth: slices that serve after repairs, at least; least: right\n"
        "after any one deletion; share: of all records, what a shard's model has learnt from in the mean. Costs are\n"
        "in full trainings, all records once through all blocks."
    )
    if found.bound is not None:
        typer.echo(f"repairs of any policy of the proposal's mean depth cost at least {found.bound:.4g}")


def _described(best: System) -> str:
    size = f"{counted(best.shards, 'shard')}, {counted(best.slices, 'slice')}"
    if best.budget is not None:
        return (
            f"{size}, {best.budget} sequences a shard; repair a shard with fewer than {best.depth} of its slices left"
        )
    spare = f"a spare of {best.repair['spare_depth']}" if best.repair["spares"] else "no spare"
    return f"{size}; repair as needed, with a main chain of {counted(best.depth, 'slice')} and {spare}"


def _waiting(best: System, found: Plan) -> str:
    """Answers of shards that wait for repair, how often, and for how long."""
    answers = f"answers with {best.depth_after_deletion} slices or more"
    if best.depth_after_deletion == 0:
        answers = "may not answer" + ("" if best.shards > 1 else ", nor does the system, which has no other")
    each = f"{best.cost_of_a_repair:.2g} full trainings"
    if best.hours_a_day is not None:
        each += f"; {best.hours_a_day:.3g} hours a day in all"
    often = f"expected {best.repairs:.1f} times in {found.demand.months:g} months"
    return f"Until it is repaired, a shard {answers}; {often}, each for the time of {each}."


def _left_out(recipe: Recipe) -> list[str]:
    """Given fields that the recipe lines leave out: a plan assumes that all slices are alike."""
    fields = {
        "partition.group": recipe.partition.group is not None,
        "partition.salt": recipe.partition.salt is not None,
        "sequences.prior": recipe.sequences.prior is not None,
    }
    return [name for name, is_given in fields.items() if is_given]


def _row(system: System) -> dict[str, Any]:
    return {
        "m": system.shards,
        "L": system.slices,
        "B": "" if system.budget is None else system.budget,
        "depth": system.depth,
        "least": system.depth_after_deletion,
        "training": f"{system.training:.1f}",
        "repairs": f"{system.repairs:.1f}",
        "their cost": f"{system.repair_cost:.4g}",
        "cost": f"{system.cost:.4g}",
        "share": f"{system.data_share:.1%}",
    }
