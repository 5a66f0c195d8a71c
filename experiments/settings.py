"""What every experiment is told, read from its config.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field

from s3t.core import AsNeeded
from s3t.wording import counted


class Settings(BaseModel):
    """Settings of an experiment. All of them stand in its config.yaml: there are no defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(ge=0)
    """All randomness derives from it."""


class TrainingSettings(Settings):
    """Of an experiment that trains."""

    made_up: bool
    """Made-up records in the place of real ones: that it works, no measurement."""
    training: dict[str, Any]
    """Of the recipe."""


class SeededSettings(TrainingSettings):
    """Of one that trains under several seeds."""

    seeds: tuple[int, ...]
    """Of the trainings."""


class TaskSettings(BaseModel):
    """Of one of several tasks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(ge=1)
    """Of every stage, and of a full training."""
    learning_rate: float = Field(gt=0)
    """The same for all that is compared."""
    head_learning_rate: float | None = Field(default=None, gt=0, exclude_if=lambda rate: rate is None)
    """None: the same. Results that have none were measured before there was one."""
    records: int | None
    """To train on; None: all."""

    def training(self, common: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
        """The recipe's training part.

        Args:
            common: what tasks have in common.
            seed: of the training.
        """
        rates = {"learning_rate": self.learning_rate, "head_learning_rate": self.head_learning_rate}
        own = {"epochs": self.epochs, **{name: rate for name, rate in rates.items() if rate is not None}, "seed": seed}
        return {**common, **own}


class SlicedTaskSettings(TaskSettings):
    """Of one of several tasks, each with slices of its own."""

    slices: int = Field(ge=1)
    """L; a block is as many layers as there are, divided by L."""


class Grown(BaseModel):
    """Chains of a shard that is repaired as needed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    depth: int
    """Slices of the main chain."""
    spares: int
    """Other chains."""
    spare_depth: int = Field(default=1, exclude_if=lambda depth: depth == 1)
    """Slices of them."""

    def __str__(self) -> str:
        """The chains in words."""
        of_more = f" of {self.spare_depth}" if self.spares and self.spare_depth > 1 else ""
        return f"depth {self.depth}, {counted(self.spares, 'spare')}{of_more}"

    @property
    def policy(self) -> AsNeeded:
        """The policy of repair."""
        return AsNeeded(depth=self.depth, spares=self.spares, spare_depth=self.spare_depth)


S = TypeVar("S", bound=Settings)


def load(kind: type[S], path: Path, *, smoke: bool = False) -> S:
    """The settings in a file.

    Args:
        kind: which settings.
        path: of the file.
        smoke: those of its `smoke` part in the place of others: a small size, to see that it works.

    Raises:
        pydantic.ValidationError: with everything that is wrong.
    """
    found = yaml.safe_load(path.read_text())
    small = found.pop("smoke", {})
    return kind.model_validate(found | small if smoke else found)
