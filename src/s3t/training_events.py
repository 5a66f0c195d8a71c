"""Events of training: values that callers show, draw or log.

A loss is a function of private records. So these values go to the caller, and no file of the run ever holds one
(docs/guarantees.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from s3t.progress import Progress

if TYPE_CHECKING:  # a command's help is shown without what stages need
    from s3t.core import Stage


@dataclass(frozen=True, kw_only=True)
class TrainingStart:
    """Training begins."""

    stages: int
    """Number of missing stages, which will be trained."""


@dataclass(frozen=True, kw_only=True)
class StageStart:
    """A stage begins."""

    stage: Stage
    records: int
    """Records an epoch; an estimate where some are replayed."""
    epochs: int
    """0 for prototypes, which are not optimised."""


@dataclass(frozen=True, kw_only=True)
class EpochEnd:
    """An epoch of a stage is over."""

    stage: Stage
    epoch: int
    """Counted from 1."""
    epochs: int
    """Epochs of the stage."""
    loss: float
    """Loss as optimised: the mean over the epoch's records, each at the step that it was part of. Cross-entropy, or
    the squared error of a regression."""
    records: int
    """Number of records passed in the epoch."""
    seconds: float
    """Duration of the epoch; the first one's includes reading and encoding."""


@dataclass(frozen=True, kw_only=True)
class StageEnd:
    """A stage is trained and stored."""

    stage: Stage
    losses: tuple[float, ...]
    """Loss of each epoch; empty for prototypes, and where the prefix holds no record."""
    steps: int
    """Optimiser steps."""
    seconds: float
    """Seconds from its start until it was stored."""
    validation: float | None
    """Score of the prefix on the declared public records: its accuracy; a regression's error, below zero. None where
    none are declared."""


class StageListener(Protocol):
    """Receives steps and losses of one stage's training. Nothing that is trained or stored depends on it."""

    def advance(self, count: int) -> None:
        """Count the records of a finished step. May raise, to stop the training."""

    def end_epoch(self, loss: float) -> None:
        """Receive the mean loss of a finished epoch."""


class Unheard:
    """Listener that ignores everything."""

    def advance(self, count: int) -> None:
        """Do nothing."""

    def end_epoch(self, loss: float) -> None:
        """Do nothing."""


UNHEARD = Unheard()

Event: TypeAlias = TrainingStart | StageStart | EpochEnd | StageEnd


@runtime_checkable
class Observer(Protocol):
    """A `Progress` that also receives every event of training."""

    def hear(self, event: Event) -> None:
        """Receive an event."""


def tell(progress: Progress, event: Event) -> None:
    """Pass an event to a progress that observes events."""
    if isinstance(progress, Observer):
        progress.hear(event)
