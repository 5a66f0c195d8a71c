"""Cost and gain of more orders, or of another policy of repair, before they are trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from s3t.aftermath import NOTHING_CHANGED, after_refusal
from s3t.core import Inventory, depths_after_hit, leaves, stages_of
from s3t.errors import InputError
from s3t.events import Progress
from s3t.planning.forecast import Gain, gain
from s3t.recipe import RepairAsNeeded, RepairPolicy
from s3t.run.orders import Policy, Spares
from s3t.run.parts import Parts
from s3t.run.reporting import hours_of
from s3t.wording import counted


@dataclass(frozen=True, kw_only=True)
class Extension:
    """Forecast of `extend`."""

    budget: int
    """B, orders a shard."""
    stages: int
    """Stages to train for the new orders."""
    lost: int
    """Missing stages of the old orders, which are trained, too, as `train` and `repair` would."""
    gain: Gain
    orders_vote: bool
    """True if orders are of use beside survival: all live ones answer, or the best on public records does."""

    @property
    def buys_nothing(self) -> bool:
        return self.stages > 0 and self.gain.is_none and not self.orders_vote

    @property
    def described(self) -> str:
        """The orders or chains of a shard after the extension, in words."""
        return f"{counted(self.budget, 'order')} a shard"

    def bought(self) -> dict[str, Any]:
        """What `s3t extend --json` adds to the document of `s3t train`."""
        return {"budget": self.budget, "gain": self.gain.to_json()}

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t extend --dry-run --json`."""
        return {
            "budget": self.budget,
            "stages": self.stages,
            "lost_stages": self.lost,
            "gain": self.gain.to_json(),
            "buys_nothing": self.buys_nothing,
        }


@dataclass(frozen=True, kw_only=True)
class RepairExtension:
    """Forecast of `extend` with more spares, or with another policy of repair."""

    repair: RepairPolicy
    """The policy that the run then has."""
    orders: int
    """B, fixed orders of a shard; of no use under repair as needed."""
    stages: int
    """Stages to train for the new chains."""
    lost: int
    """Stages that are missing already, and that `repair` would train, too."""
    hours: float | None
    """Hours in which one process trains all of these, by the times of the run's live stages; None without any."""
    before: float
    """Slices with which a shard serves right after its next hit, as expected; mean over the shards, all repaired."""
    after: float
    """The same with the new chains or orders."""

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t extend --dry-run --json`."""
        return {
            **self.bought(),
            "stages": self.stages,
            "lost_stages": self.lost,
            "hours": self.hours,
            "expected_depth_before": self.before,
            "expected_depth_after": self.after,
        }

    @property
    def buys_nothing(self) -> bool:
        """False: where the next hit shows no gain, a later one may."""
        return False

    @property
    def described(self) -> str:
        """The orders or chains of a shard after the extension, in words."""
        if not isinstance(self.repair, RepairAsNeeded):
            return f"{counted(self.orders, 'fixed order')} a shard"
        main, spares = counted(self.repair.depth, "slice"), counted(self.repair.spares, "spare")
        return f"a main chain of {main} and {spares} of {counted(self.repair.spare_depth, 'slice')} a shard"

    def bought(self) -> dict[str, Any]:
        """What `s3t extend --json` adds to the document of `s3t train`."""
        repair = self.repair
        return {
            "repair": repair
            if isinstance(repair, str)
            else repair.model_dump(mode="json", by_alias=True, exclude_none=True)
        }


def more_asked(
    *, budget: int | None, spares: int | None, spare_depth: int | None, policy: Any | None
) -> Spares | Policy | int:
    """The one thing that an extension asks for: spares, a policy of repair, or a number of orders."""
    asked = {
        "a budget": budget is not None,
        "spares or their depth": spares is not None or spare_depth is not None,
        "a policy": policy is not None,
    }
    if sum(asked.values()) != 1:
        given = " and ".join(name for name, wanted in asked.items() if wanted) or "nothing"
        raise InputError("the extension", f"{given} asked for: give one of {', '.join(asked)}")
    if budget is not None:
        return budget
    return Spares(spares=spares, depth=spare_depth) if policy is None else Policy(repair=policy)


def extension_forecast(parts: Parts, asked: Spares | Policy | int, progress: Progress) -> Extension | RepairExtension:
    if isinstance(asked, Spares | Policy):
        return _other_repair(parts, asked)
    return _more_orders(parts, budget=asked, progress=progress)


def _other_repair(parts: Parts, asked: Spares | Policy) -> RepairExtension:
    """Forecast cost and gain of more spares, longer ones, or another policy of repair."""
    with after_refusal(NOTHING_CHANGED):
        parts.check_trainable()
        description = parts.orders.proposed_repair(parts.recipe, asked)
        snapshot = parts.latest.snapshot()
        now, then = parts.latest.inventory(snapshot), parts.latest.inventory_of(snapshot, description)
        with parts.ledger.reading() as transaction:
            durations = transaction.history.durations()
    missing, wanted = set(now.missing()), then.missing()
    chances = parts.recipe.chances
    return RepairExtension(
        repair=description.present(parts.recipe).deletion.repair,
        orders=len(description.orders[0]),
        stages=len(set(wanted) - missing),
        lost=len(set(wanted) & missing),
        hours=hours_of(wanted, durations, costs=parts.recipe.stage_costs),
        before=_depth_after_hit(now, chances),
        after=_depth_after_hit(then, chances),
    )


def _depth_after_hit(inventory: Inventory, chances: Sequence[Sequence[float]]) -> float:
    """Slices with which a shard that was repaired serves right after its next hit, as expected; mean over shards."""
    kept = [
        sum(chance * depth for chance, depth in zip(row, depths_after_hit(leaves(orders), len(row)), strict=True))
        for row, orders in zip(chances, inventory.orders, strict=True)
    ]
    return sum(kept) / len(kept)


def _more_orders(parts: Parts, *, budget: int, progress: Progress) -> Extension:
    recipe = parts.recipe
    with after_refusal(NOTHING_CHANGED):
        parts.check_trainable()
        inventory = parts.latest.inventory(parts.latest.snapshot())
        orders = parts.orders.proposed(recipe, budget=budget, progress=progress)
    added = set(stages_of(orders)) - set(stages_of(inventory.orders))
    return Extension(
        budget=budget,
        stages=len(added),
        lost=len(inventory.missing()),
        gain=gain(inventory.orders, orders, priors=[setting.prior for setting in recipe.settings()]),
        orders_vote=recipe.prediction.ensemble == "sequences" or recipe.prediction.select == "validation",
    )
