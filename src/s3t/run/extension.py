"""Cost and gain of more orders, or of another policy of repair, before they are trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from s3t.aftermath import NOTHING_CHANGED, after_refusal
from s3t.core import Inventory, depths_after_hit, leaves
from s3t.events import Progress
from s3t.planning.forecast import Gain, gain
from s3t.recipe import RepairAsNeeded, RepairPolicy
from s3t.results.base import Result
from s3t.run.orders import Addition
from s3t.run.parts import Parts
from s3t.run.reporting import hours_of
from s3t.wording import counted


class Extension(Result):
    """Forecast of `extend`."""

    budget: int
    """B, fixed orders of a shard; of no use under repair as needed."""
    repair: RepairPolicy
    """The policy of repair that the run then has."""
    stages: int
    """Stages to train for what is added."""
    lost_stages: int
    """Stages that are missing already, and that `repair` would train, too."""
    hours: float | None
    """Hours in which one process trains all of these, by the times of the run's live stages; None without any."""
    gain: Gain
    """Expected depth before and after; of chains or another policy, after the next deletion in a shard alone."""
    buys_nothing: bool
    """True if orders are added that keep no shard deeper, and that are of no use beside that. Of chains it is not said:
    where the next hit shows no gain, a later one may."""

    @property
    def described(self) -> str:
        """The orders or chains of a shard after the extension, in words."""
        if not isinstance(self.repair, RepairAsNeeded):
            return f"{counted(self.budget, 'order')} a shard"
        main, spares = counted(self.repair.depth, "slice"), counted(self.repair.spares, "spare")
        return f"a main chain of {main} and {spares} of {counted(self.repair.spare_depth, 'slice')} a shard"

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t extend --dry-run --json`."""
        return self.model_dump(mode="json", by_alias=True)


def extension_by(parts: Parts, added: Addition, progress: Progress) -> Extension:
    recipe = parts.recipe
    with after_refusal(NOTHING_CHANGED):
        parts.check_trainable()
        description = parts.orders.proposed(recipe, added, progress=progress)
        snapshot = parts.latest.snapshot()
        now, then = parts.latest.inventory(snapshot), parts.latest.inventory_of(snapshot, description)
        with parts.ledger.reading() as transaction:
            durations = transaction.history.durations()
    missing, wanted = set(now.missing()), then.missing()
    if added.budget is None:
        before, after = (_depth_after_hit(inventory, recipe.chances) for inventory in (now, then))
        gained = Gain(deletions=(1,), before=(before,), after=(after,))
    else:
        gained = gain(now.orders, then.orders, priors=[setting.prior for setting in recipe.settings()])
    orders_vote = recipe.prediction.ensemble == "sequences" or recipe.prediction.select == "validation"
    stages = len(set(wanted) - missing)
    return Extension(
        budget=len(description.orders[0]),
        repair=description.present(recipe).deletion.repair,
        stages=stages,
        lost_stages=len(set(wanted) & missing),
        hours=hours_of(wanted, durations, costs=recipe.stage_costs),
        gain=gained,
        buys_nothing=added.budget is not None and stages > 0 and gained.is_none and not orders_vote,
    )


def _depth_after_hit(inventory: Inventory, chances: Sequence[Sequence[float]]) -> float:
    """Slices with which a shard that was repaired serves right after its next hit, as expected; mean over shards."""
    kept = [
        sum(chance * depth for chance, depth in zip(row, depths_after_hit(leaves(orders), len(row)), strict=True))
        for row, orders in zip(chances, inventory.orders, strict=True)
    ]
    return sum(kept) / len(kept)
