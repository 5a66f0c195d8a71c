"""Commands that choose what a run shall be, before it is trained: compare, plan, sequences, simulate, tune."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from s3t.cli.display import print_table
from s3t.cli.output import Output
from s3t.errors import DataError, InputError, S3TError, SettingError
from s3t.progress import ProgressBar
from s3t.wording import counted, duration, numbers, problem_lines

if TYPE_CHECKING:
    from s3t.orders import Setting
    from s3t.planning.plan import Plan, System
    from s3t.planning.simulation import Falls, Life, Simulation
    from s3t.recipe import Recipe

# What `s3t.orders` has as defaults; importing it here would slow down every --help.
SELECTOR, DELETIONS, HORIZON = "survival", 8, "1,2,4,8"
MOST_SHARDS = 100_000
OVER, MOST_OVER = 1000, 100_000
MOST_SECONDS = 10**9
MOST_BYTES = 2 * 10**9
SHOWN_ORDERS, SHOWN_SLICES = 20, 32
SHOWN_TRIALS = 20
"""Trials in the table of `tune`."""
COMPARED_WIDTH = 124
"""Columns of the table of `compare`, at least."""
MOST_TRIALS, MOST_STEPS = 100_000, 5_000_000_000
"""Simulated histories of `sequences`, and how many times the prefix of an order is looked at in them all."""

Count = int | None
Number = float | None
SlicesOption = Annotated[int, Option(metavar="L", help="Slices in a shard.")]
PriorOption = Annotated[
    str | None,
    Option(
        metavar="P0,P1,...",
        help="L probabilities that a deletion in a shard falls on each slice; without, all slices are alike.",
    ),
]
SelectorOption = Annotated[str, Option(metavar="NAME", help="Selector of the orders; names in docs/recipe.md.")]
DeletionsOption = Annotated[int, Option(metavar="T", help="The t of the paper's score, which bms maximises.")]
SeedOption = Annotated[int, Option(metavar="S", help="Seed of random draws; the same seed, the same result.")]
PlotOption = Annotated[
    Path | None, Option(metavar="FILE", help="Draw it, into a .png, .svg or .pdf file. Needs the extra plots.")
]
StageSecondsOption = Annotated[
    str | None, Option(metavar="S1,S2,...", help="Measured seconds of a stage of each depth, 1 to L.")
]


def compare(
    recipe: Annotated[Path, Argument(metavar="RECIPE", help="Recipe; systems differ in method, shards and slices.")],
    data: Annotated[Path, Option(metavar="FILE", help="Records, as for s3t init.")],
    evaluate: Annotated[
        Path | None, Option(metavar="FILE", help="Records to score on; without, a fifth of the sample is held out.")
    ] = None,
    records: Annotated[int, Option(metavar="N", help="Size of the sample, by a hash of the ids.")] = 2000,
    minutes: Annotated[float, Option(metavar="M", help="Time limit; systems that do not fit are left out.")] = 30,
    deletions_per_month: Annotated[float, Option(metavar="N", help="Deletions whose repairs count as costs.")] = 10,
    seed: Annotated[int, Option(metavar="S", min=0, max=2**32 - 1, help="Seed of the order of deletions.")] = 0,
    plot: PlotOption = None,
) -> Iterator[Output]:
    """Compare methods, shards and slices on a sample of your records: what each scores, and what it costs.

    Each system is trained, loses 5 and 20 % of its records in a random order, and is repaired. The runs lie in a folder
    beside the data, which is removed in the end. No deletion undoes a choice by these records: where that matters, give
    public ones like yours.

    Example:  s3t compare recipe.yaml --data records.csv --plot systems.png
    """
    asked: dict[str, Any] = dict(locals())
    del asked["plot"]
    from rich.filesize import decimal

    from s3t.comparison import compare as compared
    from s3t.drawing import check_picture, draw_comparison

    if plot is not None:
        check_picture(plot)
    try:
        found = compared(**asked, progress=ProgressBar())
    except KeyboardInterrupt:
        raise S3TError("stopped; nothing is kept") from None
    if plot is not None:
        draw_comparison(found, plot)
    yield Output(found)
    rows = []
    for system in found.systems:
        whole, *points = system.points
        row = {"system": system.name, "score": _score(whole.after)}
        row |= {f"{point.deleted} deleted": f"{_score(point.before)} / {_score(point.after)}" for point in points}
        row |= {
            "train": duration(system.train_seconds),
            "repair": duration(points[-1].repair_seconds),
            "hours/year": f"{system.hours_a_year:.2g}",
            "delete": f"{system.delete_milliseconds:.0f} ms",
            "answer": f"{system.answer_milliseconds:.2g} ms",
            "stored": decimal(system.stored_bytes),
        }
        rows.append(row)
    scored_on = f"{found.scored_on} ({'held out' if evaluate is None else evaluate})"
    title = f"trained on {found.trained_on} of {found.records} records, scored on {scored_on}"
    print_table(title, rows, width=COMPARED_WIDTH)
    guess = "" if found.guess is None else f" A guess scores {found.guess:.3f}."
    typer.echo(
        f"Scores are the task's own, errors negative; before / after repair; -: nothing answers.{guess}\n"
        "Repair: the last one. Hours: to train on all records, and in a year to repair after each deletion by itself."
    )
    for name, problem in found.left_out.items():
        typer.echo(f"left out: {name}: {problem}")
    typer.echo("In the recipe, in place of its method, partition, sequences, and of what else is here:")
    for system in found.systems:
        typer.echo(f"  {system.name}")
        _print_lines(system.recipe, indent="    ")
    typer.echo(found.advice)
    if plot is not None:
        typer.echo(f"drawn: {plot}")


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:.3f}"


def _print_lines(recipe: Mapping[str, Any], *, indent: str = "  ") -> None:
    from s3t.recipe.loading import to_yaml

    for name, value in recipe.items():
        text = to_yaml({name: value}, default_flow_style=True, width=float("inf")).strip()
        typer.echo(f"{indent}{text[1:-1]}")


def plan(
    deletions_per_month: Annotated[float, Option(metavar="N", help="Requests, each for a record or a person.")],
    months: Annotated[float, Option(metavar="N", help="Months to plan for.")] = 12,
    budget: Annotated[Number, Option(metavar="X", help="Most full trainings, with those of repairs.")] = None,
    hours_a_day: Annotated[Number, Option(metavar="H", help="Most hours of repairs a day, if times are known.")] = None,
    share: Annotated[
        Number, Option(metavar="S", help="Least share of all records that a shard has learnt from.")
    ] = None,
    mean_depth: Annotated[Number, Option(metavar="X", help="Service: slices after repairs, at least.")] = None,
    depth_after_deletion: Annotated[
        int, Option(metavar="K", help="Service: slices right after any deletion, at least. 1: none silences a shard.")
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
) -> Iterator[Output]:
    """Propose a system for the deletions that are expected, and its recipe lines.

    With fixed sequences: of the systems within the budget the one that falls below the acceptable depth least often.
    For a level of service: the cheapest chains that are repaired as needed.

        s3t plan --deletions-per-month 20 --months 12 --share 0.1 --budget 60 --layers 6

        s3t plan --deletions-per-month 20 --shards 5 --slices 6 --mean-depth 4 --depth-after-deletion 1
    """
    asked: dict[str, Any] = dict(locals())
    from s3t.planning.plan import Demand
    from s3t.planning.plan import plan as planned

    problems: list[str] = []
    base = None if recipe is None else _of_recipe(recipe, asked)
    asked = {name: value for name, value in asked.items() if value is not None and name != "recipe"}
    with noted(problems):
        if stage_seconds is not None:
            asked["stage_seconds"] = tuple(numbers_in(stage_seconds, where="--stage-seconds"))
        demand = Demand(**asked)
    if problems:
        raise InputError("the command", problems)
    with working("simulating systems"):
        found = planned(demand)
    if base is not None:
        # Of the recipe's `adapter` and `deletion`, what the plan does not decide is kept.
        kept = base.model_dump(mode="json", by_alias=True, exclude_unset=True, include={"adapter", "deletion"})
        merged = {name: kept.get(name, {}) | fields for name, fields in found.recipe.items()}
        found = found.model_copy(update={"recipe": merged})
    known = "the model" if "layers" in asked else "assumed, for neither --layers nor --recipe is given"
    yield Output(found.model_dump(mode="json"))
    _print_plan(found, known, base)


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


def _print_plan(found: Plan, known: str, base: Recipe | None) -> None:
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
        if not demand.allows(found.cheapest):
            typer.echo(
                f"no system stays within the limits; the cheapest costs {each}. Raise the limits, or ask for less"
            )
        else:
            typer.echo(
                f"one process that repairs does not keep pace with these deletions, so shards would not answer; the "
                f"cheapest system costs {each}. Take more shards, repair with more processes, or choose method: ridge, "
                "whose repair is a pass over a slice"
            )
    else:
        typer.echo(
            f"proposed: {_described(best)}. In the recipe, in place of its lines of these names, and of sequences:"
        )
        _print_lines(found.recipe)
        for part, name in (("partition", "group"), ("partition", "salt"), ("sequences", "prior")):
            if base is not None and getattr(getattr(base, part), name) is not None:  # all slices count as alike
                typer.echo(f"not planned for, and not in these lines: the recipe's {part}.{name}")
        typer.echo(_waiting(best, found))
    shown = [
        system
        for system in found.frontier
        if best is None or system.repair != best.repair or system.shards != best.shards
    ]
    rows = sorted([*shown, *([] if best is None else [best])], key=lambda system: system.cost)
    cells = [{name: text.format(system).replace("None", "") for name, text in _COLUMNS.items()} for system in rows]
    print_table("systems by cost", cells)
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
    count, depth = best.repair["spares"], best.repair["spare_depth"]
    spare = f"{'a spare' if count == 1 else f'{count} spares'} of {depth}" if count else "no spare"
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
    told = f"Until it is repaired, a shard {answers}; {often}, each for the time of {each}."
    if best.share_dead is not None:
        told += f" Deletions that come before it is repaired silence it for {best.share_dead:.2%} of the time."
    elif (days := (best.hours_a_day or 0) / 24) > 1:
        told += (
            " That is more than a day has: one process does not keep pace, and shards stop answering. Repair with "
            f"{math.ceil(days)} processes at least, or choose method: ridge, whose repair is a pass over a slice."
        )
    return told


_COLUMNS = {
    "m": "{0.shards}",
    "L": "{0.slices}",
    "B": "{0.budget}",
    "depth": "{0.depth}",
    "least": "{0.depth_after_deletion}",
    "training": "{0.training:.1f}",
    "repairs": "{0.repairs:.1f}",
    "their cost": "{0.repair_cost:.4g}",
    "cost": "{0.cost:.4g}",
    "share": "{0.data_share:.1%}",
}
"""Columns of the table of systems, and the format of each."""


def sequences(
    slices: SlicesOption,
    budget: Annotated[int, Option(metavar="B", help="Orders a shard, from 1 to L!.")],
    prior: PriorOption = None,
    selector: SelectorOption = SELECTOR,
    deletions: DeletionsOption = DELETIONS,
    horizon: Annotated[str, Option(metavar="R1,...", help="survival: deletions that count.")] = HORIZON,
    values: Annotated[str | None, Option(metavar="F1,...", help="survival: worth of 1 to L live slices.")] = None,
    seed: SeedOption = 0,
    plot: PlotOption = None,
) -> Iterator[Output]:
    """Choose the orders of a shard and say what they are worth, before anything is trained.

    For example, 8 orders of 32 slices, and a picture of them:

        s3t sequences --slices 32 --budget 8 --plot orders.png

    Slices 0 and 1 belong to people who often ask for deletion:

        s3t sequences --slices 4 --budget 4 --prior 0.4,0.4,0.1,0.1

    Shown are the orders, their mean Hamming distance over all pairs, and the paper's score: the sum over i of i (1 - p1
    - ... - pi)^T, summed over the orders. Last comes the expected depth of the deepest live prefix after 1, 2, 4, 8
    and 16 deletions in the shard. Needs no data, model or torch.
    """
    import numpy as np

    from s3t.drawing import draw_orders
    from s3t.orders import mean_distance, scores, select
    from s3t.planning.bounds import full_budget_depth
    from s3t.planning.forecast import AFTER
    from s3t.planning.simulation import retention

    sizes: Any = {"slices": slices, "budget": budget, "deletions": deletions, "seed": seed}
    setting = _setting([], selector, plot, **sizes, horizon=horizon, prior=prior, values=values)
    known = None if setting.prior is None else setting.probabilities
    what = f"{counted(budget, 'order')} of {counted(slices, 'slice')} ({selector})"
    with working(None if selector == SELECTOR else f"choosing {what}"):  # survival has a bar
        orders = select(selector, setting, progress=ProgressBar())
    with working("looking how deep they stay"):
        trials = min(MOST_TRIALS, MOST_STEPS // (budget * slices))
        at_least = retention(orders, AFTER, prior=known, trials=trials, seed=seed)[:, 1:]
    depths = at_least.sum(axis=1)
    # E[depth^2] is the sum of (2k - 1) P[depth >= k].
    variances = np.maximum(at_least @ (2 * np.arange(slices) + 1) - depths**2, 0)
    if plot is not None:
        draw_orders(orders, plot, title=what, prior=known)
    each = scores(orders, setting.probabilities, deletions)
    document: dict[str, Any] = {
        "selector": selector,
        "sequences": [list(order) for order in orders],
        "mean_distance": float(f"{mean_distance(orders):.9g}"),
        "score": float(f"{each.sum():.9g}"),
        "expected_depth": {str(number): float(f"{depth:.9g}") for number, depth in zip(AFTER, depths, strict=True)},
    }
    yield Output(document)
    more = " ..." if slices > SHOWN_SLICES else ""
    rows = [
        {"number": number, "order": numbers(order[:SHOWN_SLICES]) + more, "score": float(score)}
        for number, (order, score) in enumerate(zip(orders[:SHOWN_ORDERS], each, strict=False))
    ]
    print_table(what, rows)
    if len(orders) > SHOWN_ORDERS:
        typer.echo(f"and {len(orders) - SHOWN_ORDERS:,} more (--json gives all)")
    typer.echo(f"mean Hamming distance of two orders: {document['mean_distance']:.4g} of {slices}")
    typer.echo(f"the paper's score, summed over all: {document['score']:.6g} (t = {deletions})")
    limits = full_budget_depth(AFTER, setting.probabilities)
    rows = [
        {
            "deletions": number,
            "expected depth": f"{depth:.4f} ± {1.96 * (variance / trials) ** 0.5:.4f}",
            "all L! orders": float(limit),
            "share": f"{min(depth / limit, 1):.1%}" if limit > 0 else "",  # simulated: may be above by chance
        }
        for number, depth, variance, limit in zip(AFTER, depths, variances, limits, strict=True)
    ]
    print_table(f"depth of the shard, of {slices}", rows)
    typer.echo(f"expected depths: from {trials:,} simulated histories, ± the half of a 95 % interval")
    typer.echo("no budget keeps more than all L! orders do")
    if plot is not None:
        typer.echo(f"drawn: {plot}")


def simulate(
    shards: Annotated[int, Option(metavar="M", help="Shards, from 1.")],
    slices: SlicesOption,
    budget: Annotated[Count, Option(metavar="B", help="Orders a shard, 1 to L!. This or --depth is required.")] = None,
    trials: Annotated[int, Option(metavar="N", help="Systems to simulate.")] = 10_000,
    prior: PriorOption = None,
    selector: SelectorOption = SELECTOR,
    deletions: DeletionsOption = DELETIONS,
    vary_by_shard: Annotated[bool, Option("--vary-by-shard", help="Give shards different orders, as good.")] = False,
    repair_below: Annotated[Count, Option(metavar="K", help="Repair shards with fewer than K live slices.")] = None,
    depth: Annotated[Count, Option(metavar="D", help="Repair as needed: no orders, a main chain of D slices.")] = None,
    spares: Annotated[int, Option(metavar="S", help="With --depth: other chains, each with its own first slice.")] = 1,
    spare_depth: Annotated[int, Option(metavar="K", help="With --depth: slices of a spare.")] = 1,
    stage_seconds: StageSecondsOption = None,
    over: Annotated[Count, Option(metavar="R", help=f"With repairs: deletions; {OVER} if absent.")] = None,
    seed: SeedOption = 0,
    plot: PlotOption = None,
) -> Iterator[Output]:
    """Simulate whole systems of M shards: how many deletions they survive, and what repairs would cost.

    The paper's setting of 5 shards, 32 slices and 8 orders; dead shards repaired; repaired as needed, with no orders:

        s3t simulate --shards 5 --slices 32 --budget 8 --plot depth.png

        s3t simulate --shards 5 --slices 32 --budget 8 --repair-below 1

        s3t simulate --shards 5 --slices 32 --depth 24

    The deletion rate is the number of deletions until every shard is dead; first failure, until the first one is.
    Orders are those of s3t sequences. Shards are equally likely to be hit.
    """
    from s3t.core import AsNeeded, FixedOrders, StageCosts
    from s3t.orders import orders_of_shards
    from s3t.planning.simulation import Deletions, simulate_repairs, summary
    from s3t.planning.simulation import simulate as simulated

    repaired = (repair_below, depth) != (None, None)
    of_orders = (repair_below, vary_by_shard, selector) != (None, False, SELECTOR)
    checks = [
        ((budget is None) == (depth is None), "give one of --budget, orders a shard, and --depth, of a main chain"),
        (
            depth is not None and of_orders,
            "--repair-below, --vary-by-shard and --selector are of orders; leave out --depth",
        ),
        (
            depth is None and (spares, spare_depth) != (1, 1),
            "--spares and --spare-depth are of chains; give --depth, too",
        ),
        *(
            (not repaired and value is not None, f"{name} is of repaired systems; give --repair-below or --depth, too")
            for name, value in (("--over", over), ("--stage-seconds", stage_seconds))
        ),
        (over is not None and not 1 <= over <= MOST_OVER, f"--over {over}: give 1 to {MOST_OVER:,} deletions"),
        (trials < 1, f"{trials} trials: give at least 1"),
        (not 0 <= (repair_below or 0) <= max(slices, 0), f"--repair-below {repair_below}: give 0 to {slices} slices"),
        (not 1 <= shards <= MOST_SHARDS, f"{shards} shards: a system has 1 to {MOST_SHARDS:,}"),
    ]
    problems = [problem for is_wrong, problem in checks if is_wrong]
    chains, costs = None, None
    if depth is not None:
        with noted(problems):
            chains = AsNeeded(depth=depth, spares=spares, spare_depth=spare_depth)
            problems += [f"the policy of repair: {problem}" for problem in chains.misfits(slices)]
    if stage_seconds is not None:
        with noted(problems):
            costs = StageCosts(tuple(numbers_in(stage_seconds, where="--stage-seconds")))
            if costs.slices != slices:
                problems.append(f"--stage-seconds has {costs.slices} numbers for {slices} slices; give one a depth")
            if max(costs.by_depth) > MOST_SECONDS:
                problems.append(f"--stage-seconds {max(costs.by_depth):g}: give at most {MOST_SECONDS:,} seconds")
    count = 1 + spares if budget is None else budget
    if min(trials, shards, slices, count) >= 1:
        problems += _size_problems(trials, shards, slices, count, repaired, vary_by_shard)
    sizes: Any = {"slices": slices, "budget": 1 if budget is None else budget, "deletions": deletions, "seed": seed}
    setting = _setting(problems, selector, plot, **sizes, prior=prior)
    fall = Deletions.from_prior(setting.probabilities, shards=shards)
    if chains is None:
        with working(None if selector == SELECTOR else f"choosing {counted(count, 'order')} for each shard"):
            orders = orders_of_shards(selector, [setting] * shards, vary=vary_by_shard, progress=ProgressBar())
        shape = f"{counted(count, 'order')} each ({selector})"
    else:
        orders = (chains.planned((), slices=slices, chances=setting.probabilities),) * shards
        spare = f"{counted(chains.spares, 'spare')} of {chains.spare_depth}" if chains.spares else "no spare"
        shape = f"main chain of {chains.depth}, {spare}"
    with working(f"simulating {counted(trials, 'system')}"):
        falls, life = simulated(orders, fall, trials=trials, seed=seed), None
        if repaired:
            policy, below = (FixedOrders(orders), repair_below or 0) if chains is None else (chains, None)
            in_unit, over = costs or StageCosts.declared(slices).in_trainings(shards), over or OVER
            life = simulate_repairs(policy, fall, costs=in_unit, over=over, below=below, trials=trials, seed=seed)
    unit = "full trainings" if costs is None else "seconds"
    found = summary(falls, life, deletions=fall, tops=min(count, slices), unit=unit)
    title = f"{counted(shards, 'shard')} of {counted(slices, 'slice')}, {shape}"
    if plot is not None:
        _draw(falls, life, title, plot)
    yield Output(found.model_dump(mode="json"))
    _print_simulation(found, title, trials)
    if plot is not None:
        typer.echo(f"drawn: {plot}")


def _size_problems(trials: int, shards: int, slices: int, chains: int, repaired: bool, vary: bool) -> list[str]:
    """A sentence if the arrays of a simulation take too much memory."""
    from s3t.planning.simulation import chunk

    cells = shards * slices
    needed = 9 * trials * cells + 64 * min(trials, chunk(cells)) * cells + 8 * shards * chains * slices * vary
    if repaired:
        needed += 16 * trials * chains * (shards + 4 * slices) + 10 * chains * cells
    if needed <= MOST_BYTES:
        return []
    return [
        f"{trials:,} systems of that size take about {needed / 1e9:,.1f} GB of memory, more than "
        f"{MOST_BYTES / 1e9:.0f}; lower --trials, or the sizes"
    ]


def _draw(falls: Falls, life: Life | None, title: str, path: Path) -> None:
    import numpy as np

    from s3t.drawing import draw_depths

    if life is None:
        end = max(int(np.quantile(falls.settled, 0.99)), 2)
        numbers = np.unique(np.geomspace(1, end, 400).astype(np.int64)).tolist()
        draw_depths(numbers, falls.retained(numbers), path, title=title)
        return
    counts = life.depth_counts[:, ::-1].cumsum(axis=1)[:, ::-1]
    numbers = list(range(len(counts)))
    unrepaired = falls.retained(numbers)[:, 1:].sum(axis=1)
    draw_depths(numbers, counts / counts[:, :1], path, title=title, unrepaired=unrepaired)


def _print_simulation(found: Simulation, title: str, trials: int) -> None:
    from s3t.planning.simulation import NEVER, spread

    rows = []
    for name in ("deletion_rate", "first_failure"):
        times = spread(getattr(found, name))
        row = {"deletions until": name.replace("_", " "), "simulated": _number(times.mean)}
        if times.std is not None:
            row["simulated"] += f" ± {1.96 * times.std / trials**0.5:.2g}"
        row["std"] = "" if times.std is None else _number(times.std)
        row |= {f"{float(share):.0%}": _number(value) for share, value in found.quantiles[name].items()}
        rows.append(row)
    print_table(f"{title}: {counted(trials, 'system')}", rows)
    typer.echo("deletion rate: until every shard is dead; first failure: until one is; ± is the 95 % interval")
    if found.bound is not None:
        typer.echo(f"the paper's Lemma 1, for uniform deletions: {found.bound:,.1f}")
    if (found.deletion_rate == NEVER).any():
        typer.echo("never, or beyond all counting: some shard has a top slice that deletions hardly hit")
    depths = [{"deletions": f"{number:,}", "mean depth": depth} for number, depth in found.depth.items()]
    print_table("depth of a shard, without repair", depths)
    if (repaired := found.repaired) is not None:
        names = {
            "repairs": "repairs of a shard",
            "cost": f"their cost, in {found.unit}",
            "mean_depth": "mean depth after each deletion and its repair",
            "hit_depth": "depth of the hit shard before its repair",
        }
        over = f"over {repaired.over:,} deletions"
        print_table(
            "with repairs", [{over: text, **vars(spread(getattr(repaired, name)))} for name, text in names.items()]
        )
        each = repaired.cost.mean() / repaired.over
        typer.echo(f"the first training costs {repaired.training_cost:.4g} {found.unit}; a deletion {each:.4g}")
        typer.echo(f"deletions that leave a shard dead: {repaired.dead_share:.2%}")


def _number(value: float | None) -> str:
    if value is None:
        return "never"
    if value >= 1e9:
        return f"{value:.3g}"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def tune(
    recipe: Annotated[Path, Argument(metavar="RECIPE", help="The recipe whose other fields stay.")],
    space: Annotated[
        Path, Option(metavar="YAML", help="Fields with a list of values, {between: [LOW, HIGH]} or {log: [LOW, HIGH]}.")
    ],
    data: Annotated[Path, Option(metavar="FILE", help="Public records to train on.")],
    validation: Annotated[Path, Option(metavar="FILE", help="Public records to measure on.")],
    study: Annotated[Path, Option(metavar="FOLDER", help="Folder of noted trials; a stopped study goes on.")],
    out: Annotated[Path | None, Option(metavar="YAML", help="Write the best recipe there, without a salt.")] = None,
    private: Annotated[
        list[Path] | None,
        Option(
            metavar="FILE|RUN",
            help="Private records, compared by content, or a run, asked by id for all it has held: refuse the public "
            "files if they hold one. May be repeated.",
        ),
    ] = None,
    declared_public: Annotated[
        bool, Option("--all-public", help="Declare that no private record is in the files; nothing is compared.")
    ] = False,
    trials: Annotated[
        int, Option(metavar="N", min=1, max=100_000, help="Recipes to try, including those already in the study.")
    ] = 20,
    sampler: Annotated[Literal["tpe", "grid"], Option(help="Sampler: tpe, or grid for every combination.")] = "tpe",
    seed: Annotated[int, Option(metavar="S", min=0, max=2**32 - 1, help="Seed of the sampler.")] = 0,
) -> Iterator[Output]:
    """Choose a recipe's numbers on public data, with Optuna (the extra tune).

    Each trial makes a run of the public records, trains it and measures the ensemble. Private records are refused: a
    recipe chosen with them would reveal something about them, even after their deletion.

    Example:  s3t tune recipe.yaml --space space.yaml --data public.csv --validation held-out.csv --private records.csv
    --study tuning --out tuned.yaml
    """
    from s3t.store.disk import storage_errors
    from s3t.tuning import read_space
    from s3t.tuning import tune as tuned

    tuning = tuned(
        recipe,
        read_space(space),
        data=data,
        validation=validation,
        folder=study,
        private=private or (),
        declared_public=declared_public,
        trials=trials,
        sampler=sampler,
        seed=seed,
        progress=ProgressBar(),
    )
    if out is not None:
        with storage_errors(f"writing {out}"):
            out.write_text(tuning.to_yaml(), encoding="utf-8")
    yield Output(tuning)
    rows = [
        {
            "trial": trial.number,
            "score": "-" if trial.score is None else f"{trial.score:.4f}",
            "seconds": f"{trial.seconds:.1f}",
            **{name: f"{value:.3g}" if isinstance(value, float) else value for name, value in trial.values.items()},
        }
        for trial in sorted(tuning.trials, key=lambda trial: (trial.score is None, -(trial.score or 0.0)))
    ]
    print_table("trials, the best first", rows[:SHOWN_TRIALS])
    for problem in sorted({trial.problem for trial in tuning.trials if trial.problem}):
        typer.echo(f"not trained: {problem}")
    typer.echo(f"best: trial {tuning.best.number}, {tuning.best.score:.4f}{'' if out is None else f', in {out}'}")


def _setting(problems: list[str], selector: str, plot: Path | None, **asked: Any) -> Setting:
    """The setting of every shard's orders; texts are rows of numbers. Raises an InputError of all problems."""
    from s3t.drawing import check_picture
    from s3t.orders import SELECTORS, Setting, no_selector, selector_problem

    given: dict[str, Any] = {}
    if selector not in SELECTORS:
        problems.append(no_selector(selector))
    for name, value in asked.items():
        with noted(problems):
            if isinstance(value, str):
                row = numbers_in(value, where=f"--{name}")
                value = tuple(int(each) if each.is_integer() else each for each in row)
            given[name] = value
    setting = None
    with noted(problems):
        setting = Setting(**given)
        problems += filter(None, [selector_problem(selector, setting)])
    if plot is not None:
        with noted(problems):
            check_picture(plot)
    if problems or setting is None:
        raise InputError("the command", dict.fromkeys(problems))
    return setting


