"""Consequences of a deletion, and places of names, as the page shows them. Pure: asks neither ledger nor clock."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from s3t.results.changes import Deletion
from s3t.results.log import Location
from s3t.wording import counted
from s3t_server.page.outlook import in_words
from s3t_server.page.pictures import chains_picture
from s3t_server.page.views import MOST_CHAINS, chains_of

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
    """Forecast of a deletion, prepared for the page."""

    done: Deletion
    hits: tuple[Hit, ...]
    more: int
    """Shards that are hit, too, and not drawn."""
    repair: str | None
    """Time of a repair of everything afterwards; None: not known."""


def consequences(done: Deletion, *, name: str) -> Consequences:
    """Consequences of a deletion. Ids of pictures begin with `name`: a page may show two deletions."""
    slices: dict[int, list[int]] = {}
    for place in done.slices:
        slices.setdefault(place.shard, []).append(place.slice)
    shards, before = done.shards, done.depths_before
    longest = max((len(chain.order) for shard in shards for chain in shard.sequences), default=1)
    return Consequences(
        done=done,
        hits=tuple(
            Hit(
                shard=shard.shard,
                before=before[shard.shard],
                after=shard.depth,
                slices=tuple(slices[shard.shard]),
                picture=chains_picture(shard.shard, chains_of(shard)[:MOST_CHAINS], longest=longest, name=name),
            )
            for shard in shards[:_MOST_HITS]
        ),
        more=max(0, len(shards) - _MOST_HITS),
        repair=None if done.missing_hours is None else in_words(done.missing_hours),
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
