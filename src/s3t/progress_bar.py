"""A progress bar on the terminal, for the command line and for scripts."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class ProgressBar:
    """A progress bar on stderr; pass it as `progress=`."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def start(self, what: str, total: int) -> None:
        """Show the bar, unless there is nothing to do."""
        if total == 0:
            return
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("records"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(what, total=total)
        self._progress.start()

    def note(self, what: str) -> None:
        """Say what is being done."""
        if self._progress is not None:
            self._progress.update(self._task, description=what)

    def advance(self, count: int) -> None:
        """Move the bar."""
        if self._progress is not None:
            self._progress.advance(self._task, count)

    def finish(self) -> None:
        """Leave the bar where it is."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
