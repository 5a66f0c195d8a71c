"""Events of long work, and the functions that hear them.

`progress=` takes any function of one event: a `ProgressBar`, the `append` of a list, a function that calls several
others. If it raises, the work stops. What is trained, answered or stored never depends on it.

A loss is a function of private records. So it goes to the caller, and no file of the run ever holds one
(docs/guarantees.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # a command's help is shown without what stages need
    from s3t.core import Stage


@dataclass(frozen=True, kw_only=True)
class WorkStart:
    """A piece of work begins."""

    what: str
    """Its name, with its size in the user's units."""
    total: int
    """Number of its steps. They are of any size: only the share that is done counts. 0: there is nothing to do."""


@dataclass(frozen=True, kw_only=True)
class WorkNote:
    """A part of the work begins."""

    what: str


@dataclass(frozen=True, kw_only=True)
class WorkWarning:
    """Something is likely to be wrong with work that begins; it goes on."""

    what: str


@dataclass(frozen=True, kw_only=True)
class WorkStep:
    """Steps are done."""

    count: int
    loss: float | None = None
    """Mean loss over the epoch's records, where these steps end an epoch (see `EpochEnd`); else None."""


@dataclass(frozen=True, kw_only=True)
class WorkEnd:
    """The work is over, finished or aborted."""


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


Event: TypeAlias = (
    WorkStart | WorkNote | WorkWarning | WorkStep | WorkEnd | TrainingStart | StageStart | EpochEnd | StageEnd
)
Progress: TypeAlias = Callable[[Event], None]


def silent(_event: Event) -> None:
    """The progress of callers that give none."""


@contextmanager
def telling(progress: Progress, what: str, total: int) -> Iterator[None]:
    """Start a piece of work and, whatever happens within, end it."""
    progress(WorkStart(what=what, total=total))
    try:
        yield
    finally:
        progress(WorkEnd())
