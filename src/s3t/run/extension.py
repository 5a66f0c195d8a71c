"""Cost and gain of more orders, before they are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from s3t.aftermath import NOTHING_CHANGED, after_refusal
from s3t.planning.gain import Gain, gain
from s3t.progress import Progress
from s3t.run.parts import Parts
from s3t.stages import stages_of


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

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t extend --dry-run --json`."""
        return {
            "budget": self.budget,
            "stages": self.stages,
            "lost_stages": self.lost,
            "gain": self.gain.to_json(),
            "buys_nothing": self.buys_nothing,
        }


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
