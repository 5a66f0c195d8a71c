"""Training one stage: a pure function of its records, its parents and declared numbers."""

from s3t.training.examples import EncodedSlice, Examples
from s3t.training.numerics import environment, exact_numerics, resolve_device, resolved, slow_precision
from s3t.training.stage import TrainingResult, train_stage
from s3t.training.trunk import TrunkCache, fill_cache

__all__ = [
    "EncodedSlice",
    "Examples",
    "TrainingResult",
    "TrunkCache",
    "environment",
    "exact_numerics",
    "fill_cache",
    "resolve_device",
    "resolved",
    "slow_precision",
    "train_stage",
]
