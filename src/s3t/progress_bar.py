"""Progress on stderr, for the command line and for scripts: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3t.progress_lines import ProgressLines, described_end
from s3t.training_events import EpochEnd, Event, StageEnd, StageStart, TrainingStart

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class ProgressBar:
    """A progress bar on stderr, and in training a line for every stage that is stored; pass it as `progress=`.

    It shows a percentage, since users do not count in steps. Where stderr is no terminal, lines take its place.
    """

    def __init__(self) -> None:
        from rich.console import Console

        console = Console(stderr=True)
        display = _Bar(console) if console.is_terminal or console.is_jupyter else ProgressLines()
        self.start, self.note, self.advance = display.start, display.note, display.advance
        self.hear, self.finish = display.hear, display.finish


class _Bar:
    """The bar, on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._task: TaskID
        self._what = ""
        self._stages = self._stored = 0

    def start(self, what: str, total: int) -> None:
        if total == 0:
            return
        # Imported where a bar is drawn: a short command draws none.
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.table import Column

        self._progress = Progress(
            # A long text is cut, so that the numbers behind it are not.
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            BarColumn(16),
            TaskProgressColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            console=self._console,
            expand=True,
        )
        self._what = what
        self._task = self._progress.add_task(what, total=total)
        self._progress.start()

    def note(self, what: str) -> None:
        self._describe(f"{self._what}: {what}")

    def advance(self, count: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._task, count)

    def hear(self, event: Event) -> None:
        match event:
            case TrainingStart():
                self._stages, self._stored = event.stages, 0
            case StageStart():
                self._describe(f"{self._at()} {event.stage}")
            case EpochEnd():
                self._describe(f"{self._at()} loss {event.loss:.4g}, {event.stage}")
            case StageEnd():
                from rich.text import Text

                self._stored += 1
                self._console.print(Text(described_end(event)), highlight=False, soft_wrap=True)

    def _at(self) -> str:
        return f"{self._stored + 1}/{max(self._stages, self._stored + 1)}"

    def _describe(self, what: str) -> None:
        if self._progress is not None:
            self._progress.update(self._task, description=what)

    def finish(self) -> None:
        if self._progress is not None:
            self._describe(self._what)
            self._progress.stop()
            self._progress = None
