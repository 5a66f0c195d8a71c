"""A shard as a forest: live chains of stages, each with a depth of its own, grown as they are needed. Pure."""

from s3t.forests.chains import Chains, depths_after_hit, leaves, prefixes_of, without
from s3t.forests.costs import StageCosts
from s3t.forests.growth import Growth
from s3t.forests.policy import AsNeeded

__all__ = ["AsNeeded", "Chains", "Growth", "StageCosts", "depths_after_hit", "leaves", "prefixes_of", "without"]
