"""Mistakes that somebody could make in s3t. Each is a context in which the real code has it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from s3t.deletion.deleter import Deleter
from s3t.run import Run
from s3t.store import LocalStore


@contextlib.contextmanager
def acknowledge_early() -> Iterator[None]:
    """`delete` returns before anything is accepted, and does its work when the run is closed."""
    delete, close = Run.delete, Run.close
    later: list[dict[str, Any]] = []

    def closing(run: Run) -> None:
        while later:
            delete(run, **later.pop())
        close(run)

    with (
        mock.patch.object(Run, "delete", lambda run, **request: later.append(request)),
        mock.patch.object(Run, "close", closing),
    ):
        yield


def skip_fsync() -> AbstractContextManager[object]:
    """Files are renamed, but never synchronised."""
    return mock.patch.object(os, "fsync", lambda descriptor: None)


def skip_sweep() -> AbstractContextManager[object]:
    """What killed processes left stays."""
    return mock.patch.object(Deleter, "sweep", lambda deleter: None)


def skip_erasure() -> AbstractContextManager[object]:
    """Tainted artifacts stay in the store."""
    return mock.patch.object(LocalStore, "erase", lambda store, artifacts: None)


def skip_finish() -> AbstractContextManager[object]:
    """Opening does not finish what a crash interrupted."""
    return mock.patch.object(Deleter, "finish", lambda deleter: None)


def swallow_os_errors() -> AbstractContextManager[object]:
    """A folder that cannot be synchronised is taken for synchronised, and other refusals too."""
    from s3t import disk

    real = disk._sync

    def sync(path: Any) -> None:
        with contextlib.suppress(OSError):
            real(path)

    return mock.patch.object(disk, "_sync", sync)


PLANTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "acknowledge-early": acknowledge_early,
    "skip-fsync": skip_fsync,
    "skip-sweep": skip_sweep,
    "skip-erasure": skip_erasure,
    "skip-finish": skip_finish,
    "swallow-os-errors": swallow_os_errors,
}
