"""A shard as a forest: live chains of stages, each with a depth of its own, grown as they are needed. Pure."""

from s3t.forests.costs import StageCosts
from s3t.forests.policy import AsNeeded, Chains, Growth, depths_after_hit, leaves, prefixes_of, without

__all__ = ["AsNeeded", "Chains", "Growth", "StageCosts", "depths_after_hit", "leaves", "prefixes_of", "without"]
