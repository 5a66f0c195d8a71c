"""`s3t simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from typer import Option

from s3t.cli import declarations
from s3t.cli.declarations import noted, numbers_in
from s3t.cli.display import choosing, print_table, working
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show
from s3t.progress import ProgressBar
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.core import AsNeeded
    from s3t.planning.simulation import Falls, Life, Measured, Simulation

MOST_BYTES = 2 * 10**9
OVER, MOST_OVER = 1000, 100_000
MOST_SECONDS = 10**9
OF_ORDERS = "--repair-below, --repair-every, --vary-by-shard and --selector"
NO_REPAIRS = "is of systems that are repaired; give --repair-below, --repair-every or --depth, too"


Count: TypeAlias = int | None


def command(
    shards: Annotated[int, Option(metavar="M", help="Shards, from 1.", show_default=False)],
    slices: declarations.SlicesOption,
    budget: Annotated[Count, Option(metavar="B", help="Orders a shard, 1 to L!. This or --depth is required.")] = None,
    trials: Annotated[int, Option(metavar="N", help="Systems to simulate.")] = 10_000,
    prior: declarations.PriorOption = None,
    selector: declarations.SelectorOption = declarations.SELECTOR,
    deletions: declarations.DeletionsOption = declarations.DELETIONS,
    vary_by_shard: Annotated[bool, Option("--vary-by-shard", help="Give shards different orders, as good.")] = False,
    repair_below: Annotated[Count, Option(metavar="K", help="Repair shards with fewer than K live slices.")] = None,
    repair_every: Annotated[
        Count, Option(metavar="N", help="Repair all after every N deletions; alone, only then.")
    ] = None,
    depth: Annotated[Count, Option(metavar="D", help="Repair as needed: no orders, a main chain of D slices.")] = None,
    spares: Annotated[int, Option(metavar="S", help="With --depth: other chains, each with its own first slice.")] = 1,
    spare_depth: Annotated[int, Option(metavar="K", help="With --depth: slices of a spare.")] = 1,
    stage_seconds: declarations.StageSecondsOption = None,
    over: Annotated[Count, Option(metavar="R", help=f"With repairs: deletions; {OVER} if absent.")] = None,
    seed: declarations.SeedOption = 0,
    plot: declarations.PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate whole systems of M shards: how many deletions they survive, and what repairs would cost.

    The paper's setting of 5 shards, 32 slices and 8 orders; dead shards repaired; repaired as needed, with no orders:

        s3t simulate --shards 5 --slices 32 --budget 8 --plot depth.png

        s3t simulate --shards 5 --slices 32 --budget 8 --repair-below 1

        s3t simulate --shards 5 --slices 32 --depth 24

    The deletion rate is the number of deletions until every shard is dead; first failure, until the first one is.
    Orders are those of s3t sequences. Shards are equally likely to be hit.
    """
    with failures_reported(as_json):
        from s3t.core import AsNeeded, StageCosts
        from s3t.orders import orders_of_shards
        from s3t.planning.simulation import Deletions, FixedOrders, simulate, simulate_repairs, summary

        repaired = (repair_below, repair_every, depth) != (None, None, None)
        others = (repair_below, repair_every, vary_by_shard, selector)
        of_orders, of_chains = others != (None, None, False, declarations.SELECTOR), (spares, spare_depth) != (1, 1)
        known = [
            ((budget is None) == (depth is None), "give one of --budget, orders a shard, and --depth, of a main chain"),
            (depth is not None and of_orders, f"{OF_ORDERS} are of orders; leave out --depth"),
            (depth is None and of_chains, "--spares and --spare-depth are of chains; give --depth, too"),
            (not repaired and over is not None, f"--over {NO_REPAIRS}"),
            (not repaired and stage_seconds is not None, f"--stage-seconds {NO_REPAIRS}"),
            (over is not None and not 1 <= over <= MOST_OVER, f"--over {over}: give 1 to {MOST_OVER:,} deletions"),
            (trials < 1, f"{trials} trials: give at least 1"),
            (
                not 0 <= (repair_below or 0) <= max(slices, 0),
                f"--repair-below {repair_below}: give 0 to {slices} slices",
            ),
            (repair_every is not None and repair_every < 1, f"--repair-every {repair_every}: give at least 1 deletion"),
        ]
        problems = [problem for is_wrong, problem in known if is_wrong]
        chains, costs = None, None
        if depth is not None:
            with noted(problems):
                chains = AsNeeded(depth=depth, spares=spares, spare_depth=spare_depth)
                chains.check(slices)
        with noted(problems):
            if stage_seconds is not None:
                costs = StageCosts(tuple(numbers_in(stage_seconds, where="--stage-seconds")))
        if costs is not None and costs.slices != slices:
            problems.append(f"--stage-seconds has {costs.slices} numbers for {slices} slices; give one a depth")
        if costs is not None and max(costs.by_depth) > MOST_SECONDS:
            problems.append(f"--stage-seconds {max(costs.by_depth):g}: give at most {MOST_SECONDS:,} seconds")
        count = 1 + spares if budget is None else budget
        if min(trials, shards, slices, count) >= 1:
            problems += _size_problems(trials, shards, slices, count, repaired, vary_by_shard)
        setting = declarations.setting_of(
            problems,
            shards=shards,
            slices=slices,
            budget=1 if budget is None else budget,
            prior=prior,
            selector=selector,
            deletions=deletions,
            seed=seed,
            plot=plot,
        )
        fall = Deletions.from_prior(setting.probabilities, shards=shards)
        policy: AsNeeded | FixedOrders
        if chains is None:
            with choosing(f"{counted(budget or 1, 'order')} for each shard", selector):
                orders = orders_of_shards(selector, [setting] * shards, vary=vary_by_shard, progress=ProgressBar())
            policy = FixedOrders(orders=orders, below=repair_below or 0, every=repair_every)
        else:
            orders = (chains.planned((), slices=slices, chances=setting.probabilities),) * shards
            policy = chains
        with working(f"simulating {counted(trials, 'system')}"):
            falls, life = simulate(orders, fall, trials=trials, seed=seed), None
            if repaired:
                in_unit = costs or StageCosts.declared(slices).in_trainings(shards)
                life = simulate_repairs(policy, fall, costs=in_unit, over=over or OVER, trials=trials, seed=seed)
        unit = "full trainings" if costs is None else "seconds"
        found = summary(falls, life, deletions=fall, tops=min(count, slices), unit=unit)
        title = f"{counted(shards, 'shard')} of {counted(slices, 'slice')}, " + _shape(chains, count, selector)
        if plot is not None:
            with working(f"drawing {plot}"):
                _draw(falls, life, title, plot)
        show(found.model_dump(mode="json"), as_json, lambda: _print(found, title, trials, plot))


