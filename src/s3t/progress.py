"""Protocol of progress reports. The command line draws bars; the library reports nothing by default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Hears of long work. `total` and `count` are steps of it, such as a record in one epoch of one stage: of use as
    shares alone."""

    def start(self, what: str, total: int) -> None:
        """A piece of work begins; `what` says how large it is in the caller's units."""

    def note(self, what: str) -> None:
        """Notes the step that is under way."""

    def advance(self, count: int) -> None:
        """Count finished units."""

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
    """Hears of every step: the part of a `Progress` that a computation needs."""

    def advance(self, count: int) -> None:
        """Some of it is done. May raise, to stop it."""


SILENT = Silent()


@contextmanager
def telling(progress: Progress, what: str, total: int) -> Iterator[None]:
    """Start and, whatever happens within, finish."""
    progress.start(what, total)
    try:
        yield
    finally:
        progress.finish()
