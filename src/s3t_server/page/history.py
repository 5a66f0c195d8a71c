"""Depths over time and the log of deletions, as the page shows them. Pure: asks neither the ledger nor the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from s3t.ledger import DepthChange
from s3t.results.log import LogEntry
from s3t.wording import duration
from s3t_server.page.pictures import depths_picture
from s3t_server.page.views import mean

SPANS = {"hour": 3_600.0, "day": 86_400.0, "month": 30 * 86_400.0, "all": float("inf")}
"""Seconds of history that a visitor may choose."""
_COLUMNS = 300
"""Steps of the depths' picture."""


@dataclass(frozen=True, kw_only=True)
class Depths:
    """Depths over time."""

    picture: Markup | None
    """None: nothing has changed in that time."""
    began: float
    most: int
    """Slices at the upper edge of the picture."""
    rows: tuple[DepthChange, ...]
    """The newest changes, the newest first."""
    span: str


def depths_over_time(
    changes: Sequence[DepthChange], depths: Sequence[int], *, now: float, span: str, most: int
) -> Depths:
    """Depths over a span of time.

    Args:
        changes: the oldest first.
        now: seconds since the epoch.
        span: a key of `SPANS`.
    """
    since = now - SPANS[span]
    within = [change for change in changes if change.changed_at >= since and change.shard < len(depths)]
    newest = tuple(reversed(within[-20:]))
    if not within:
        return Depths(picture=None, began=now, most=most, rows=(), span=span)
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
    return Depths(picture=picture, began=began, most=top, rows=newest, span=span)


def _row(state: Sequence[int]) -> tuple[float, int, int]:
    return mean(state), min(state), max(state)


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """A deletion in the log."""

    entry: LogEntry
    steps: tuple[tuple[str, float | None, str], ...]
    """Each step, its time, and how long after the request it came."""


def deletion(entry: LogEntry) -> Deletion:
    times = {
        "received": entry.received_at,
        "accepted": entry.accepted_at,
        "effective": entry.effective_at,
        "erased": entry.erased_at,
    }
    return Deletion(
        entry=entry,
        steps=tuple(
            (name, time, "" if time is None else after(time - entry.received_at)) for name, time in times.items()
        ),
    )


def after(seconds: float) -> str:
    """Time since a request.

    >>> after(0.0123), after(75.0)
    ('+12 ms', '+1 min 15 s')
    """
    return f"+{1000 * seconds:.0f} ms" if seconds < 1 else f"+{duration(seconds)}"
