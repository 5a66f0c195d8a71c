"""What the page's templates show, from a run's status and history. Pure: asks neither the ledger nor the clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from markupsafe import Markup

from s3t.inventory import Inventory
from s3t.ledger import LogEntry, Repair
from s3t.ledger.depths import DepthChange
from s3t.planning.forecast import Forecast, Spread
from s3t.run.locating import Location
from s3t.run.results import DeletionReport, Status
from s3t.serve.page.pictures import Chain, chains_picture, depths_picture, range_picture
from s3t.stages import Stage
from s3t.wording import counted, duration

MOST_SHARDS, MOST_CHAINS = 40, 24
"""Shards and chains of each that are drawn; of others the number is told."""
_MOST_HITS = 12
"""Shards that a deletion hits and that are drawn."""
_MOST_FALLS = 4
"""Depths whose loss is foretold."""
_COLUMNS = 300
"""Steps of the depths' picture."""
SPANS = {"hour": 3_600.0, "day": 86_400.0, "month": 30 * 86_400.0, "all": float("inf")}
"""Seconds of history that a visitor may choose."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A number, what it is, and what to make of it."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A run at a glance."""

    tone: Literal["good", "fair", "bad"]
    sentence: str
    facts: tuple[Fact, ...]


def summary(status: Status, forecast: Forecast | None) -> Summary:
    """A run at a glance, with the forecast that is known."""
    depths, wanted = status.depths, wanted_depth(status.inventory)
    living, mean = sum(map(bool, depths)), _mean(depths)
    tone: Literal["good", "fair", "bad"] = "good" if living == len(depths) else "fair" if living else "bad"
    waiting = len(status.unfinished)
    dies = None if forecast is None or not living else forecast.next_shard_dies
    return Summary(
        tone=tone,
        sentence=health(depths, wanted),
        facts=(
            Fact(label="Shards that answer", value=f"{living} of {len(depths)}", note=_deadest(depths)),
            Fact(label="Mean depth", value=f"{mean:.1f} of {wanted}", note="slices, over all shards"),
            Fact(
                label="Until the next shard dies",
                value="none alive" if not living else "never" if dies is None else f"about {dies:.0f}",
                note=_between(None if forecast is None else forecast.next_shard_dies_between, "deletions"),
            ),
            Fact(
                label="Records",
                value=f"{status.records:,}",
                note=f"after {counted(status.generation, 'deletion')}",
            ),
            Fact(
                label="Not erased yet",
                value=f"{waiting:,}",
                note="deletions" if waiting else "every deletion is complete",
            ),
        ),
    )


def health(depths: Sequence[int], wanted: int) -> str:
    """How a run does, in one sentence.

    >>> health([4, 3, 2, 3, 4], 4), health([4, 4], 4), health([0, 3], 4), health([0], 2)
    ('All 5 shards answer; 3.2 of 4 slices in the mean.', 'All 2 shards answer, each with all 4 slices.', \
'1 of 2 shards answers; 1.5 of 4 slices in the mean.', 'No shard answers; repair brings them back.')
    """
    living, shards = sum(map(bool, depths)), len(depths)
    if not living:
        return "No shard answers; repair brings them back."
    who = (
        f"{living} of {shards} shards"
        if living < shards
        else "The one shard"
        if shards == 1
        else f"All {shards} shards"
    )
    verb = "answers" if living == 1 else "answer"
    if min(depths) >= wanted:
        return f"{who} {verb}, {'' if shards == 1 else 'each '}with all {counted(wanted, 'slice')}."
    return f"{who} {verb}; {_mean(depths):.1f} of {counted(wanted, 'slice')} in the mean."


def wanted_depth(inventory: Inventory) -> int:
    """Slices that a shard serves with after its repairs."""
    return inventory.slices if inventory.growth is None else inventory.growth.policy.depth


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


def _deadest(depths: Sequence[int]) -> str:
    if dead := [shard for shard, depth in enumerate(depths) if not depth]:
        return f"shard {dead[0]} does not" if len(dead) == 1 else f"{len(dead)} do not"
    low = min(depths)
    return f"the shallowest with {counted(low, 'slice')}"


