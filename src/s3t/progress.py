"""Protocol of progress reports. The command line draws bars; the library reports nothing by default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Receives the progress of long work. `total` and `count` are in steps of any size; only their ratio counts."""

    def start(self, what: str, total: int) -> None:
        """Begin a piece of work; `what` names it, with its size in the user's units."""

    def note(self, what: str) -> None:
        """Note the part that is being done."""

    def advance(self, count: int) -> None:
        """Count finished steps."""

    def finish(self) -> None:
        """End the work, finished or aborted."""


class Silent:
    """No progress output."""

    def start(self, what: str, total: int) -> None:
        """Do nothing."""

    def note(self, what: str) -> None:
        """Do nothing."""

    def advance(self, count: int) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


class Steps(Protocol):
    """Receives finished steps: the part of a `Progress` that a computation needs."""

    def advance(self, count: int) -> None:
        """Count finished steps. May raise, to stop the computation."""


SILENT = Silent()


@contextmanager
def telling(progress: Progress, what: str, total: int) -> Iterator[None]:
    """Start a piece of work and, whatever happens within, finish it."""
    progress.start(what, total)
    try:
        yield
    finally:
        progress.finish()
