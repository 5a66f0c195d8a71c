"""Training one stage: a pure function of its records, its parents and declared numbers."""

from s3t.training.numerics import environment, exact_numerics, resolve_device, resolved
from s3t.training.stage import Examples, Trained, train_stage

__all__ = [
    "Examples",
    "Trained",
    "environment",
    "exact_numerics",
    "resolve_device",
    "resolved",
    "train_stage",
]
