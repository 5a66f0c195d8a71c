"""Words and numbers of the page that no result has. Pure: asks neither the ledger nor the clock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from statistics import fmean
from typing import Any

from s3t.ledger import DepthChange
from s3t.results.log import Location, LogEntry
from s3t.results.state import Forecast, Shard, Spread, Status
from s3t.wording import counted, duration
from s3t_server.page.pictures import depths_picture

SPANS = {"hour": 3_600.0, "day": 86_400.0, "month": 30 * 86_400.0, "all": float("inf")}
"""Seconds of history that a visitor may choose."""
_COLUMNS = 300
"""Steps of the depths' picture."""
_MOST_FALLS = 4
"""Depths whose loss is foretold."""


def at_a_glance(status: Status) -> str:
    """The state of a run in one sentence. If no shard's model answers, it is the warning of `s3t status`."""
    if any(status.depths):
        return health(status.depths, status.wanted_depth)
    if status.outage:
        (warning,) = status.outage
        return f"{warning[0].upper()}{warning[1:]}."
    return "Prototypes answer alone." if status.answering else "No shard answers yet: no stage is trained."


def health(depths: Sequence[int], wanted: int) -> str:
    """The state of a run of which some shard's model answers, in one sentence.

    >>> health([4, 3, 2, 3, 4], 4), health([4, 4], 4), health([0, 3], 4)
    ('All 5 shards answer; 3.2 of 4 slices in the mean.', 'All 2 shards answer, each with all 4 slices.', \
'1 of 2 shards answers; 1.5 of 4 slices in the mean.')
    """
    living, shards = sum(map(bool, depths)), len(depths)
    all_of_them = "The one shard" if shards == 1 else f"All {shards} shards"
    who = f"{living} of {shards} shards" if living < shards else all_of_them
    verb = "answers" if living == 1 else "answer"
    if min(depths) >= wanted:
        return f"{who} {verb}, {'' if shards == 1 else 'each '}with all {counted(wanted, 'slice')}."
    return f"{who} {verb}; {fmean(depths):.1f} of {counted(wanted, 'slice')} in the mean."


def longest_of(shards: Collection[Shard]) -> int:
    return max((len(chain.order) for shard in shards for chain in shard.sequences), default=1)


def ahead(forecast: Forecast | None) -> list[tuple[str, float | None, Spread | None]]:
    """Losses to expect without repair, the soonest first: name, expected deletions until then, and the range in which 8
    of 10 simulated histories lie."""
    if forecast is None or not forecast.living_shards:
        return []
    falls = sorted(forecast.depth_falls_below, reverse=True)
    chosen = falls[:: -(-len(falls) // _MOST_FALLS)] if falls else []
    below, between = forecast.depth_falls_below, forecast.depth_falls_below_between
    entries = [(f"first below {counted(depth, 'slice')}", below[depth], between.get(depth)) for depth in chosen]
    entries.append(("the next shard dies", forecast.next_shard_dies, forecast.next_shard_dies_between))
    if forecast.living_shards > 1:
        entries.append(("the last shard dies", forecast.all_shards_die, forecast.all_shards_die_between))
    return entries


def depths_over_time(
    changes: Sequence[DepthChange], depths: Sequence[int], *, now: float, span: str, most: int
) -> dict[str, Any]:
    """A picture of depths over a span of time, None where nothing has changed in it; when it begins, the slices at its
    upper edge, and the newest changes, the newest first.

    Args:
        changes: the oldest first.
        now: seconds since the epoch.
        span: a key of `SPANS`.
    """
    since = now - SPANS[span]
    within = [change for change in changes if change.changed_at >= since and change.shard < len(depths)]
    if not within:
        return {"picture": None, "began": now, "most": most, "rows": []}
    state = list(depths)
    for change in reversed(within):
        state[change.shard] = change.depth_before
    began = max(since, within[0].changed_at - 0.02 * (now - within[0].changed_at) - 1)
    times, rows = [began], [_row(state)]
    step = (now - began) / _COLUMNS
    for change in within:
        state[change.shard] = change.depth
        if change.changed_at - times[-1] >= step:
            times.append(change.changed_at)
            rows.append(_row(state))
        else:
            rows[-1] = _row(state)
    top = max(most, *(row[2] for row in rows))
    picture = depths_picture([*times, max(now, times[-1])], rows, most=top)
    return {"picture": picture, "began": began, "most": top, "rows": within[:-21:-1]}


def _row(state: Sequence[int]) -> tuple[float, int, int]:
    return fmean(state), min(state), max(state)


def steps_of(entry: LogEntry) -> list[tuple[str, datetime | None, str]]:
    """Each step of a deletion, its time, and how long after the request it came."""
    steps = []
    for name in ("received", "accepted", "effective", "erased"):
        time, after = getattr(entry, f"{name}_at"), ""
        if time is not None:
            seconds = (time - entry.received_at).total_seconds()
            after = f"+{1000 * seconds:.0f} ms" if seconds < 1 else f"+{duration(seconds)}"
        steps.append((name, time, after))
    return steps


def location_in_words(location: Location) -> str:
    if location.present:
        places = ", ".join(f"slice {place.slice} of shard {place.shard}" for place in location.places)
        return f"{counted(location.records, 'record')} in {places}"
    if location.deleted is not None:
        return f"deleted before, by deletion {location.deleted.generation} ({location.deleted.state})"
    if location.unreadable:
        return "unknown; some slices cannot be read"
    return "the run has never held it"
