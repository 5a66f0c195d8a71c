"""The policy of repairs after deletions. Pure."""

from __future__ import annotations

from s3t.inventory import Inventory
from s3t.recipe import AsNeeded, BelowDepth, RepairPolicy


def repair_due(policy: RepairPolicy, inventory: Inventory, *, trained: bool) -> bool:
    """True if a policy asks for a repair now. `trained`: the run once had a live stage; else nothing is to repair."""
    if not trained or policy == "manual" or not inventory.missing():
        return False
    if policy == "eager" or isinstance(policy, AsNeeded):
        return True
    depths = inventory.depths()
    if isinstance(policy, BelowDepth):
        return min(depths) < policy.below_depth
    return not any(depths)  # on-exhaustion: no shard answers any more
