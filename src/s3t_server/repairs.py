"""Repairs in a process of its own, beside a server that goes on answering: `python -m s3t_server.repairs RUN`.

Only one runs at a time, wherever. What a repair has trained is kept, whatever ends it; one that was interrupted goes on
with what is still missing. The process waits a while for the next repair: to load the model takes seconds, in which
other deletions come.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from s3t.bugs import failure_lines, log_failure
from s3t.core import Inventory
from s3t.errors import FsyncError, WorkerError
from s3t.events import Event, StageEnd, WorkStart, WorkStep
from s3t.ledger import Ledger
from s3t.ledger.presence import Leaving, Uses
from s3t.ledger.servers import GOES_ON_SECONDS
from s3t.program import exit_on_sigterm, set_up_process
from s3t.recipe import repair_due
from s3t.results.serving import Repair
from s3t.run import Run

NICE = "S3T_REPAIR_NICE"
"""Environment variable: the `nice` value of a repair, from 0 (as the server) to 19 (the lowest priority)."""
_NICE = 10
_LEAST_HOURS = 0.1
"""A repair by policy is not begun for less: to load the model takes its time."""
_STOPPING_SECONDS = 10.0
_LOOK_SECONDS, _READY_SECONDS = 0.5, 1.0
_READY = b"."
_EXPIRE_SECONDS = 3600.0
_BEAT_SECONDS = 1.0
_MOST_FAILURES = 30
"""Beats that the ledger may refuse one after another."""


class Repairs:
    """Repairs of one run: those that this process begins, and what the ledger knows of all. Safe among threads."""

    def __init__(self, run: Run) -> None:
        self._run, self._parts = run, run.parts
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        """To the process: a repair's id; from it: that it is ready for another."""
        self._starting = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, *, by_policy: bool, hours_a_day: float | None) -> None:
        """Begin what is due from now on, in a thread. Each server process has one."""
        self._thread = threading.Thread(
            target=self._work, args=(by_policy, hours_a_day), name="s3t-repairs", daemon=True
        )
        self._thread.start()

    def all(self) -> tuple[Repair, ...]:
        """The repairs that the ledger remembers, the newest first."""
        with self._parts.ledger.reading() as transaction:
            return tuple(transaction.rows.all(Repair))

    def find(self, id: str) -> Repair | None:
        with self._parts.ledger.reading() as transaction:
            return transaction.rows.find(Repair, id=id)

    def begin(
        self, *, asked_by: str, hours: float | None = None, if_idle: bool = False, learn: bool = False
    ) -> Repair | None:
        """Begin a repair; None if one runs. No stage begins after `hours`. With `learn` all that was added is learned.

        It takes the place of an interrupted one, but with `if_idle`: that one is to be taken up.
        """
        self._parts.check_changeable()
        self._parts.check_trainable()
        inventory = self._inventory()
        if learn:
            inventory = replace(inventory, learned=inventory.added)
        missing = len(inventory.missing())
        with self._starting:
            with self._parts.ledger.writing() as transaction:
                if if_idle and transaction.repairs.is_busy(self._pid):
                    return None
                last = transaction.repairs.go_on(asked_by, hours=hours, stages=missing) if if_idle else None
                repair = last or transaction.repairs.begin(asked_by, hours=hours, stages=missing)
                if learn and repair is not None:
                    transaction.learn()
            return None if repair is None else self._start(repair)

    def resume(self, *, hours_a_day: float | None) -> Repair | None:
        """Go on with a repair whose process is gone; None if there is none, or it is not its time."""
        with self._parts.ledger.reading() as transaction:
            if transaction.repairs.interrupted() is None:
                return None
            left = transaction.repairs.hours_left(hours_a_day)
        if left is not None and left < _LEAST_HOURS:
            return None
        missing = len(self._inventory().missing())
        with self._starting:
            with self._parts.ledger.writing() as transaction:
                repair = transaction.repairs.take_up(stages=missing, hours_left=left)
            return None if repair is None else self._start(repair)

    def begin_if_due(self, *, hours_a_day: float | None) -> Repair | None:
        """Begin a repair if additions are being learned, or the run's policy asks for one, and the day has hours left;
        or one of no hours, if heads are to be solved anew; None if not.

        `hours_a_day` bounds all repairs within the last 24 hours, whoever asked for them; None: no bound.
        """
        with self._parts.ledger.reading() as transaction:
            busy, left = transaction.repairs.is_busy(self._pid), transaction.repairs.hours_left(hours_a_day)
            learning = transaction.is_learning()
        if busy:
            return None
        policy, trained = self._parts.present_recipe.deletion.repair, self._parts.latest.snapshot().trained
        inventory = self._inventory()
        due = (learning and trained) or repair_due(policy, inventory, trained=trained)
        if (left is None or left >= _LEAST_HOURS) and due:
            return self.begin(asked_by="policy", hours=left, if_idle=True)
        return self.begin(asked_by="policy", hours=0.0, if_idle=True) if inventory.missing_readouts() else None

    def close(self) -> None:
        """End the thread, and stop the repair that this process began; a server that starts later goes on with it."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        with self._starting:
            self._stop()

    def _work(self, by_policy: bool, hours_a_day: float | None) -> None:
        reported, expired = "", -math.inf
        while not self._closed.wait(_LOOK_SECONDS):
            try:
                self._attend()
                if self._parts.recipe.retention is not None and time.monotonic() > expired + _EXPIRE_SECONDS:
                    expired = time.monotonic()  # an hour later again, whether or not it goes well
                    self._run.expire(repair=False)
                if self.resume(hours_a_day=hours_a_day) is None and by_policy:
                    self.begin_if_due(hours_a_day=hours_a_day)
                reported = ""
            except FsyncError:
                return
            except Exception as error:
                if (line := failure_lines(error, command="repairs")[0]) != reported:  # once, and not every second
                    log_failure(error, command="repairs")
                reported = line

    def _attend(self) -> None:
        """Look after the process that this one has started: while it begins, it cannot tell of itself; once it is
        gone, the ledger learns of it.
        """
        with self._starting:
            process = self._process
            if process is None:
                return
            if gone := process.poll() is not None:
                self._stop()
        with self._parts.ledger.reading() as transaction:
            silent = transaction.repairs.is_silent(process.pid)
        if gone or silent:
            with self._parts.ledger.writing() as transaction:
                transaction.repairs.note_process(process.pid, gone=gone)

    def _start(self, repair: Repair) -> Repair | None:
        if self._closed.is_set():
            return None  # the ledger has it as this process's, so another takes it up
        if not self._tell(repair.id):
            try:
                self._spawn(repair.id)
            except OSError as error:
                self._stop()
                with self._parts.ledger.writing() as transaction:
                    transaction.repairs.end(repair.id, process=repair.process, error=type(error).__name__)
                raise WorkerError(f"a repair could not be started: {error.strerror or error}") from error
        with self._parts.ledger.writing() as transaction:
            transaction.repairs.hand_over(repair.id, process=self._pid or repair.process, server=repair.process)
        return repair

    @property
    def _pid(self) -> int | None:
        return None if (process := self._process) is None else process.pid

    def _tell(self, id: str) -> bool:
        """Name a repair to the process, if it waits for one; False if it does not, or is gone."""
        if self._process is None or self._channel is None or self._process.poll() is not None:
            return False
        with suppress(OSError):  # it works still, or is gone
            if self._channel.recv(1) == _READY:
                self._channel.sendall(id.encode())
                return True
        return False

    def _spawn(self, id: str) -> None:
        self._stop()  # its repair is no longer its own, or it shuts down
        command = [sys.executable, "-m", "s3t_server.repairs", str(self._parts.layout.root)]
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(_READY_SECONDS)
        self._channel.sendall(id.encode())
        with theirs:
            # A group of its own: an interrupt from the keyboard is the server's to hear. No session of its own: Linux
            # shares processors out among sessions first, and priorities count within one.
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=sys.stderr, process_group=0)  # noqa: S603

    def _stop(self) -> None:
        """End the process, and wait for it: else it stays behind, as a zombie."""
        process, self._process = self._process, None
        channel, self._channel = self._channel, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOPPING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if channel is not None:
            channel.close()

    def _inventory(self) -> Inventory:
        return self._parts.latest.inventory(self._parts.latest.snapshot())


class Heartbeat:
    """Tells the ledger every second that a repair lives, and how far it is; counts, and no loss.

    Ends the process if the repair is another process's by now, or the ledger refuses for long: then nobody can know.
    Its thread, which writes to the ledger, has the priority with which it is started.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._id: str | None = None
        self._telling = threading.Lock()
        self._total = self._done = self._trained = 0
        self._told_at = 0.0
        threading.Thread(target=self._work, name="s3t-heartbeat", daemon=True).start()

    def begin(self, id: str, *, trained: int) -> None:
        with self._telling:
            self._id, self._trained, self._total, self._done = id, trained, 0, 0
            self._told_at = time.monotonic()

    def hear(self, event: Event) -> None:
        match event:
            case WorkStart():
                self._total, self._done = event.total, 0
            case WorkStep():
                self._done += event.count
            case StageEnd():
                self._trained += 1

    def end(self) -> None:
        with self._telling:
            self._beat()
            self._id = None

    def _work(self) -> None:
        failures = 0
        while True:
            time.sleep(_BEAT_SECONDS)
            with self._telling:
                try:
                    alive, failures = self._beat(), 0
                except Exception:  # the thread must go on: else nobody knows that the process lives
                    alive, failures = failures < _MOST_FAILURES, failures + 1
            if not alive:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def _beat(self) -> bool:
        """Tell the ledger; False if the repair is another process's, or has ended."""
        if self._id is None:
            return True
        now = time.monotonic()
        seconds, share = now - self._told_at, min(1.0, self._done / self._total) if self._total else 0.0
        with self._ledger.writing() as transaction:
            ours = transaction.repairs.beat(
                self._id, process=os.getpid(), trained=self._trained, share=share, seconds=seconds
            )
        self._told_at = now
        return ours


