"""`s3t simulate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s3t.cli import as_needed, declarations
from s3t.cli.declarations import noted
from s3t.cli.display import choosing, print_table, working
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show
from s3t.progress import telling
from s3t.progress_bar import ProgressBar
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.forests import AsNeeded, StageCosts
    from s3t.planning.endurance import Endurance
    from s3t.planning.forests import GrownSimulation
    from s3t.planning.repairs import Policy
    from s3t.sequences import Setting

MOST_BYTES = 2 * 10**9
OVER, MOST_OVER = 1000, 100_000


ShardsOption = Annotated[int, typer.Option("--shards", metavar="M", help="Shards, from 1.", show_default=False)]
TrialsOption = Annotated[int, typer.Option("--trials", metavar="N", help="Systems to simulate.")]
VaryOption = Annotated[bool, typer.Option("--vary-by-shard", help="Give shards different orders of the same quality.")]
BelowOption = Annotated[
    int | None, typer.Option("--repair-below", metavar="K", help="Repair a shard when it has fewer than K live slices.")
]
EveryOption = Annotated[
    int | None,
    typer.Option(
        "--repair-every", metavar="N", help="Repair all shards after every N deletions in the system; alone, only then."
    ),
]
OverOption = Annotated[
    int | None,
    typer.Option("--over", metavar="R", help=f"With repairs: deletions in the system to look at; {OVER} if absent."),
]
BudgetOption = Annotated[
    int | None,
    typer.Option(
        "--budget", metavar="B", help="Orders a shard, from 1 to L!. Required without --repair.", show_default=False
    ),
]
RepairOption = Annotated[
    str | None,
    typer.Option(
        "--repair",
        metavar="as-needed",
        help="Shards have no orders, but a main chain and spares, and lack none of these after each repair.",
    ),
]
DepthOption = Annotated[
    int | None,
    typer.Option("--depth", metavar="D", help="With --repair as-needed, required: slices of the main chain."),
]


def command(
    shards: ShardsOption,
    slices: declarations.SlicesOption,
    budget: BudgetOption = None,
    trials: TrialsOption = 10_000,
    prior: declarations.PriorOption = None,
    prior_file: declarations.PriorFileOption = None,
    selector: declarations.SelectorOption = declarations.SELECTOR,
    deletions: declarations.DeletionsOption = declarations.DELETIONS,
    vary_by_shard: VaryOption = False,
    repair_below: BelowOption = None,
    repair_every: EveryOption = None,
    repair: RepairOption = None,
    depth: DepthOption = None,
    spares: as_needed.SparesOption = None,
    spare_depth: as_needed.SpareDepthOption = None,
    stage_seconds: as_needed.StageSecondsOption = None,
    over: OverOption = None,
    seed: declarations.SeedOption = 0,
    plot: declarations.PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate whole systems of M shards: how many deletions they survive, and what repairs would cost.

    The paper's setting of 5 shards, 32 slices and 8 orders; dead shards repaired; repaired as needed, with no orders:

        s3t simulate --shards 5 --slices 32 --budget 8 --plot depth.png

        s3t simulate --shards 5 --slices 32 --budget 8 --repair-below 1

        s3t simulate --shards 5 --slices 32 --repair as-needed --depth 24

    The deletion rate is the number of deletions until every shard is dead; first failure, until the first one is.
    Orders are those of s3t sequences. Shards are equally likely to be hit.
    """
    with failures_reported(as_json):
        repairs = {"--repair-below": repair_below, "--repair-every": repair_every}
        fixed = {"--budget": budget, **repairs, "--vary-by-shard": vary_by_shard or None, "--plot": plot}
        chains = {"depth": depth, "spares": spares, "spare_depth": spare_depth}
        problems = [
            *_mixed(repair, chains | {"stage_seconds": stage_seconds}, fixed, selector),
            *_number_problems(trials, over, repair is not None, repair_below, repair_every, slices),
            *_size_problems(trials, shards, slices, budget, vary_by_shard, repair_below, repair_every),
        ]
        policy = _chains(repair, chains, trials, shards, slices, problems)
        costs = as_needed.stage_seconds(stage_seconds, slices=slices, problems=problems)
        rest: Any = {"prior": prior, "prior_file": prior_file, "deletions": deletions, "seed": seed, "plot": plot}
        settings = declarations.settings_of(
            shards=shards, slices=slices, budget=budget or 1, selector=selector, problems=problems, **rest
        )
        if policy is None:
            below = _policy(repair_below, repair_every)
            _show_orders(selector, settings, vary_by_shard, trials, below, over or OVER, plot, as_json)
        else:
            _show_growth(policy, costs, settings, trials, over or OVER, as_json)


