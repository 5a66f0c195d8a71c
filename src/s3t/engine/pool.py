"""Worker processes: several work through what is missing, and this one starts them, listens, and sees to their end.

They are spawned, never forked: threads, torch and SQLite do not survive a fork. They begin in a module of their own, so
a script that trains is not run again in each of them. What is whose work they settle among themselves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from s3t.engine.launcher import AGAIN, LOOK_SECONDS, Message, Work, result_of
from s3t.errors import WorkerError
from s3t.events import Event, StageStart
from s3t.program import exit_on_sigterm

GRACE_SECONDS = 5.0
"""Seconds for a worker to end by itself once asked; then it is killed, which is no worse than a power cut."""


def serve(work: Work) -> None:
    """Do `work` with the parent's arguments, and send the parent its result or its error.

    Told to stop (SIGTERM), it ends as on an error: what is half written is taken away on the way out.
    """
    channel, parent = Connection(int(sys.argv[1]), readable=False), int(sys.argv[2])
    os.set_inheritable(channel.fileno(), False)
    exit_on_sigterm()

    def hear(event: Event) -> None:
        channel.send(("event", event))

    threading.Thread(target=_end_with, args=[parent], daemon=True, name="s3t-parent").start()
    try:
        last = result_of(work, sys.argv[3:], hear)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends now, and nothing is left to be taken away
        channel.send(last)
    except BrokenPipeError:  # the parent has gone
        raise SystemExit(1) from None


def _end_with(parent: int) -> None:
    """Stop this process when its parent is gone, however that ended."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)  # it hangs; its claims are free once it is gone


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Cores and environment of one worker."""

    cores: tuple[int, ...] = ()
    """Numbers of the processor cores that it keeps to; none: the system decides."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its own, beside those of this process."""


class Processes:
    """Launcher of worker processes of this machine, one for each placement. If this process ends, so do they."""

    def __init__(self, module: str, arguments: Sequence[str], placements: Sequence[Placement]) -> None:
        self._module, self._arguments, self._placements = module, arguments, placements
        self._workers: list[_Worker] = []
        self._busy: dict[Connection[Any, Any], _Worker] = {}

    def start(self) -> None:
        count = len(self._placements)
        for number, placement in enumerate(self._placements, start=1):
            worker = _Worker(f"worker {number} of {count}", self._module, self._arguments, placement)
            self._workers.append(worker)
            self._busy[worker.channel] = worker

    @property
    def busy(self) -> int:
        return len(self._busy)

    def heard(self, seconds: float) -> Iterator[Message]:
        for channel in wait(list(self._busy), timeout=seconds):
            worker = self._busy[channel]  # type: ignore[index]
            kind, content = worker.hear()
            if kind != "event":
                del self._busy[worker.channel]
            yield kind, content

    def stop(self) -> None:
        """Stop those that are not done. None runs any more when this returns, and be it by a second interrupt."""
        for worker in self._workers:
            worker.process.terminate()  # of no effect on those that are done
        until = time.monotonic() + GRACE_SECONDS
        try:
            for worker in self._workers:
                with suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.0, until - time.monotonic()))
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.process.wait()
                worker.channel.close()


class _Worker:
    """A worker process, and the parent's end of its pipe."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], placement: Placement) -> None:
        self.name = name
        self.channel, theirs = Pipe(duplex=False)
        self._at = ""
        command = [sys.executable, "-P", "-m", module, str(theirs.fileno()), str(os.getpid()), *arguments]
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}  # it finds what we find
        try:
            with theirs, _no_interrupts():
                self.process = subprocess.Popen(  # noqa: S603
                    command,
                    env={**os.environ, **path, **placement.environment},
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # our stdout may be one JSON document
                )
        except OSError as error:
            self.channel.close()
            raise WorkerError(
                f"{name} could not be started: {error.strerror or error}; use fewer workers, then run the same "
                "command again"
            ) from error
        if placement.cores:
            with suppress(OSError):  # it has ended, which will be heard; or a core was taken from us
                os.sched_setaffinity(self.process.pid, placement.cores)

    def hear(self) -> tuple[str, Any]:
        try:
            kind, content = self.channel.recv()
        except (EOFError, OSError):  # the second: within a message
            raise self._lost() from None
        if isinstance(content, StageStart):
            self._at = f", at {content.stage}"
        return kind, content

    def _lost(self) -> WorkerError:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_SECONDS)
        which = f"{self.name} (process {self.process.pid}{self._at})"
        code = self.process.poll()
        if code is None or code >= 0:
            status = "without a result" if code is None else f"with exit status {code}"
            return WorkerError(f"{which} ended {status}; see its messages on stderr, then {AGAIN}")
        known = {number.value: number.name for number in signal.Signals}  # but those of real time
        return WorkerError(
            f"{which} was killed by {known.get(-code, f'signal {-code}')}, exit code {code}; if memory ran out (see "
            f"the system's log), use fewer workers; then {AGAIN}"
        )


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Starts processes that ignore keyboard interrupts: the terminal sends them to all, and the parent handles them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
