"""A run at a glance, and its shards, as the page shows them. Pure: asks neither the ledger nor the clock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from s3t.core import Stage
from s3t.planning.forecast import Forecast, Spread
from s3t.results.state import Shard as ShardState
from s3t.results.state import Status
from s3t.wording import counted
from s3t_server.page.pictures import Chain, chains_picture

MOST_SHARDS, MOST_CHAINS = 40, 24
"""Shards and chains of each that are drawn; of others the number is told."""


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
    depths, wanted = status.depths, status.wanted_depth
    living = sum(map(bool, depths))
    tone: Literal["good", "fair", "bad"] = "good" if living == len(depths) else "fair" if status.answering else "bad"
    waiting = len(status.unfinished)
    dies = None if forecast is None or not living else forecast.next_shard_dies
    return Summary(
        tone=tone,
        sentence=health(depths, wanted) if living else _without_models(status),
        facts=(
            Fact(label="Shards that answer", value=f"{len(status.answering)} of {len(depths)}", note=_deadest(status)),
            Fact(label="Mean depth", value=f"{mean(depths):.1f} of {wanted}", note="slices, over all shards"),
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
    """How a run does of which some shard's model answers, in one sentence.

    >>> health([4, 3, 2, 3, 4], 4), health([4, 4], 4), health([0, 3], 4)
    ('All 5 shards answer; 3.2 of 4 slices in the mean.', 'All 2 shards answer, each with all 4 slices.', \
'1 of 2 shards answers; 1.5 of 4 slices in the mean.')
    """
    living, shards = sum(map(bool, depths)), len(depths)
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
    return f"{who} {verb}; {mean(depths):.1f} of {counted(wanted, 'slice')} in the mean."


def _without_models(status: Status) -> str:
    """The same of a run of which no shard's model answers: in the words of `s3t status`, where it warns."""
    if status.outage:
        (warning,) = status.outage
        return f"{warning[0].upper()}{warning[1:]}."
    return "Prototypes answer alone." if status.answering else "No shard answers yet: no stage is trained."


def mean(values: Collection[float]) -> float:
    """The mean of some numbers, at least one."""
    return sum(values) / len(values)


def _deadest(status: Status) -> str:
    if dead := sorted({*range(len(status.depths))} - {*status.answering}):
        return f"shard {dead[0]} does not" if len(dead) == 1 else f"{len(dead)} do not"
    low = min(status.depths)
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
    """Score of its serving prefix on the recipe's public records; None: not measured."""
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
    depths = status.depths
    numbers = list(range(len(depths)))
    if len(numbers) > MOST_SHARDS:
        numbers = sorted(sorted(numbers, key=lambda shard: depths[shard])[:MOST_SHARDS])
    longest = max((len(chain.order) for shard in status.shards for chain in shard.sequences), default=1)
    drawn = tuple(_shard(status.shards[number], status.wanted_depth, training, longest) for number in numbers)
    return Shards(
        drawn=drawn,
        more=len(depths) - len(numbers),
        training=len(training),
        longest=longest,
        scored=any(shard.score is not None for shard in drawn),
    )


def _shard(state: ShardState, wanted: int, training: Collection[Stage], longest: int) -> Shard:
    chains = chains_of(state, training)
    shown = chains[:MOST_CHAINS]
    if not any(chain.serving for chain in shown):
        shown = [*shown[:-1], *(chain for chain in chains if chain.serving)][:MOST_CHAINS]
    return Shard(
        number=state.shard,
        records=sum(state.slices),
        depth=state.depth,
        wanted=wanted,
        score=state.score,
        picture=chains_picture(state.shard, shown, longest=longest),
        more=len(chains) - len(shown),
    )


def chains_of(state: ShardState, training: Collection[Stage] = ()) -> list[Chain]:
    """A shard's chains: of fixed orders those, else those that it has and that a repair makes."""
    return [
        Chain(
            slices=chain.order,
            live=chain.depth,
            serving=chain.depth if chain == state.serving else 0,
            training=chain.depth
            if chain.depth < len(chain.order) and Stage(state.shard, chain.order[: chain.depth + 1]) in training
            else None,
            name=chain.name,
        )
        for chain in state.sequences
    ]
