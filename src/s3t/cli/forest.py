"""Drawing of a run's forests: for each shard its chains, as they are and as a repair makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from s3t.wording import counted, numbers

if TYPE_CHECKING:
    from s3t.inventory import Inventory
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
