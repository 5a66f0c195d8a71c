"""Results as people read them, on stdout. rich is imported by what prints a table: documents (--json) need none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import typer

from s3t.errors import listed
from s3t.wording import counted, duration, hours_in_words, numbers

if TYPE_CHECKING:
    from s3t.core import Place
    from s3t.results.answers import Evaluation
    from s3t.results.changes import Deletion, Training
    from s3t.results.log import LogEntry
    from s3t.results.state import Chain, Export, Forecast, Shard, Status

MOST_SHARDS = 20
"""Shards that are drawn, where each of their chains takes a line; of others the number is told."""
MOST_SHOWN = 10
"""Unfinished deletions that are shown."""
MAX_DEPTHS = 6
"""Depths whose loss is foretold."""


def print_status(status: Status, run: Any) -> None:
    """Print every shard with what is alive and serves, then what is missing, expected and not as it should be."""
    from rich.filesize import decimal

    title = f"generation {status.generation}, {counted(status.records, 'record')}"
    print_shards(status.shards, title)
    stored = "" if status.stored_bytes is None else f", {decimal(status.stored_bytes)} of artifacts"
    typer.echo(f"method {status.method}{stored}")
    if status.missing:
        are = "is" if status.missing == 1 else "are"
        hours = "" if status.missing_hours is None else f" ({in_hours(status.missing_hours)})"
        command = f"s3t {'repair' if status.generation else 'train'} {run}"
        typer.echo(f"{counted(status.missing, 'stage')} {are} missing{hours}; train with: {command}")
    for worker in status.workers:
        left = "" if worker.seconds_left is None else f", about {duration(worker.seconds_left)} left"
        where = f"process {worker.process} of {worker.host} ({worker.device})"
        typer.echo(f"in training: {worker.stage}, by {where}{left}")
    if status.to_learn:
        cost = "" if status.learning_hours is None else f" ({in_hours(status.learning_hours)})"
        later = f"; else after {counted(status.learned_after, 'more addition')}" if status.learned_after else ""
        typer.echo(f"{to_learn(status.to_learn, run, of=status.records)}{cost}{later}")
    if status.forecast is not None and status.forecast.living_shards:
        _print_forecast(status.forecast)
    for warning in (*status.warnings, *status.advice):
        typer.echo(f"warning: {warning}")
    for gap in status.gaps:
        typer.echo(f"gap in exactness: {gap}")


def to_learn(records: int, run: Any, *, of: int | None = None) -> str:
    share = "" if of is None else f" ({100 * records / of:.2g} % of all)"
    return f"{counted(records, 'added record')}{share} not learned yet; learn with: s3t train {run}"


def print_shards(shards: Sequence[Shard], title: str) -> None:
    """Print shards: the records of their slices, and their sequences, or the chains of a repair as needed."""
    if not any(chain.name for shard in shards for chain in shard.sequences):
        rows = [
            {
                "shard": shard.shard,
                "records in slices": numbers(shard.slices),
                "sequences (live depth)": "\n".join(
                    f"{numbers(chain.order)}  ({chain.depth})" for chain in shard.sequences
                ),
                "serving": "none" if (serves := shard.serving) is None else numbers(serves.order[: serves.depth]),
                "depth": shard.depth,
            }
            for shard in shards
        ]
        print_table(title, rows)
        return
    rows = [
        {
            "shard": "" if place else shard.shard,
            "records": "" if place else sum(shard.slices),
            "chain": f"{chain.name}, serves" if chain == shard.serving else chain.name,
            "slices [missing]": slices_of(chain),
            "live": chain.depth,
            "planned": len(chain.order),
        }
        for shard in shards[:MOST_SHARDS]
        for place, chain in enumerate(shard.sequences)
    ]
    print_table(title, rows)
    if (more := len(shards) - MOST_SHARDS) > 0:
        typer.echo(f"and {counted(more, 'shard')} more")


def slices_of(chain: Chain) -> str:
    """Slices of a chain, those that a repair trains in brackets.

    >>> from s3t.results.state import Chain
    >>> slices_of(Chain(order=(0, 2, 1), depth=1)), slices_of(Chain(order=(0, 2), depth=2))
    ('0 [2 1]', '0 2')
    """
    missing = f"[{numbers(chain.order[chain.depth :])}]" if chain.depth < len(chain.order) else ""
    return " ".join(part for part in (numbers(chain.order[: chain.depth]), missing) if part)


def print_training(done: Training, status: Status, run: Any) -> None:
    there = f"{counted(status.alive, 'stage')} alive"
    if done.stages:
        typer.echo(f"{counted(done.trained, 'stage')} trained in {done.seconds:.1f} s; {there}")
    elif done.missing == 0:
        typer.echo(f"nothing to train: no stage is missing, {there}")
    if done.discarded:
        typer.echo(f"{counted(done.discarded, 'stage')} discarded: a record was deleted or learned meanwhile")
    print_status(status, run)


def print_deletion(done: Deletion, run: Any) -> None:
    if done.held is not None:
        typer.echo(HELD_STATES[str(done.state)].format(id=done.held))
        return
    if done.repeated:
        typer.echo("key already used; nothing repeated. The original result:")
    would = done.dry_run and not done.repeated
    typer.echo(f"{counted(done.deleted, 'record')}{' would be' if would else ''} deleted")
    if done.already:
        typer.echo(f"gone already: {', '.join(done.already)}")
    if done.stages_lost:
        verb = "would have" if would else "has"
        lost = f"{counted(done.stages_lost, 'stage')} {'would be ' if would else ''}lost"
        typer.echo(f"{lost}, which s3t repair {verb} to train again")
    depths = enumerate(zip(done.depths_before, done.depths_after, strict=True))
    if changed := [f"shard {shard} from {old} slices to {new}" for shard, (old, new) in depths if old != new]:
        typer.echo(f"depth {'would fall' if would else 'falls'}: {', '.join(changed)}")
    for export in done.to_withdraw:
        typer.echo(f"{'would have ' if done.dry_run else ''}to be withdrawn: {withdrawal(export, run)}")
    if done.dry_run and done.slices:
        when = f"within {duration(done.erase_within)}" if done.erase_within else "before the command returns"
        typer.echo(f"it would be accepted and effective at once, and erased {when}")
    if done.log:
        typer.echo(f"{done.state}: {history(done.log)}")
        if waiting := [entry for entry in done.log if entry.state == done.state and entry.erased_at is None]:
            typer.echo(remedy(waiting[-1], done.erased_by, run))
    if done.shards:
        print_shards(done.shards, f"hit shards, {'as they would be' if would else f'generation {done.generation}'}")
    for warning in done.warnings:
        typer.echo(f"warning: {warning}")
    if done.unknown:
        typer.echo(unknown_names(done))


HELD_STATES = {
    "held": "held for approval, nothing deleted yet: {id}; an operator decides with s3t deletions",
    "approved": "approved, and about to be deleted: {id}",
    "refused": "refused by an operator, nothing deleted: {id}; s3t deletions held has the reason",
}
"""States of a deletion that a server has held, in words."""


def unknown_names(done: Deletion) -> str:
    """A warning of names that took nothing: a typing error, or a record's id where a subject's is meant."""
    unknown = done.unknown or ()
    names, nothing = counted(len(unknown), "name"), "nothing would be" if done.dry_run else "NOTHING WAS"
    why = "The run has never held a record or subject of that id"
    if done.unreadable:
        why = f"The ledger does not know them, and {places_in_words(done.unreadable)} cannot be read: see s3t audit"
    return (
        f"WARNING: {names} UNKNOWN, {nothing} deleted for {'it' if len(unknown) == 1 else 'them'}: "
        f"{listed(unknown)}. {why}; --json lists all" + "".join(f"\n  {hint}" for hint in done.hints)
    )


def moment(time: datetime | None) -> str:
    """A time in UTC, to the second.

    >>> moment(datetime(2026, 11, 29, 21, 30)), moment(None)
    ('2026-11-29 21:30:00', 'not yet')
    """
    return "not yet" if time is None else time.strftime("%Y-%m-%d %H:%M:%S")


def history(entries: Sequence[LogEntry]) -> str:
    """Times at which a deletion was received, accepted, effective and erased; the last one, if it has several parts."""
    parts = [f"received {moment(min(entry.received_at for entry in entries))} UTC"]
    for step in ("accepted", "effective", "erased"):
        times = [getattr(entry, f"{step}_at") for entry in entries]
        parts.append(f"{step} {moment(None if None in times else max(times))}")
    return ", ".join(parts)


def print_unfinished(status: Status, run: Any) -> None:
    """Print the deletions that are not erased yet, with their deadlines, and the exports that stand."""
    for entry in status.unfinished[:MOST_SHOWN]:
        by = entry.received_at + timedelta(seconds=status.erase_within) if status.erase_within else None
        what = f"generation {entry.generation}, {counted(entry.records, 'record')}"
        typer.echo(f"not erased yet: {what}, {history([entry])}; {remedy(entry, by, run)}")
    if len(status.unfinished) > MOST_SHOWN:
        typer.echo(f"and {len(status.unfinished) - MOST_SHOWN} more that are not erased yet (s3t log {run} has all)")
    for export in status.exports:
        if export.to_withdraw:
            typer.echo(f"to be withdrawn, because it holds deleted records: {withdrawal(export, run)}")
        else:
            made = "never finished" if export.made_at is None else f"made {moment(export.made_at)} UTC"
            typer.echo(f"export {export.name} of shard {export.shard}, {made}, on {export.host}: {export.path}")


def withdrawal(export: Export, run: Any) -> str:
    """Advice for an export with deleted records in it."""
    return (
        f"export {export.name} of shard {export.shard}, on {export.host} in {export.path}. Unload it from every "
        f"server, remove every copy, then run `s3t export {run} --withdrawn {export.name}`"
    )


def remedy(entry: LogEntry, by: datetime | None, run: Any) -> str:
    """Advice for a deletion that is not erased: its deadline, if it has one, and the command."""
    waits = ""
    if entry.effective_at is None:
        waits = "another open run may have an answer on its way that uses the record; "
    if entry.to_withdraw:
        return f"{waits}it waits until these exports are withdrawn: {', '.join(entry.to_withdraw)}"
    now = (
        "now" if entry.effective_at is None else "now, or when no open run computes or trains with the record any more"
    )
    due = now if by is None or by <= entry.received_at else f"by {moment(by)} UTC"
    return f"{waits}to be erased {due}: s3t erase {run}"


def places_in_words(places: Iterable[Place]) -> str:
    """Slices in words: slice 0 of shard 1, slices 0 2 of shard 2."""
    by_shard: dict[int, list[int]] = {}
    for place in places:
        by_shard.setdefault(place.shard, []).append(place.slice)
    return ", ".join(
        f"{'slice' if len(slices) == 1 else 'slices'} {numbers(slices)} of shard {shard}"
        for shard, slices in by_shard.items()
    )


def in_hours(hours: float) -> str:
    """Time that a repair takes, in words; shorter ones in minutes and seconds."""
    return f"{hours_in_words(hours)}, by this run's own times"


def _print_forecast(forecast: Forecast) -> None:
    """Expected numbers of deletions from now on, in two lines."""
    first, last = _after(forecast.next_shard_dies), _after(forecast.all_shards_die)
    typer.echo(f"expected without repair: the next shard dies {first}, the last one {last}")
    falls = sorted(forecast.depth_falls_below.items(), reverse=True)
    if falls:
        step = -(-len(falls) // MAX_DEPTHS)
        texts = [f"below {depth} slices {_after(value)}" for depth, value in falls[::step]]
        typer.echo(f"the first shard falls {', '.join(texts)}")


def _after(value: float | None) -> str:
    return "never" if value is None else f"after {value:.1f} deletions"


def print_parts(measured: Evaluation) -> None:
    print_table("each shard alone", measured.per_shard)
    print_table("the ensemble cut to a depth", measured.per_depth)
    for notice in measured.notices:
        typer.echo(f"warning: {notice}")


def print_table(title: str, rows: Sequence[Mapping[str, Any]], *, width: int = 0) -> None:
    """Rows with the same keys as a table, at least so many columns wide; numbers with four decimals."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    table = Table(title=Text(title))
    for name in rows[0]:
        table.add_column(Text(name))
    for row in rows:
        # Text: a label like [b] is not markup.
        table.add_row(*(Text(f"{value:.4f}" if isinstance(value, float) else str(value)) for value in row.values()))
    console = Console()
    console.width = max(console.width, width)
    console.print(table)