def _shape(chains: AsNeeded | None, budget: int, selector: str) -> str:
    if chains is None:
        return f"{counted(budget, 'order')} each ({selector})"
    spares = f"{counted(chains.spares, 'spare')} of {chains.spare_depth}" if chains.spares else "no spare"
    return f"main chain of {chains.depth}, {spares}"


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


def _print(found: Simulation, title: str, trials: int, plot: Path | None) -> None:
    rows = []
    for name in ("deletion_rate", "first_failure"):
        measured: Measured = getattr(found, name)
        row = {"deletions until": name.replace("_", " "), "simulated": _number(measured.mean)}
        if measured.std is not None:
            row["simulated"] += f" ± {1.96 * measured.std / trials**0.5:.2g}"
        row["std"] = "" if measured.std is None else _number(measured.std)
        row |= {f"{float(share):.0%}": _number(value) for share, value in found.quantiles[name].items()}
        rows.append(row)
    print_table(f"{title}: {counted(trials, 'system')}", rows)
    typer.echo("deletion rate: until every shard is dead; first failure: until one is; ± is the 95 % interval")
    if found.bound is not None:
        typer.echo(f"the paper's Lemma 1, for uniform deletions: {found.bound:,.1f}")
    if found.deletion_rate.mean is None:
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
        print_table("with repairs", [{over: text, **vars(getattr(repaired, name))} for name, text in names.items()])
        each = 0.0 if repaired.cost.mean is None else repaired.cost.mean / repaired.over
        typer.echo(f"the first training costs {repaired.training_cost:.4g} {found.unit}; a deletion {each:.4g}")
        typer.echo(f"deletions that leave a shard dead: {repaired.dead_share:.2%}")
    if plot is not None:
        typer.echo(f"drawn: {plot}")


def _number(value: float | None) -> str:
    if value is None:
        return "never"
    if value >= 1e9:
        return f"{value:.3g}"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
