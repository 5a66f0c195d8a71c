"""`s3t simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s3t.cli import declarations
from s3t.cli.display import choosing, print_table, working
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show
from s3t.progress_bar import ProgressBar
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.planning.endurance import Endurance
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


def command(
    shards: ShardsOption,
    slices: declarations.SlicesOption,
    budget: declarations.BudgetOption,
    trials: TrialsOption = 10_000,
    prior: declarations.PriorOption = None,
    prior_file: declarations.PriorFileOption = None,
    selector: declarations.SelectorOption = declarations.SELECTOR,
    deletions: declarations.DeletionsOption = declarations.DELETIONS,
    vary_by_shard: VaryOption = False,
    repair_below: BelowOption = None,
    repair_every: EveryOption = None,
    over: OverOption = None,
    seed: declarations.SeedOption = 0,
    plot: declarations.PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate whole systems of M shards: how many deletions they survive, and what repairs would cost.

    For example, the paper's setting of 5 shards, 32 slices and 8 orders, with a picture:

        s3t simulate --shards 5 --slices 32 --budget 8 --plot depth.png

    The same, each shard repaired when it is dead, over 1000 deletions:

        s3t simulate --shards 5 --slices 32 --budget 8 --repair-below 1

    The deletion rate is the number of deletions until every shard is dead; first failure, until the first one is.
    Orders are chosen as s3t sequences shows them. Shards are equally likely to be hit.
    """
    with failures_reported(as_json):
        from s3t.planning.rounding import rounded

        settings = declarations.settings_of(
            shards=shards,
            slices=slices,
            budget=budget,
            prior=prior,
            prior_file=prior_file,
            selector=selector,
            deletions=deletions,
            seed=seed,
            plot=plot,
            problems=_problems(trials, shards, slices, budget, vary_by_shard, repair_below, repair_every, over),
        )
        simulated = _endure(
            selector, settings, vary_by_shard, trials, _policy(repair_below, repair_every), over or OVER
        )
        title = _title(selector, settings)
        document = rounded(simulated.to_json())
        if plot is not None:
            with working(f"drawing {plot}"):
                _draw(simulated, title, plot)
        show(document, as_json, lambda: _print(simulated, title, trials, over or OVER, plot))


def _policy(below: int | None, every: int | None) -> Policy | None:
    from s3t.planning.repairs import Policy

    # --repair-every alone: not before its time.
    return None if below is None and every is None else Policy(below=below or 0, every=every)


def _problems(
    trials: int,
    shards: int,
    slices: int,
    budget: int,
    vary: bool,
    below: int | None,
    every: int | None,
    over: int | None,
) -> list[str]:
    from s3t.planning.endurance import bytes_needed

    repaired = below is not None or every is not None
    problems = [] if trials >= 1 else [f"{trials} trials: give at least 1"]
    if over is not None and not repaired:
        problems.append("--over is of systems that are repaired; give --repair-below or --repair-every, too")
    if over is not None and not 1 <= over <= MOST_OVER:
        problems.append(f"--over {over}: give 1 to {MOST_OVER:,} deletions")
    if below is not None and not 0 <= below <= max(slices, 0):
        problems.append(f"--repair-below {below}: a shard has 0 to {slices} live slices")
    if every is not None and every < 1:
        problems.append(f"--repair-every {every}: give at least 1 deletion")
    if min(trials, shards, slices, budget) >= 1:
        size = {"shards": shards, "slices": slices, "budget": budget}
        needed = bytes_needed(**size, trials=trials, repaired=repaired) + 8 * shards * budget * slices * vary
        if needed > MOST_BYTES:
            problems.append(
                f"{trials:,} systems of that size take about {needed / 1e9:,.1f} GB of memory, more than "
                f"{MOST_BYTES / 1e9:.0f}; lower --trials, or the sizes"
            )
    return problems


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