def _between(spread: Spread | None, what: str) -> str:
    return "" if spread is None else f"{what}, mostly {spread[0]:.0f} to {spread[1]:.0f}"


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A shard as it is drawn."""

    number: int
    records: int
    depth: int
    wanted: int
    score: float | None
    """Of its serving prefix, on the public records of the recipe."""
    picture: Markup
    more: int
    """Chains that are not drawn."""


@dataclass(frozen=True, kw_only=True)
class Shards:
    """The shards that are drawn, the shallowest first if not all are."""

    drawn: tuple[Shard, ...]
    more: int
    training: int
    """Stages that are being trained."""
    longest: int
    """Slices of the longest chain."""
    scored: bool
    """True if the run measures scores on public records."""


def shards(status: Status, training: Collection[Stage]) -> Shards:
    """The shards of a run, with the stages that are being trained."""
    inventory, depths = status.inventory, status.depths
    numbers = list(range(len(depths)))
    if len(numbers) > MOST_SHARDS:
        numbers = sorted(sorted(numbers, key=lambda shard: depths[shard])[:MOST_SHARDS])
    longest = max((len(order) for orders in inventory.orders for order in orders), default=1)
    drawn = tuple(_shard(status, shard, training, longest) for shard in numbers)
    return Shards(
        drawn=drawn,
        more=len(depths) - len(numbers),
        training=len(training),
        longest=longest,
        scored=any(shard.score is not None for shard in drawn),
    )


def _shard(status: Status, shard: int, training: Collection[Stage], longest: int) -> Shard:
    inventory = status.inventory
    chains = chains_of(inventory, shard, training)
    serving = inventory.serving(shard)
    shown = chains[:MOST_CHAINS]
    if not any(chain.serving for chain in shown):
        shown = [*shown[:-1], *(chain for chain in chains if chain.serving)][:MOST_CHAINS]
    return Shard(
        number=shard,
        records=sum(inventory.records_in(shard, (index,)) for index in range(inventory.slices)),
        depth=0 if serving is None else serving.depth,
        wanted=wanted_depth(inventory),
        score=None if serving is None else _score(inventory, Stage(shard, serving.prefix)),
        picture=chains_picture(shard, shown, longest=longest),
        more=len(chains) - len(shown),
    )


def _score(inventory: Inventory, stage: Stage) -> float | None:
    return None if inventory.scores is None else inventory.scores.get(inventory.alive[stage])


def chains_of(inventory: Inventory, shard: int, training: Collection[Stage] = ()) -> list[Chain]:
    """A shard's chains: of fixed orders those, else those that it has and that a repair makes."""
    serving, growth = inventory.serving(shard), inventory.growth
    chains = []
    for place, order in enumerate(inventory.orders[shard]):
        live = inventory.depth(shard, order)
        next_one = Stage(shard, order[: live + 1])
        serves = serving is not None and serving.order == order
        chains.append(
            Chain(
                slices=order,
                live=live,
                serving=serving.depth if serves and serving is not None else 0,
                training=live if live < len(order) and next_one in training else None,
                name="" if growth is None else _name(place, growth.policy.spares),
            )
        )
    return chains


def _name(place: int, spares: int) -> str:
    return "main" if place == 0 else "spare" if place <= spares else "other"


@dataclass(frozen=True, kw_only=True)
class Depths:
    """Depths over time."""

    picture: Markup | None
    """None: nothing has changed in that time."""
    began: float
    now: float
    most: int
    rows: tuple[DepthChange, ...]
    """The newest changes, the newest first."""
    span: str


def depths_over_time(
    changes: Sequence[DepthChange], depths: Sequence[int], *, now: float, span: str, most: int
) -> Depths:
    """Depths over a span of time.

    Args:
        changes: the oldest first.
        depths: of each shard now.
        now: seconds since the epoch.
        span: a key of `SPANS`.
        most: slices that shards are repaired to.
    """
    since = now - SPANS[span]
    within = [change for change in changes if change.changed_at >= since and change.shard < len(depths)]
    newest = tuple(reversed(within[-20:]))
    if not within:
        return Depths(picture=None, began=now, now=now, most=most, rows=(), span=span)
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
    picture = depths_picture([*times, max(now, times[-1])], rows, most=max(most, *(row[2] for row in rows)))
    return Depths(picture=picture, began=began, now=now, most=most, rows=newest, span=span)