def main() -> None:
    """Make the repairs of the run that the server names on standard input, and note them in its ledger. Told to stop,
    it notes no end: a server takes the repair up again."""
    (folder,) = sys.argv[1:]
    id = ""
    with socket.socket(fileno=os.dup(0)) as channel, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)  # else processes that training starts would inherit the channel
        channel.settimeout(GOES_ON_SECONDS)
        try:
            with Run.open(folder) as run:
                run.parts.upkeep.is_background = True
                heartbeat = Heartbeat(run.parts.ledger)
                with run.parts.presence.working(run.parts.ledger.snapshot(), Uses(), leaving=Leaving.NEVER):
                    pass  # starts the session's threads, which write to the ledger, with the server's priority
                os.nice(asked_nice())  # on Linux of this thread, and of those that it starts from here on
                while id := _next(channel):
                    _repair(run, heartbeat, id)
                    with suppress(ConnectionError):
                        channel.sendall(_READY)
        except Exception as failed:
            log_failure(failed, command=f"repair {id}")
            sys.exit(1)


def _next(channel: socket.socket) -> str:
    """The id of the next repair; empty if the server names none for a while, or is gone."""
    with suppress(ConnectionError):
        try:
            return channel.recv(64).decode()
        except TimeoutError:
            channel.shutdown(socket.SHUT_RD)  # who names one from now on hears that nobody takes it
            return channel.recv(64).decode()  # but for one that was named before
    return ""


def asked_nice() -> int:
    """The `nice` value of a repair, 0 to 19: S3T_REPAIR_NICE, or the default if that is no number."""
    given = os.environ.get(NICE, "")
    return min(int(given), 19) if given.isdecimal() else _NICE


def _repair(run: Run, heartbeat: Heartbeat, id: str) -> None:
    ledger = run.parts.ledger
    with ledger.writing() as transaction:
        ours = transaction.repairs.hand_over(id, process=os.getpid(), server=os.getppid())
        repair = transaction.rows.find(Repair, id=id)
    if not ours or repair is None:
        return
    heartbeat.begin(id, trained=repair.trained)
    error = None
    hours = None if repair.hours is None else repair.hours - repair.seconds / 3600
    try:
        run.repair(hours=None if hours is None else max(0.0, hours), progress=heartbeat.hear)
    except Exception as failed:
        error = type(failed).__name__
        raise
    finally:
        heartbeat.end()
        if error is not None or sys.exc_info()[0] is None:
            with ledger.writing() as transaction:
                transaction.repairs.end(id, process=os.getpid(), error=error)


if __name__ == "__main__":
    set_up_process()
    exit_on_sigterm()
    main()
