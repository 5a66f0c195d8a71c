"""Progress of a stage in training: its records, its epochs, and its end."""

from __future__ import annotations

import time

from s3t.ledger.work import Work
from s3t.progress import Progress
from s3t.stages import Stage
from s3t.store import Manifest
from s3t.training_events import EpochEnd, Event, StageEnd, StageStart, tell


class StageReport:
    """Listener of one stage's training: reports progress, and stops the training if a deletion overtakes it.

    `records` are those of an epoch, about.
    """

    def __init__(self, stage: Stage, *, records: int, epochs: int, progress: Progress, work: Work) -> None:
        self._stage, self._epochs, self._progress, self._work = stage, epochs, progress, work
        self._losses: list[float] = []
        self._records = 0
        self._began = self._epoch_began = time.monotonic()
        progress.note(str(stage))
        tell(progress, StageStart(stage=stage, records=records, epochs=epochs))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def advance(self, count: int) -> None:
        self._records += count
        self._progress.advance(count)
        self._work.check()

    def end_epoch(self, loss: float) -> None:
        now = time.monotonic()
        self._losses.append(loss)
        tell(
            self._progress,
            EpochEnd(
                stage=self._stage,
                epoch=len(self._losses),
                epochs=self._epochs,
                loss=loss,
                records=self._records,
                seconds=now - self._epoch_began,
            ),
        )
        self._records, self._epoch_began = 0, now

    def stored(self, manifest: Manifest) -> None:
        """Report that the stage is committed."""
        end = StageEnd(
            stage=self._stage,
            losses=tuple(self._losses),
            steps=manifest.steps,
            seconds=self.seconds,
            validation=manifest.validation,
        )
        tell(self._progress, end)


class Summarised:
    """Progress that keeps the end of every stage for the report, and hands everything on."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._ends: dict[Stage, StageEnd] = {}

    def of(self, stages: tuple[Stage, ...]) -> tuple[StageEnd, ...]:
        return tuple(self._ends[stage] for stage in stages)

    def start(self, what: str, total: int) -> None:
        self._progress.start(what, total)

    def note(self, what: str) -> None:
        self._progress.note(what)

    def advance(self, count: int) -> None:
        self._progress.advance(count)

    def hear(self, event: Event) -> None:
        if isinstance(event, StageEnd):
            self._ends[event.stage] = event
        tell(self._progress, event)

    def finish(self) -> None:
        self._progress.finish()