def _row(state: Sequence[int]) -> tuple[float, int, int]:
    return _mean(state), min(state), max(state)


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """Something that comes to pass after so many deletions."""

    what: str
    mean: float | None
    between: Spread | None
    picture: Markup | None


def ahead(forecast: Forecast | None) -> tuple[Ahead, ...]:
    """What lies ahead without repair, the soonest first."""
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
    """What a repair costs and buys, and the repairs so far."""

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
    status: Status, repairs: Sequence[Repair], *, ahead: Forecast | None, ahead_after: Forecast | None
) -> Repairing:
    """What a repair costs and buys.

    Args:
        status: of the run.
        repairs: the newest first.
        ahead: forecast from now on.
        ahead_after: forecast once everything is repaired.
    """
    before, repaired = status.depths, repaired_inventory(status.inventory).depths()
    hours = status.missing_hours
    return Repairing(
        missing=status.missing,
        hours=None if hours is None or not status.missing else in_words(hours),
        mean_before=_mean(before),
        mean_after=_mean(repaired),
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


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A shard that a deletion hits."""

    shard: int
    before: int
    """Slices that serve before it."""
    after: int
    """Slices that serve after it."""
    slices: tuple[int, ...]
    """Slices that lose a record."""
    picture: Markup
    """Chains after it."""


@dataclass(frozen=True, kw_only=True)
class Consequences:
    """What a deletion would do."""

    records: int
    hits: tuple[Hit, ...]
    stages_lost: int
    repair: str | None
    """Time of a repair of everything afterwards; None: not known."""
    exports: int
    """Exports that have to be withdrawn."""
    last: bool
    """True if no shard would answer."""


def consequences(report: DeletionReport) -> Consequences:
    """What a deletion would do, from its dry run."""
    inventory, before, after = report.status.inventory, report.depths_before, report.status.depths
    longest = max((len(order) for orders in inventory.orders for order in orders), default=1)
    hits: dict[int, list[int]] = {}
    for place in report.slices:
        hits.setdefault(place.shard, []).append(place.slice)
    hours = report.status.missing_hours
    return Consequences(
        records=report.deleted,
        hits=tuple(
            Hit(
                shard=shard,
                before=before[shard],
                after=after[shard],
                slices=tuple(slices),
                picture=chains_picture(shard, chains_of(inventory, shard)[:MOST_CHAINS], longest=longest, name="after"),
            )
            for shard, slices in list(hits.items())[:_MOST_HITS]
        ),
        stages_lost=report.stages_lost,
        repair=None if hours is None else in_words(hours),
        exports=len(report.to_withdraw),
        last=not any(after),
    )


def location_in_words(location: Location) -> str:
    """Where a name is, in words."""
    if location.present:
        places = ", ".join(f"slice {place.slice} of shard {place.shard}" for place in location.places)
        return f"{counted(location.records, 'record')} in {places}"
    if location.deleted is not None:
        return f"deleted before, by deletion {location.deleted.generation} ({location.deleted.state})"
    if location.unreadable:
        return "unknown; some slices cannot be read"
    return "the run has never held it"


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """A deletion in the log."""

    entry: LogEntry
    steps: tuple[tuple[str, float | None, str], ...]
    """Each step, its time, and how long after the request it came."""

    @property
    def states(self) -> int:
        """Steps that are complete, of four."""
        return sum(time is not None for _, time, _ in self.steps)


def deletions(entries: Iterable[LogEntry]) -> tuple[Deletion, ...]:
    """Entries of the log, without the making of the run."""
    return tuple(deletion(entry) for entry in entries if entry.generation > 0)


def deletion(entry: LogEntry) -> Deletion:
    """An entry of the log."""
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
