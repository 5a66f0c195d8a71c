"""`s3t sequences`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from s3t.cli import declarations
from s3t.cli.display import choosing, print_table, working
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show
from s3t.progress_bar import ProgressBar
from s3t.wording import counted, numbers

if TYPE_CHECKING:
    from s3t.planning.retention import Retention
    from s3t.sequences import Order, Setting

AFTER = (1, 2, 4, 8, 16)
"""Deletions in the shard after which the expected depth is shown."""
SHOWN_ORDERS, SHOWN_SLICES = 20, 32
MOST_TRIALS, MOST_STEPS = 100_000, 5_000_000_000
"""Simulated histories, and how many times the prefix of an order is looked at in them all."""


def command(
    slices: declarations.SlicesOption,
    budget: declarations.BudgetOption,
    prior: declarations.PriorOption = None,
    prior_file: declarations.PriorFileOption = None,
    selector: declarations.SelectorOption = declarations.SELECTOR,
    deletions: declarations.DeletionsOption = declarations.DELETIONS,
    horizon: declarations.HorizonOption = declarations.HORIZON,
    values: declarations.ValuesOption = None,
    seed: declarations.SeedOption = 0,
    plot: declarations.PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the orders of a shard and say what they are worth, before anything is trained.

    For example, 8 orders of 32 slices, and a picture of them:

        s3t sequences --slices 32 --budget 8 --plot orders.png

    Slices 0 and 1 belong to people who often ask for deletion:

        s3t sequences --slices 4 --budget 4 --prior 0.4,0.4,0.1,0.1

    Shown are the orders, their mean Hamming distance over all pairs, and the paper's score: the sum over i of i (1 - p1
    - ... - pi)^T, summed over the orders. Last comes the expected depth of the deepest live prefix after 1, 2, 4, 8
    and 16 deletions in the shard. Needs no data, model or torch.
    """
    with failures_reported(as_json):
        (setting,) = declarations.settings_of(
            slices=slices,
            budget=budget,
            prior=prior,
            prior_file=prior_file,
            selector=selector,
            deletions=deletions,
            horizon=horizon,
            values=values,
            seed=seed,
            plot=plot,
        )
        _choose(selector, setting, plot, as_json)


def _choose(selector: str, setting: Setting, plot: Path | None, as_json: bool) -> None:
    from s3t.drawing import draw_orders
    from s3t.planning.retention import retention
    from s3t.planning.rounding import rounded
    from s3t.sequences import mean_distance, scores, select

    prior = None if setting.prior is None else setting.probabilities
    what = f"{counted(setting.budget, 'order')} of {counted(setting.slices, 'slice')} ({selector})"
    with choosing(what, selector):
        orders = select(selector, setting, progress=ProgressBar())
    with working("looking how deep they stay"):
        trials = min(MOST_TRIALS, MOST_STEPS // (setting.budget * setting.slices))
        depths = retention(orders, AFTER, prior=prior, trials=trials, seed=setting.seed)
    if plot is not None:
        with working(f"drawing {plot}"):
            draw_orders(orders, plot, title=what, prior=prior)
    each = scores(orders, setting.probabilities, setting.deletions)
    document = {
        "selector": selector,
        "sequences": [list(order) for order in orders],
        "mean_distance": mean_distance(orders),
        "score": float(each.sum()),
        "expected_depth": {
            str(number): float(depth) for number, depth in zip(AFTER, depths.expected_depth, strict=True)
        },
    }

    def render() -> None:
        _print(what, document, each.tolist(), depths, setting)
        if plot is not None:
            typer.echo(f"drawn: {plot}")

    show(rounded(document), as_json, render)


def _print(what: str, document: dict[str, Any], each: list[float], depths: Retention, setting: Setting) -> None:
    from s3t.planning.retention import full_budget_depth

    orders: list[Order] = document["sequences"]
    print_table(
        what,
        [
            {"number": number, "order": _order(order), "score": score}
            for number, (order, score) in enumerate(zip(orders[:SHOWN_ORDERS], each, strict=False))
        ],
    )
    if len(orders) > SHOWN_ORDERS:
        typer.echo(f"and {len(orders) - SHOWN_ORDERS:,} more (--json gives all)")
    typer.echo(f"mean Hamming distance of two orders: {document['mean_distance']:.4g} of {setting.slices}")
    typer.echo(f"the paper's score, summed over all: {document['score']:.6g} (t = {setting.deletions})")
    limits = full_budget_depth(AFTER, slices=setting.slices, prior=setting.probabilities)
    rows = []
    for row, (number, depth) in enumerate(document["expected_depth"].items()):
        text = f"{depth:.4f} ± {depths.half_width[row]:.4f}"
        limit = float(limits[row])
        share = f"{min(depth / limit, 1):.1%}" if limit > 0 else ""  # simulated: may be above by chance
        rows.append({"deletions": number, "expected depth": text, "all L! orders": limit, "share": share})
    print_table(f"depth of the shard, of {setting.slices}", rows)
    typer.echo(f"expected depths: from {depths.trials:,} simulated histories, ± the half of a 95 % interval")
    typer.echo("no budget keeps more than all L! orders do")


def _order(order: Order) -> str:
    more = " ..." if len(order) > SHOWN_SLICES else ""
    return numbers(order[:SHOWN_SLICES]) + more
