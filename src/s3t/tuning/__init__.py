"""Choosing a recipe's numbers on public data, by Optuna; private records are refused."""

from s3t.tuning.space import read_space
from s3t.tuning.study import Tuning, tune

__all__ = ["Tuning", "read_space", "tune"]
