"""Consequences of a deletion, and places of names, as the page shows them. Pure: asks neither ledger nor clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from s3t.inventory import Inventory
from s3t.partition import Place
from s3t.run.advice import outage
from s3t.run.locating import Location
from s3t.serve.page.outlook import in_words
from s3t.serve.page.pictures import chains_picture
from s3t.serve.page.views import MOST_CHAINS, chains_of
from s3t.wording import counted

_MOST_HITS = 12
"""Shards that a deletion hits and that are drawn."""


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
    """Consequences of a deletion."""

    records: int
    hits: tuple[Hit, ...]
    more: int
    """Shards that are hit, too, and not drawn."""
    stages_lost: int
    repair: str | None
    """Time of a repair of everything afterwards; None: not known."""
    exports: int
    """Exports that have to be withdrawn."""
    outage: tuple[str, ...]
    """A warning of shards that would not answer, or none."""
    last: bool
    """True if no shard would answer."""


def consequences(
    before: Inventory,
    after: Inventory,
    *,
    records: int,
    slices: Iterable[Place],
    stages_lost: int,
    hours: float | None = None,
    exports: int = 0,
    prototypes_alone: bool,
    name: str,
) -> Consequences:
    """Consequences of a deletion.

    Args:
        hours: of a repair of everything afterwards; None: not known.
        prototypes_alone: whether a shard's prototypes answer without its model.
        name: beginning of the pictures' ids; a page may show two deletions.
    """
    hits: dict[int, list[int]] = {}
    for place in sorted(slices):
        hits.setdefault(place.shard, []).append(place.slice)
    depths_before, depths = before.depths(), after.depths()
    longest = max((len(order) for orders in after.orders for order in orders), default=1)
    return Consequences(
        records=records,
        hits=tuple(
            Hit(
                shard=shard,
                before=depths_before[shard],
                after=depths[shard],
                slices=tuple(hit),
                picture=chains_picture(shard, chains_of(after, shard)[:MOST_CHAINS], longest=longest, name=name),
            )
            for shard, hit in list(hits.items())[:_MOST_HITS]
        ),
        more=max(0, len(hits) - _MOST_HITS),
        stages_lost=stages_lost,
        repair=None if hours is None else in_words(hours),
        exports=exports,
        outage=outage(after, trained=True, prototypes_alone=prototypes_alone, planned=True),
        last=not after.answering(prototypes_alone=prototypes_alone),
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
