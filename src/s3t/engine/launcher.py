"""Launchers start workers, on this machine or on others, and report what they do. Workers share the work by claims in
the ledger.

A worker runs the function `train` of a module, which takes a list of texts (never records or tensors) and a `Progress`,
and returns a number.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from s3t.errors import FsyncError
from s3t.events import Progress, TrainingStart, WorkEnd, WorkStart
from s3t.store.disk import note_failed_fsync

LOOK_SECONDS = 0.5
"""Time between two checks: of a worker, that its parent still lives; of the parent, that the run is still open."""
AGAIN = "run the same command again: what is stored is not trained twice"
"""Remedy where a worker was lost."""
Message: TypeAlias = tuple[str, Any]
"""("event", an event), ("done", a result) or ("failed", an error), of a worker."""
Work: TypeAlias = Callable[[Sequence[str], Progress], int]


class Launcher(Protocol):
    def start(self) -> None:
        """Start the workers. On a cluster some may wait for room."""

    @property
    def busy(self) -> int:
        """Number of workers that are not done."""

    def heard(self, seconds: float) -> Iterator[Message]:
        """Yields new messages of workers; waits for one at most so long. Raises WorkerError if a worker is lost."""

    def stop(self) -> None:
        """Stop those that are not done; called in any case."""


def run_on(launcher: Launcher, *, progress: Progress, meanwhile: Callable[[], object] = lambda: None) -> int:
    """Start workers, and listen until each has found that nothing is missing. Returns the sum of their results.

    If one fails, or this process is interrupted, the others are stopped at once. Stored stages are kept; each worker
    loses only the stage that it trains. To end that stage could take hours, and what stops one worker (a full disk, no
    memory, a recipe that diverges) seldom spares the others. No worker is left in any case.
    `meanwhile` is called now and then; if it raises, the workers are stopped.
    """
    total, look_at = 0, 0.0
    try:
        launcher.start()
        while launcher.busy:
            if time.monotonic() >= look_at:
                meanwhile()
                look_at = time.monotonic() + LOOK_SECONDS
            for kind, content in launcher.heard(LOOK_SECONDS):
                if kind == "failed":
                    raise content
                if kind == "done":
                    total += content
                elif not isinstance(content, WorkStart | TrainingStart | WorkEnd):  # of these the caller tells
                    progress(content)
        meanwhile()
        return total
    except FsyncError:
        note_failed_fsync("by a worker process")  # like our own: the content of the disk is unknown
        raise
    finally:
        launcher.stop()


def result_of(work: Work, arguments: Sequence[str], progress: Progress) -> Message:
    """The last message of a worker: its result or its error. The error can be pickled, and notes where it happened."""
    try:
        return "done", work(arguments, progress)
    except BrokenPipeError:  # nobody listens any more
        raise
    except Exception as error:
        where = f"in worker process {os.getpid()} of {socket.gethostname()}:\n{traceback.format_exc()}"
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        error.add_note(where)
        return "failed", error
