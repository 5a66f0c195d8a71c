"""A worker process: it reports its progress to the process that started it, and ends when that does.

Its stdout and stderr are the parent's stderr, and an interrupt from the keyboard is the parent's alone to hear.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from s3t.engine.local import EngineReport
from s3t.program import exit_on_sigterm
from s3t.progress import Progress
from s3t.training_events import Event, TrainingStart

LOOK_SECONDS = 0.5
"""Seconds between two checks that the parent still lives."""
GRACE_SECONDS = 5.0
"""Seconds for a worker to end by itself once asked; then it is killed, which is no worse than a power cut."""


def serve(work: Callable[[Sequence[str], Progress], EngineReport]) -> None:
    """Do `work` with the parent's arguments, and send the parent its report or its error.

    Told to stop (SIGTERM), it ends as on an error: what is half written is taken away on the way out.
    """
    channel, parent = Connection(int(sys.argv[1]), readable=False), int(sys.argv[2])
    os.set_inheritable(channel.fileno(), False)
    exit_on_sigterm()
    threading.Thread(target=_end_with, args=[parent], daemon=True, name="s3t-parent").start()
    try:
        try:
            report = work(sys.argv[3:], _Telling(channel))
        except BrokenPipeError:
            raise
        except Exception as error:
            last: tuple[str, object] = "failed", _portable(error)
        else:
            last = "done", report
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends now, and nothing is left to be taken away
        channel.send(last)
    except BrokenPipeError:  # the parent has gone
        raise SystemExit(1) from None


class _Telling:
    """Progress that sends notes and events to the parent, which counts start and end itself."""

    def __init__(self, channel: Connection[Any, Any]) -> None:
        self._channel = channel

    def start(self, what: str, total: int) -> None:
        """Do nothing: the parent counts."""

    def note(self, what: str) -> None:
        """Send to the parent."""
        self._channel.send(("note", what))

    def advance(self, count: int) -> None:
        """Send to the parent."""
        self._channel.send(("advance", count))

    def hear(self, event: Event) -> None:
        """Send to the parent."""
        if not isinstance(event, TrainingStart):
            self._channel.send(("event", event))

    def finish(self) -> None:
        """Do nothing: the parent counts."""


def _portable(error: Exception) -> Exception:
    """Picklable error for the parent, with a note of its origin."""
    where = f"in worker process {os.getpid()}:\n{traceback.format_exc()}"
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(where)
    return error


def _end_with(parent: int) -> None:
    """Stop this process when its parent is gone, however that ended."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)  # it hangs; its claims are free once it is gone
