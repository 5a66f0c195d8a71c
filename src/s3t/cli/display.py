"""Tables on stdout. rich is imported by what prints one, for documents (--json) are printed without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from s3t.wording import counted, duration, numbers

if TYPE_CHECKING:
    from s3t.inventory import Inventory
    from s3t.planning.forecast import Forecast
    from s3t.run.results import Status, TrainReport
    from s3t.sequences import Order


MOST_SHARDS = 20
"""Shards that are drawn; of others the number is told. A shard takes a line for each chain."""


def print_forest(inventory: Inventory, *, title: str) -> None:
    """Print the chains of every shard, the main one first: slices, missing ones in brackets, live and planned depth."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    growth = inventory.growth
    spares = 0 if growth is None else growth.policy.spares
    table = Table(title=Text(title), box=SIMPLE_HEAD, title_justify="left")
    for column in ("shard", "records", "chain", "slices [missing]", "live", "planned"):
        table.add_column(Text(column), justify="right" if column in ("records", "live", "planned") else "left")
    shards = len(inventory.orders)
    for shard in range(min(shards, MOST_SHARDS)):
        records = sum(inventory.records_in(shard, (index,)) for index in range(inventory.slices))
        for place, chain in enumerate(inventory.orders[shard]):
            first = (str(shard), str(records)) if place == 0 else ("", "")
            live = inventory.depth(shard, chain)
            table.add_row(*map(Text, (*first, *_row(inventory, shard, place, spares), str(live), str(len(chain)))))
    Console().print(table)
    if shards > MOST_SHARDS:
        typer.echo(f"and {counted(shards - MOST_SHARDS, 'shard')} more")


def _row(inventory: Inventory, shard: int, place: int, spares: int) -> tuple[str, str]:
    """Name and slices of a shard's chain."""
    chain, serving = inventory.orders[shard][place], inventory.serving(shard)
    name = "main" if place == 0 else "spare" if place <= spares else "other"
    serves = serving is not None and serving.order == chain
    return name + (", serves" if serves else ""), _slices(chain, inventory.depth(shard, chain))


def _slices(chain: Order, live: int) -> str:
    """Slices of a chain, those that a repair trains in brackets.

    >>> _slices((0, 2, 1), 1), _slices((0, 2), 2)
    ('0 [2 1]', '0 2')
    """
    missing = f"[{numbers(chain[live:])}]" if live < len(chain) else ""
    return " ".join(part for part in (numbers(chain[:live]), missing) if part)


def print_status(status: Status, run: Path, *, planned: bool = False) -> None:
    """Print every shard: records of its slices, its sequences or chains with their live depth, and the serving one.

    A `planned` status is a forecast, not the present one.
    """
    from rich.filesize import decimal

    document = status.to_json()
    title = f"{'would be: ' if planned else ''}generation {status.generation}, {counted(status.records, 'record')}"
    if status.inventory.growth is None:
        _print_sequences(document["shards"], title)
    else:
        print_forest(status.inventory, title=title)
    typer.echo(f"method {document['method']}, {decimal(status.stored_bytes)} of artifacts")
    if status.missing:
        are = "is" if status.missing == 1 else "are"
        command = f"s3t {status.inventory.training_command} {run}"
        hours = "" if status.missing_hours is None else f" ({in_hours(status.missing_hours)})"
        typer.echo(f"{counted(status.missing, 'stage')} {are} missing{hours}; train with: {command}")
    _print_forecast(status.forecast)
    for warning in (*status.warnings, *status.advice):
        typer.echo(f"warning: {warning}")
    for gap in status.gaps:
        typer.echo(f"gap in exactness: {gap}")


