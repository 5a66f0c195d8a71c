"""`s3t sequences`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Option

from s3t.cli import declarations
from s3t.cli.display import choosing, print_table, working
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show
from s3t.progress import ProgressBar
from s3t.wording import counted, numbers

AFTER = (1, 2, 4, 8, 16)
"""Deletions in the shard after which the expected depth is shown."""
SHOWN_ORDERS, SHOWN_SLICES = 20, 32
MOST_TRIALS, MOST_STEPS = 100_000, 5_000_000_000
"""Simulated histories, and how many times the prefix of an order is looked at in them all."""


def command(
    slices: declarations.SlicesOption,
    budget: Annotated[int, Option(metavar="B", help="Orders a shard, from 1 to L!.", show_default=False)],
    prior: declarations.PriorOption = None,
    selector: declarations.SelectorOption = declarations.SELECTOR,
    deletions: declarations.DeletionsOption = declarations.DELETIONS,
    horizon: Annotated[str, Option(metavar="R1,...", help="survival: deletions that count.")] = declarations.HORIZON,
    values: Annotated[str | None, Option(metavar="F1,...", help="survival: worth of 1 to L live slices.")] = None,
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
        import numpy as np

        from s3t.drawing import draw_orders
        from s3t.orders import mean_distance, scores, select
        from s3t.planning.bounds import full_budget_depth
        from s3t.planning.simulation import retention

        setting = declarations.setting_of(
            [],
            slices=slices,
            budget=budget,
            prior=prior,
            selector=selector,
            deletions=deletions,
            horizon=horizon,
            values=values,
            seed=seed,
            plot=plot,
        )
        known = None if setting.prior is None else setting.probabilities
        what = f"{counted(budget, 'order')} of {counted(slices, 'slice')} ({selector})"
        with choosing(what, selector):
            orders = select(selector, setting, progress=ProgressBar())
        with working("looking how deep they stay"):
            trials = min(MOST_TRIALS, MOST_STEPS // (budget * slices))
            at_least = retention(orders, AFTER, prior=known, trials=trials, seed=seed)[:, 1:]
        depths = at_least.sum(axis=1)
        # E[depth^2] is the sum of (2k - 1) P[depth >= k].
        variances = np.maximum(at_least @ (2 * np.arange(slices) + 1) - depths**2, 0)
        if plot is not None:
            with working(f"drawing {plot}"):
                draw_orders(orders, plot, title=what, prior=known)
        each = scores(orders, setting.probabilities, deletions)
        document: dict[str, Any] = {
            "selector": selector,
            "sequences": [list(order) for order in orders],
            "mean_distance": float(f"{mean_distance(orders):.9g}"),
            "score": float(f"{each.sum():.9g}"),
            "expected_depth": {str(number): float(f"{depth:.9g}") for number, depth in zip(AFTER, depths, strict=True)},
        }

        def render() -> None:
            rows = [
                {"number": number, "order": _shown(order), "score": float(score)}
                for number, (order, score) in enumerate(zip(orders[:SHOWN_ORDERS], each, strict=False))
            ]
            print_table(what, rows)
            if len(orders) > SHOWN_ORDERS:
                typer.echo(f"and {len(orders) - SHOWN_ORDERS:,} more (--json gives all)")
            typer.echo(f"mean Hamming distance of two orders: {document['mean_distance']:.4g} of {slices}")
            typer.echo(f"the paper's score, summed over all: {document['score']:.6g} (t = {deletions})")
            limits = full_budget_depth(AFTER, slices=slices, prior=setting.probabilities)
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

        show(document, as_json, render)


def _shown(order: tuple[int, ...]) -> str:
    return numbers(order[:SHOWN_SLICES]) + (" ..." if len(order) > SHOWN_SLICES else "")
