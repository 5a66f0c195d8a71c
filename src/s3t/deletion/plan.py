"""Effects of a deletion on slices and stages, decided before anything is changed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from s3t.inventory import Inventory
from s3t.partition import Place
from s3t.stages import Stage


@dataclass(frozen=True, kw_only=True)
class Impact:
    losses: Mapping[Place, int]
    tainted: tuple[Stage, ...]
    """Live stages trained on any of those slices; their artifacts are erased."""


def plan_deletion(inventory: Inventory, losses: Mapping[Place, int]) -> Impact:
    """Every live stage whose prefix holds a slice that loses a record is tainted (paper, Algorithm 3).

    >>> from s3t.sequences import Setting, cyclic
    >>> orders = cyclic(Setting(slices=3, budget=3))
    >>> stages = {Stage(0, o[:k]): "key" for o in orders for k in (1, 2, 3)}
    >>> before = Inventory(generation=0, orders=(orders,), records={Place(0, i): 9 for i in range(3)}, alive=stages)
    >>> plan = plan_deletion(before, {Place(0, 0): 1})
    >>> after_deletion(before, plan).members()
    {0: Serving(order=(1, 2, 0), depth=2)}
    """
    return Impact(losses=dict(losses), tainted=tuple(sorted(tainted_by(losses, inventory.alive))))


def tainted_by(places: Collection[Place], stages: Iterable[Stage]) -> Iterator[Stage]:
    hit: dict[int, set[int]] = {}
    for place in places:
        hit.setdefault(place.shard, set()).add(place.slice)
    return (stage for stage in stages if stage.shard in hit and not hit[stage.shard].isdisjoint(stage.prefix))


def after_deletion(inventory: Inventory, plan: Impact) -> Inventory:
    gone = set(plan.tainted)
    return replace(
        inventory,
        generation=inventory.generation + (1 if plan.losses else 0),
        records={place: count - plan.losses.get(place, 0) for place, count in inventory.records.items()},
        alive={stage: key for stage, key in inventory.alive.items() if stage not in gone},
    )
