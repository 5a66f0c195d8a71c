"""Choosing a recipe's numbers on public data, by Optuna; private records are refused."""

from s3t.tuning.space import Choice, read_space
from s3t.tuning.study import Trial, Tuning, tune

__all__ = ["Choice", "Trial", "Tuning", "read_space", "tune"]
