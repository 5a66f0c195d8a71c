"""Forecast of a run, with a repair and without, as the page shows it. Pure, as `views`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from s3t.core import Inventory
from s3t.ledger import Repair
from s3t.planning.forecast import Forecast, Spread
from s3t.results.state import Status
from s3t.wording import counted, duration
from s3t_server.page.pictures import range_picture
from s3t_server.page.views import mean

_MOST_FALLS = 4
"""Depths whose loss is foretold."""


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """Something that comes to pass after so many deletions."""

    what: str
    mean: float | None
    between: Spread | None
    picture: Markup | None


def ahead(forecast: Forecast | None) -> tuple[Ahead, ...]:
    """Forecast without repair, the soonest event first."""
    if forecast is None or not forecast.living_shards:
        return ()
    falls = sorted(forecast.depth_falls_below, reverse=True)
    chosen = falls[:: -(-len(falls) // _MOST_FALLS)] if falls else []
    entries = [
        (
            f"first below {counted(depth, 'slice')}",
            forecast.depth_falls_below[depth],
            forecast.depth_falls_below_between.get(depth),
        )
        for depth in chosen
    ]
    entries.append(("the next shard dies", forecast.next_shard_dies, forecast.next_shard_dies_between))
    if forecast.living_shards > 1:
        entries.append(("the last shard dies", forecast.all_shards_die, forecast.all_shards_die_between))
    most = max((between[1] for _, _, between in entries if between is not None), default=1.0)
    return tuple(
        Ahead(
            what=what,
            mean=mean,
            between=between,
            picture=None if mean is None or between is None else range_picture(mean, *between, most=max(most, 1.0)),
        )
        for what, mean, between in entries
    )


@dataclass(frozen=True, kw_only=True)
class Repairing:
    """Cost and gain of a repair, and the repairs so far."""

    missing: int
    hours: str | None
    """Its time in words; None: not known."""
    mean_before: float
    mean_after: float
    revived: int
    """Shards that answer again after it."""
    dies_before: float | None
    dies_after: float | None
    repairs: tuple[Repair, ...]
    running: Repair | None


def repairing(
    status: Status,
    repaired: Sequence[int],
    repairs: Sequence[Repair],
    *,
    ahead: Forecast | None,
    ahead_after: Forecast | None,
) -> Repairing:
    """Cost and gain of a repair.

    Args:
        repaired: depths of the shards once nothing is missing.
        repairs: the newest first.
        ahead_after: forecast once everything is repaired.
    """
    before, hours = status.depths, status.missing_hours
    return Repairing(
        missing=status.missing,
        hours=None if hours is None or not status.missing else in_words(hours),
        mean_before=mean(before),
        mean_after=mean(repaired),
        revived=sum(bool(new) and not old for old, new in zip(before, repaired, strict=True)),
        dies_before=None if ahead is None else ahead.next_shard_dies,
        dies_after=None if ahead_after is None else ahead_after.next_shard_dies,
        repairs=tuple(repairs[:6]),
        running=next((repair for repair in repairs if repair.state == "running"), None),
    )


def in_words(hours: float) -> str:
    """A time of training.

    >>> in_words(2.34), in_words(0.05)
    ('about 2.3 hours', 'about 3 min')
    """
    return f"about {hours:.1f} hours" if hours >= 0.1 else f"about {duration(3600 * hours)}"


def repaired_inventory(inventory: Inventory) -> Inventory:
    """The inventory once nothing is missing."""
    return replace(inventory, alive={**inventory.alive, **dict.fromkeys(inventory.missing(), "")}, scores=None)
