"""Deletions as people read them: how far each has come, and when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from s3t.wording import counted, numbers

if TYPE_CHECKING:
    from s3t.ledger import Export, LogEntry
    from s3t.run.results import Status

MOST_SHOWN = 10


def moment(seconds: float | None) -> str:
    """A time in UTC, to the second.

    >>> moment(0.0), moment(None)
    ('1970-01-01 00:00:00', 'not yet')
    """
    return "not yet" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def history(entries: Sequence[LogEntry]) -> str:
    """Times at which a deletion was received, accepted, effective and erased; the last one, if it has several parts."""
    parts = [f"received {moment(min(entry.received_at for entry in entries))} UTC"]
    for step in ("accepted", "effective", "erased"):
        times = [getattr(entry, f"{step}_at") for entry in entries]
        parts.append(f"{step} {moment(None if None in times else max(times))}")
    return ", ".join(parts)


def print_unfinished(status: Status, run: Any) -> None:
    """Prints the deletions that are not erased yet, and their deadlines."""
    within = status.recipe.deletion.erase_within
    for entry in status.unfinished[:MOST_SHOWN]:
        typer.echo(
            f"not erased yet: generation {entry.generation}, {counted(entry.records, 'record')}, "
            f"{history([entry])}; {remedy(entry, within, run)}"
        )
    if len(status.unfinished) > MOST_SHOWN:
        typer.echo(f"and {len(status.unfinished) - MOST_SHOWN} more that are not erased yet (s3t log {run} has all)")


def print_exports(status: Status, run: Any) -> None:
    """Prints exports that stand, and those that have to be withdrawn."""
    for export in status.exports:
        if export in status.to_withdraw:
            typer.echo(f"to be withdrawn, because it holds deleted records: {withdrawal(export, run)}")
        else:
            made = "never finished" if export.made_at is None else f"made {moment(export.made_at)} UTC"
            typer.echo(f"export {export.label} of shard {export.stage.shard}, {made}, on {export.host}: {export.path}")


def withdrawal(export: Export, run: Any) -> str:
    """Advice for an export with deleted records in it."""
    return (
        f"export {export.label} of shard {export.stage.shard}, on {export.host} in {export.path}. Unload it from every "
        f"server, remove every copy, then run `s3t export {run} --withdrawn {export.label}`"
    )


def remedy(entry: LogEntry, within: float, run: Any) -> str:
    """Advice for a deletion that is not erased: the deadline, `within` seconds after receipt, and the command."""
    waits = ""
    if entry.effective_at is None:
        waits = "another open run may have an answer on its way that uses the record; "
    if entry.to_withdraw:
        return f"{waits}it waits until these exports are withdrawn: {', '.join(entry.to_withdraw)}"
    now = (
        "now" if entry.effective_at is None else "now, or when no open run computes or trains with the record any more"
    )
    due = f"by {moment(entry.received_at + within)} UTC" if within else now
    return f"{waits}to be erased {due}: s3t erase {run}"


def depths_changed(before: Sequence[int], after: Sequence[int]) -> list[str]:
    """Shards that serve with another depth than before, in words.

    >>> depths_changed((3, 3), (3, 0))
    ['shard 1 from 3 slices to 0']
    """
    pairs = enumerate(zip(before, after, strict=True))
    return [f"shard {shard} from {old} slices to {new}" for shard, (old, new) in pairs if old != new]


def places_in_words(places: Sequence[Any]) -> str:
    """Slices in words: slice 0 of shard 1, slices 0 2 of shard 2."""
    by_shard: dict[int, list[int]] = {}
    for place in places:
        by_shard.setdefault(place.shard, []).append(place.slice)
    return ", ".join(
        f"{'slice' if len(slices) == 1 else 'slices'} {numbers(slices)} of shard {shard}"
        for shard, slices in by_shard.items()
    )
