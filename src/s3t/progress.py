"""The protocol of progress reports. The command line draws bars; the library is silent unless told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Hears of long work. `total` and `count` are steps of it, such as a record in one epoch of one stage: of use as
    shares alone."""

    def start(self, what: str, total: int) -> None:
        """A piece of work begins; `what` says how large it is in the caller's units."""
        ...

    def note(self, what: str) -> None:
        """Notes the step that is under way."""
        ...

    def advance(self, count: int) -> None:
        """Some of it is done."""
        ...

    def finish(self) -> None:
        """It is done, or given up."""
        ...


class Silent:
    """Tells nobody."""

    def start(self, what: str, total: int) -> None:
        """Nothing."""

    def note(self, what: str) -> None:
        """Nothing."""

    def advance(self, count: int) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""


@contextmanager
def telling(progress: Progress, what: str, total: int) -> Iterator[None]:
    """Start and, whatever happens within, finish."""
    progress.start(what, total)
    try:
        yield
    finally:
        progress.finish()
