"""Cost and gain of more orders, or of more spares, before they are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from s3t.aftermath import NOTHING_CHANGED, after_refusal
from s3t.errors import InputError
from s3t.forests import depths_after_hit, leaves
from s3t.inventory import Inventory
from s3t.planning.gain import Gain, gain
from s3t.progress import Progress
from s3t.run.forecasting import hours_of
from s3t.run.orders import Spares
from s3t.run.parts import Parts
from s3t.stages import stages_of
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
    """Gain in depth after deletions."""
    orders_vote: bool
    """True if orders are of use beside survival: all live ones answer, or the best on public records does."""

    @property
    def buys_nothing(self) -> bool:
        """True if the new orders would change nothing."""
        return self.stages > 0 and self.gain.is_none and not self.orders_vote

    @property
    def described(self) -> str:
        """What a shard then has."""
        return counted(self.budget, "order")

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
class SpareExtension:
    """Forecast of `extend` where a run is repaired as needed."""

    spares: int
    """Chains that a shard has beside the main one."""
    spare_depth: int
    """Slices of each."""
    stages: int
    """Stages to train for the new chains."""
    lost: int
    """Stages that are missing already, and that `repair` would train, too."""
    hours: float | None
    """Hours in which one process trains all of these, by the times of the run's live stages; None without any."""
    before: float
    """Slices with which a shard serves right after its next hit, as expected; mean over the shards, all repaired."""
    after: float
    """The same with the new chains."""

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t extend --dry-run --json`."""
        return {
            "spares": self.spares,
            "spare_depth": self.spare_depth,
            "stages": self.stages,
            "lost_stages": self.lost,
            "hours": self.hours,
            "expected_depth_before": self.before,
            "expected_depth_after": self.after,
        }

    @property
    def buys_nothing(self) -> bool:
        """False: where the next hit shows no gain, a later one does."""
        return False

    @property
    def described(self) -> str:
        """What a shard then has."""
        return f"{counted(self.spares, 'spare')} of {counted(self.spare_depth, 'slice')}"

    def bought(self) -> dict[str, Any]:
        """What `s3t extend --json` adds to the document of `s3t train`."""
        return {"spares": self.spares, "spare_depth": self.spare_depth}


def more_asked(*, budget: int | None, spares: int | None, spare_depth: int | None) -> Spares | int:
    """What an extension asks for: spares, or a number of orders.

    Raises:
        InputError: it asks for both, or for nothing.
    """
    if spares is None and spare_depth is None:
        if budget is None:
            raise InputError("the extension", "give a budget; or spares, or their depth, of a run repaired as needed")
        return budget
    if budget is not None:
        raise InputError(
            "the extension", "a budget adds fixed orders, and spares are of runs without: give one of both"
        )
    return Spares(spares=spares, depth=spare_depth)


def spare_extension_of(parts: Parts, asked: Spares) -> SpareExtension:
    """Forecast cost and gain of more spares, or of longer ones.

    Raises:
        InputError: the run has fixed orders, or such spares cannot be added.
        KeyDestroyedError: nothing can be trained any more.
    """
    with after_refusal(NOTHING_CHANGED):
        parts.check_trainable()
        description, policy = parts.orders.proposed_spares(parts.recipe, asked)
        snapshot = parts.latest.snapshot()
        now, then = parts.latest.inventory(snapshot), parts.latest.inventory_of(snapshot, description)
        with parts.ledger.reading() as transaction:
            durations = transaction.history.durations()
    missing, wanted = set(now.missing()), then.missing()
    return SpareExtension(
        spares=policy.spares,
        spare_depth=policy.spare_depth,
        stages=len(set(wanted) - missing),
        lost=len(set(wanted) & missing),
        hours=hours_of(wanted, durations, slices=then.slices),
        before=_depth_after_hit(now),
        after=_depth_after_hit(then),
    )


def _depth_after_hit(inventory: Inventory) -> float:
    """Slices with which a shard that was repaired serves right after its next hit, as expected; mean over shards."""
    chances = () if inventory.growth is None else inventory.growth.chances
    kept = [
        sum(chance * depth for chance, depth in zip(row, depths_after_hit(leaves(chains), len(row)), strict=True))
        for row, chains in zip(chances, inventory.orders, strict=True)
    ]
    return sum(kept) / len(kept)


def extension_of(parts: Parts, *, budget: int, progress: Progress) -> Extension:
    """Forecast cost and gain of orders up to a budget.

    Args:
        parts: roles of the open run.
        budget: B.
        progress: hears of the choice of orders.

    Raises:
        InputError: there are no such orders to add.
        KeyDestroyedError: nothing can be trained any more.
    """
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