def _show_orders(
    selector: str,
    settings: tuple[Setting, ...],
    vary: bool,
    trials: int,
    policy: Policy | None,
    over: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    from s3t.planning.rounding import rounded

    simulated = _endure(selector, settings, vary, trials, policy, over)
    title = _title(selector, settings)
    document = rounded(simulated.to_json())
    if plot is not None:
        with working(f"drawing {plot}"):
            _draw(simulated, title, plot)
    show(document, as_json, lambda: _print(simulated, title, trials, over, plot))


def _mixed(repair: str | None, chains: Mapping[str, Any], fixed: Mapping[str, Any], selector: str) -> list[str]:
    """Options that do not go together: some are of chains, others of orders."""
    if repair not in (None, "as-needed"):
        return [f"--repair {repair}: give as-needed, or leave it out"]
    given = [f"--{name.replace('_', '-')}" for name, value in chains.items() if value is not None]
    if repair is None:
        problems = [f"{name} is of --repair as-needed; give that, too" for name in given]
        return problems if fixed["--budget"] is not None else [*problems, "give --budget, or --repair as-needed"]
    stray = [name for name, value in fixed.items() if value is not None]
    stray += [] if selector == declarations.SELECTOR else ["--selector"]
    problems = [f"{name} is of fixed orders; leave out it, or --repair" for name in stray]
    return problems if "--depth" in given else [*problems, "--repair as-needed: give --depth, slices of a main chain"]


def _chains(
    repair: str | None, chains: Mapping[str, int | None], trials: int, shards: int, slices: int, problems: list[str]
) -> AsNeeded | None:
    """The policy of repair as needed; None if it was not asked for, or is wrong."""
    if repair is None or chains["depth"] is None:
        return None
    from s3t.forests import AsNeeded

    with noted(problems):
        policy = AsNeeded(**{name: value for name, value in chains.items() if value is not None})
        policy.check(slices)
        problems += as_needed.forest_problems(trials, shards, slices, policy.spares)
        return policy
    return None


def _show_growth(
    policy: AsNeeded,
    measured: StageCosts | None,
    settings: tuple[Setting, ...],
    trials: int,
    over: int,
    as_json: bool,
) -> None:
    from s3t.forests import StageCosts
    from s3t.planning.deletions import Deletions
    from s3t.planning.forests import simulate_growth
    from s3t.planning.rounding import rounded

    shards, slices = len(settings), settings[0].slices
    # As for fixed orders: in slices that are trained, of which a full training has all.
    costs = measured or StageCosts(tuple(depth / (shards * slices) for depth in range(1, slices + 1)))
    deletions = Deletions.from_prior([setting.probabilities for setting in settings], shards=shards)
    bar = ProgressBar()
    with telling(bar, f"simulating {counted(trials, 'system')}", over):
        found = simulate_growth(policy, costs, deletions, over=over, trials=trials, seed=settings[0].seed, steps=bar)
    unit = "seconds" if measured else "full trainings"
    spares = f"{counted(policy.spares, 'spare')} of {policy.spare_depth}" if policy.spares else "no spare"
    title = f"{counted(shards, 'shard')} of {counted(slices, 'slice')}, main chain of {policy.depth}, {spares}"
    document = {"unit": unit, **found.to_json()}
    show(rounded(document), as_json, lambda: _print_growth(found, f"{title}: {counted(trials, 'system')}", over, unit))


def _print_growth(found: GrownSimulation, title: str, over: int, unit: str) -> None:
    names = {
        "cost": f"cost of repairs, {unit}",
        "mean_depth": "depth after each repair",
        "hit_depth": "depth of the hit shard before it",
    }
    document = found.to_json()
    rows = [{f"over {over:,} deletions": text, **document[name]} for name, text in names.items()]
    print_table(title, rows)
    typer.echo(f"the first training costs {found.training:.4g} {unit}; a deletion {found.cost.mean() / over:.4g}")
    typer.echo(f"deletions that leave a shard dead until its repair: {found.dead_share:.2%}")


def _policy(below: int | None, every: int | None) -> Policy | None:
    from s3t.planning.repairs import Policy

    # --repair-every alone: not before its time.
    return None if below is None and every is None else Policy(below=below or 0, every=every)


def _number_problems(
    trials: int, over: int | None, grown: bool, below: int | None, every: int | None, slices: int
) -> list[str]:
    problems = [] if trials >= 1 else [f"{trials} trials: give at least 1"]
    if over is not None and not grown and below is None and every is None:
        problems.append("--over is of systems that are repaired; give --repair-below, --repair-every or --repair, too")
    if over is not None and not 1 <= over <= MOST_OVER:
        problems.append(f"--over {over}: give 1 to {MOST_OVER:,} deletions")
    if below is not None and not 0 <= below <= max(slices, 0):
        problems.append(f"--repair-below {below}: a shard has 0 to {slices} live slices")
    if every is not None and every < 1:
        problems.append(f"--repair-every {every}: give at least 1 deletion")
    return problems


def _size_problems(
    trials: int, shards: int, slices: int, budget: int | None, vary: bool, below: int | None, every: int | None
) -> list[str]:
    from s3t.planning.endurance import bytes_needed

    if budget is None or min(trials, shards, slices, budget) < 1:
        return []
    repaired = below is not None or every is not None
    needed = bytes_needed(shards=shards, slices=slices, budget=budget, trials=trials, repaired=repaired)
    needed += 8 * shards * budget * slices * vary
    if needed <= MOST_BYTES:
        return []
    return [
        f"{trials:,} systems of that size take about {needed / 1e9:,.1f} GB of memory, more than "
        f"{MOST_BYTES / 1e9:.0f}; lower --trials, or the sizes"
    ]


def _endure(
    selector: str, settings: tuple[Setting, ...], vary: bool, trials: int, policy: Policy | None, over: int
) -> Endurance:
    from s3t.planning.deletions import Deletions
    from s3t.planning.endurance import endurance
    from s3t.sequences import orders_of_shards

    with choosing(f"{counted(settings[0].budget, 'order')} for each shard", selector):
        orders = orders_of_shards(selector, settings, vary=vary, progress=ProgressBar())
    with working(f"simulating {counted(trials, 'system')}"):
        deletions = Deletions.from_prior([setting.probabilities for setting in settings], shards=len(settings))
        return endurance(orders, deletions, trials=trials, seed=settings[0].seed, policy=policy, over=over)


def _title(selector: str, settings: tuple[Setting, ...]) -> str:
    first = settings[0]
    shards, slices, orders = (
        counted(count, noun)
        for count, noun in ((len(settings), "shard"), (first.slices, "slice"), (first.budget, "order"))
    )
    return f"{shards} of {slices}, {orders} each ({selector})"


def _draw(simulated: Endurance, title: str, path: Path) -> None:
    import numpy as np

    from s3t.drawing import draw_depths

    system = simulated.simulation
    if simulated.repaired is None:
        end = max(int(np.quantile(system.settled, 0.99)), 2)
        numbers = np.unique(np.geomspace(1, end, 400).astype(np.int64)).tolist()
        draw_depths(numbers, system.retained(numbers), path, title=title)
        return
    counts = simulated.repaired.depth_counts[:, ::-1].cumsum(axis=1)[:, ::-1]
    numbers = list(range(len(counts)))
    unrepaired = system.retained(numbers)[:, 1:].sum(axis=1)
    draw_depths(numbers, counts / counts[:, :1], path, title=title, unrepaired=unrepaired)


def _print(simulated: Endurance, title: str, trials: int, over: int, plot: Path | None) -> None:
    rows = []
    for name, lasting in (("deletion rate", simulated.deletion_rate), ("first failure", simulated.first_failure)):
        row = {"deletions until": name, "simulated": _number(lasting.mean)}
        if lasting.mean is not None and lasting.std is not None:
            row["simulated"] += f" ± {1.96 * lasting.std / trials**0.5:.2g}"
        row["std"] = "" if lasting.std is None else _number(lasting.std)
        row |= {f"{share:.0%}": _number(value) for share, value in lasting.quantiles.items()}
        rows.append(row)
    print_table(f"{title}: {counted(trials, 'system')}", rows)
    typer.echo("deletion rate: until every shard is dead; first failure: until one is; ± is the 95 % interval")
    if simulated.bound is not None:
        typer.echo(f"the paper's Lemma 1, for uniform deletions: {simulated.bound:,.1f}")
    if simulated.deletion_rate.mean is None:
        typer.echo("never, or beyond all counting: some shard has a top slice that deletions hardly hit")
    depths = [{"deletions": f"{number:,}", "mean depth": depth} for number, depth in simulated.depth.items()]
    print_table("depth of a shard, without repair", depths)
    if simulated.repaired is not None:
        document = simulated.to_json()
        names = {"repairs": "repairs of a shard", "cost": "their cost, in full trainings", "mean_depth": "mean depth"}
        repairs = [{f"over {over:,} deletions": text, **document[name]} for name, text in names.items()]
        print_table("with repairs", repairs)
        typer.echo(f"the first training of all orders costs {simulated.repaired.training_cost:.4g} full trainings")
    if plot is not None:
        typer.echo(f"drawn: {plot}")


def _number(value: float | None) -> str:
    if value is None:
        return "never"
    if value >= 1e9:
        return f"{value:.3g}"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