def numbers_in(text: str, *, where: str) -> list[float]:
    """Numbers separated by commas, blanks or line ends.

    >>> numbers_in("0.5, 0.25 0.25", where="--prior")
    [0.5, 0.25, 0.25]
    """
    parts = re.split(r"\s*,\s*|\s+", text.strip().removesuffix(",").rstrip())
    if parts == [""]:
        raise DataError(where, "holds no numbers; separate them by commas")
    numbers = []
    for place, part in enumerate(parts, start=1):
        try:
            numbers.append(float(part))
        except ValueError:
            wrong = "is missing" if not part else f"is {part[:40]!r}, not a number"
            raise DataError(where, f"number {place} {wrong}") from None
    return numbers


@contextmanager
def noted(problems: list[str]) -> Iterator[None]:
    """Append the problems of an InputError or of pydantic's error to a list, instead of raising it."""
    from pydantic import ValidationError

    try:
        yield
    except SettingError as error:
        problems += error.problems
    except InputError as error:
        problems += [f"{error.where}: {problem}" for problem in error.problems]
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            option = f"--{detail['loc'][0]} {detail['input']}".replace("_", "-") if detail["loc"] else ""
            problems += problem_lines(option, detail["msg"].replace("Input should be", "give a number"))


@contextmanager
def working(what: str | None) -> Iterator[None]:
    """Show a status line on stderr while the work lasts, on a terminal, if there is one to show."""
    from rich.console import Console

    with nullcontext() if what is None else Console(stderr=True).status(what):
        yield
