"""Progress in lines on stderr, where no bar can be drawn: a log, a pipe, a batch job."""

from __future__ import annotations

import sys
import time

from s3t.training_events import EpochEnd, Event, StageEnd, StageStart, TrainingStart
from s3t.wording import counted, duration

QUIET_SECONDS = 10.0
"""Least time between two lines within a stage, or within work without stages, in seconds."""
MAX_LOSSES = 8


class ProgressLines:
    """A line when a stage begins and one when it ends; in between, and in other work, one every ten seconds."""

    def __init__(self) -> None:
        self._what = ""
        self._total = self._count = self._stages = self._stored = 0
        self._began = self._last = 0.0
        self._first: tuple[float, int] | None = None

    def start(self, what: str, total: int) -> None:
        """Begin to count."""
        self._what, self._total, self._count = what, total, 0
        self._stages = self._stored = 0
        self._began = self._last = time.monotonic()
        self._first = None

    def note(self, what: str) -> None:
        """Do nothing: lines come from events of stages and from counts."""

    def advance(self, count: int) -> None:
        """Count steps, and print a line if none was printed for `QUIET_SECONDS`."""
        self._count += count
        if self._first is None:  # the model is in memory now
            self._first = time.monotonic(), self._count
        if self._total and self._is_quiet():
            self._say(f"{self._what}: {self._count / self._total:.0%}{self._left()}")

    def hear(self, event: Event) -> None:
        """Count an event of training, and print a line where one is due."""
        match event:
            case TrainingStart():
                self._stages = event.stages
                if event.stages:
                    self._say(self._what)
            case StageStart():
                epochs = f", {counted(event.epochs, 'epoch')}" if event.epochs else ""
                self._say(f"{event.stage} begins: {counted(event.records, 'record')}{epochs}")
            case EpochEnd() if event.epoch < event.epochs and self._is_quiet():
                self._say(f"{event.stage}: {described_epoch(event)}{self._left()}")
            case StageEnd():
                self._stored += 1
                # A stage that a deletion takes meanwhile is trained and counted again.
                of = counted(max(self._stages, self._stored), "stage")
                self._say(f"{described_end(event)}; {self._stored} of {of}{self._left()}")

    def finish(self) -> None:
        """Print a line about finished work, except training, which has printed its own."""
        if self._count and not self._stages:
            took = duration(time.monotonic() - self._began)
            self._say(f"{self._what}: {took}")

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._last >= QUIET_SECONDS

    def _say(self, line: str) -> None:
        self._last = time.monotonic()
        print(line, file=sys.stderr, flush=True)

    def _left(self) -> str:
        """The expected time left, at the speed so far."""
        since, before = self._first or (0.0, 0)
        if not before < self._count < self._total:
            return ""
        seconds = (time.monotonic() - since) / (self._count - before) * (self._total - self._count)
        return f", about {duration(seconds)} left"


def described_epoch(event: EpochEnd) -> str:
    """The end of an epoch in words: epoch 2 of 4, loss 0.5312."""
    return f"epoch {event.epoch} of {event.epochs}, loss {event.loss:.4g}"


def described_end(event: StageEnd) -> str:
    """The end of a stage in words: stage (0, 1) of shard 0: loss 1.103, 0.9312 in 6 steps, 3.1 s."""
    losses = [f"{loss:.4g}" for loss in event.losses]
    if len(losses) > MAX_LOSSES:
        losses = [*losses[: MAX_LOSSES // 2], "...", *losses[-MAX_LOSSES // 2 :]]
    if losses:
        learnt = f"loss {', '.join(losses)} in {counted(event.steps, 'step')}"
    else:
        learnt = "made" if event.stage.kind == "prototypes" else "no record, nothing to optimise"
    return f"{event.stage}: {learnt}, {duration(event.seconds)}{_described_validation(event.validation)}"


def _described_validation(score: float | None) -> str:
    if score is None:
        return ""
    return f", {'accuracy' if score >= 0 else 'error'} on public records {abs(score):.4g}"
