"""Progress on stderr, for the command line and for scripts: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from s3t import events
from s3t.events import Event, Progress, silent
from s3t.wording import counted, duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Drawn
    from rich.progress import TaskID

QUIET_SECONDS = 10.0
"""Least time between two lines within a stage, or within work without stages, in seconds."""
MAX_LOSSES = 8


def watched(progress: Progress | None) -> Progress:
    """The listener that was given; without one a bar, if stderr is a terminal or this is a notebook, else none."""
    if progress is not None:
        return progress
    return ProgressBar() if sys.stderr.isatty() or "ipykernel" in sys.modules else silent


class ProgressBar:
    """A progress bar on stderr, and in training a line for every stage that is stored; pass it as `progress=`.

    It shows a percentage, since users do not count in steps, on a console of rich: by default stderr's. Where that is
    no terminal, lines take its place: one when a stage begins and one when it ends; in between, and in other work, one
    every ten seconds.
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self._console = console or Console(stderr=True)
        self._draws = self._console.is_terminal or self._console.is_jupyter
        self.drawn: Drawn | None = None
        self._task: TaskID
        self._what = ""
        self._total = self._count = self._stages = self._stored = 0
        self._began = self._last = 0.0
        self._first: tuple[float, int] | None = None

    def __call__(self, event: Event) -> None:
        """Show an event."""
        match event:
            case events.WorkStart():
                self._what, self._total, self._count = event.what, event.total, 0
                self._stages = self._stored = 0
                self._began = self._last = time.monotonic()
                self._first = None
                if self._draws and event.total:
                    self._draw()
            case events.WorkNote():
                self._describe(f"{self._what}: {event.what}")
            case events.WorkWarning():
                self._console.print(f"warning: {event.what}", markup=False, highlight=False, soft_wrap=True)
            case events.WorkStep():
                self._count += event.count
                if self._first is None:  # the model is in memory now
                    self._first = time.monotonic(), self._count
                if self.drawn is not None:
                    self.drawn.advance(self._task, event.count)
                elif self._total and self._is_quiet():
                    self._say(f"{self._what}: {self._count / self._total:.0%}{self._left()}")
            case events.TrainingStart():
                self._stages = event.stages
                if event.stages:
                    self._say(self._what)
            case events.StageStart():
                self._describe(f"{self._at()} {event.stage}")
                epochs = f", {counted(event.epochs, 'epoch')}" if event.epochs else ""
                self._say(f"{event.stage} begins: {counted(event.records, 'record')}{epochs}")
            case events.EpochEnd():
                self._describe(f"{self._at()} loss {event.loss:.4g}, {event.stage}")
                if event.epoch < event.epochs and self._is_quiet():
                    epoch = f"epoch {event.epoch} of {event.epochs}, loss {event.loss:.4g}"
                    self._say(f"{event.stage}: {epoch}{self._left()}")
            case events.StageEnd():
                self._stored += 1
                if self._draws:
                    from rich.text import Text

                    self._console.print(Text(described_end(event)), highlight=False, soft_wrap=True)
                # A stage that a deletion takes meanwhile is trained and counted again.
                of = counted(max(self._stages, self._stored), "stage")
                self._say(f"{described_end(event)}; {self._stored} of {of}{self._left()}")
            case events.WorkEnd() if self.drawn is not None:
                self._describe(self._what)
                self.drawn.stop()
                self.drawn = None
            case events.WorkEnd() if self._count and not self._stages:  # training has printed lines of its own
                self._say(f"{self._what}: {duration(time.monotonic() - self._began)}")

    def _draw(self) -> None:
        # Imported where a bar is drawn: a short command draws none.
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Drawn
        from rich.table import Column

        self.drawn = Drawn(
            # A long text is cut, so that the numbers behind it are not.
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            BarColumn(16),
            TaskProgressColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            console=self._console,
            expand=True,
        )
        self._task = self.drawn.add_task(self._what, total=self._total)
        self.drawn.start()

    def _at(self) -> str:
        return f"{self._stored + 1}/{max(self._stages, self._stored + 1)}"

    def _describe(self, what: str) -> None:
        if self.drawn is not None:
            self.drawn.update(self._task, description=what)

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._last >= QUIET_SECONDS

    def _say(self, line: str) -> None:
        if not self._draws:
            self._last = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def _left(self) -> str:
        """The expected time left, at the speed so far."""
        since, before = self._first or (0.0, 0)
        if not before < self._count < self._total:
            return ""
        seconds = (time.monotonic() - since) / (self._count - before) * (self._total - self._count)
        return f", about {duration(seconds)} left"


def described_end(event: events.StageEnd) -> str:
    """The end of a stage in words: stage (0, 1) of shard 0: loss 1.103, 0.9312 in 6 steps, 3.1 s."""
    losses = [f"{loss:.4g}" for loss in event.losses]
    if len(losses) > MAX_LOSSES:
        losses = [*losses[: MAX_LOSSES // 2], "...", *losses[-MAX_LOSSES // 2 :]]
    if losses:
        learnt = f"loss {', '.join(losses)} in {counted(event.steps, 'step')}"
    else:
        learnt = "made" if event.stage.kind != "model" else "no record, nothing to optimise"
    score = event.validation
    kind = "accuracy" if score is None or score >= 0 else "error"
    public = "" if score is None else f", {kind} on public records {abs(score):.4g}"
    return f"{event.stage}: {learnt}, {duration(event.seconds)}{public}"