def print_status_document(document: dict[str, Any]) -> None:
    """Print a status that a server has told: its shards, what is missing, and what is not erased yet."""
    from rich.filesize import decimal

    title = f"generation {document['generation']}, {counted(document['records'], 'record')}"
    _print_sequences(document["shards"], title)
    typer.echo(f"method {document['method']}, {decimal(document['stored_bytes'])} of artifacts")
    if document["missing_stages"]:
        hours = "" if document["missing_hours"] is None else f" ({in_hours(document['missing_hours'])})"
        typer.echo(f"missing: {counted(document['missing_stages'], 'stage')}{hours}; POST /v1/repairs trains them")
    if (forecast := document["forecast"]) is not None and forecast["living_shards"]:
        typer.echo(f"expected without repair: the next shard dies {_after(forecast['next_shard_dies'])}")
    for entry in document["unfinished"]:
        typer.echo(
            f"not erased yet: generation {entry['generation']}, {counted(entry['records'], 'record')}, "
            f"{entry['state']}, to be erased by {entry['erased_by']}"
        )
    for export in document["exports"]:
        if export["to_withdraw"]:
            typer.echo(f"to be withdrawn: export {export['name']}, on {export['host']} in {export['path']}")
    for warning in document["warnings"]:
        typer.echo(f"warning: {warning}")
    for gap in document["gaps"]:
        typer.echo(f"gap in exactness: {gap}")


def _print_sequences(shards: list[dict[str, Any]], title: str) -> None:
    """Print the shards of a status's document, with all their sequences."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for column in ("shard", "records in slices", "sequences (live depth)", "serving", "depth"):
        table.add_column(column)
    for shard in shards:
        serving = shard["serving"]
        table.add_row(
            str(shard["shard"]),
            numbers(shard["slices"]),
            "\n".join(f"{numbers(entry['order'])}  ({entry['depth']})" for entry in shard["sequences"]),
            "none" if serving is None else numbers(serving["order"][: serving["depth"]]),
            "0" if serving is None else str(serving["depth"]),
        )
    Console().print(table)


def print_training(report: TrainReport, run: Path) -> None:
    """Prints the report of `train`, `repair` or `extend` in the same words, and the status afterwards."""
    there = counted(len(report.status.inventory.alive), "stage")
    if report.stages:
        typer.echo(f"{counted(len(report.stages), 'stage')} trained in {report.seconds:.1f} s; {there} alive")
    elif report.status.missing == 0:
        typer.echo(f"nothing to train: no stage is missing, {there} alive")
    if report.discarded:
        typer.echo(f"{counted(report.discarded, 'stage')} discarded: a record was deleted during their training")
    print_status(report.status, run)


def in_hours(hours: float) -> str:
    """Time that a repair takes, in words; shorter ones in minutes and seconds."""
    time = f"{hours:.1f} hours" if hours >= 0.1 else duration(3600 * hours)
    return f"about {time}, by this run's own times"


def _print_forecast(forecast: Forecast | None) -> None:
    """Expected numbers of deletions from now on, in two lines."""
    if forecast is None:
        typer.echo("no forecast could be computed")
        return
    if forecast.living_shards == 0:
        return
    parts = [("the next shard dies", forecast.next_shard_dies), ("the last one", forecast.all_shards_die)]
    typer.echo("expected without repair: " + ", ".join(f"{what} {_after(value)}" for what, value in parts))
    falls = sorted(forecast.depth_falls_below.items(), reverse=True)
    if falls:
        step = -(-len(falls) // MAX_DEPTHS)
        texts = [f"below {depth} slices {_after(value)}" for depth, value in falls[::step]]
        typer.echo(f"the first shard falls {', '.join(texts)}")


MAX_DEPTHS = 6


def _after(value: float | None) -> str:
    return "never" if value is None else f"after {value:.1f} deletions"


def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    """Rows with the same keys as a table; numbers with four decimals."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    table = Table(title=title)
    for name in rows[0]:
        table.add_column(Text(name))
    for row in rows:
        # Text: a label like [b] is not markup.
        table.add_row(*(Text(f"{value:.4f}" if isinstance(value, float) else str(value)) for value in row.values()))
    Console().print(table)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a status line on stderr while the work lasts, on a terminal."""
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def choosing(orders: str, selector: str) -> AbstractContextManager[None]:
    """`working` while a selector chooses; `survival` draws a bar instead."""
    return nullcontext() if selector == "survival" else working(f"choosing {orders}")
