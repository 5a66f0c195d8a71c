"""When what deletions cost is trained again without being asked for. Pure."""

from __future__ import annotations

from s3t.inventory import Inventory
from s3t.recipe import BelowDepth, RepairPolicy


def repair_due(policy: RepairPolicy, inventory: Inventory) -> bool:
    """Whether a policy asks for a repair now.

    Args:
        policy: the recipe's `deletion.repair`.
        inventory: what is alive after a deletion.
    """
    if policy == "manual" or not inventory.missing():
        return False
    if policy == "eager":
        return True
    members = inventory.members()
    if isinstance(policy, BelowDepth):
        depths = [members[shard].depth if shard in members else 0 for shard in range(len(inventory.orders))]
        return min(depths) < policy.below_depth
    return not members  # on-exhaustion: nothing answers any more
