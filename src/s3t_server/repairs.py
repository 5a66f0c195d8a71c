"""Repairs in processes of their own, beside a server that goes on answering. Only one runs at a time, wherever.

What a repair has trained is kept, whatever ends it; one that was interrupted goes on with what is still missing.
"""

from __future__ import annotations

import subprocess
import sys
import threading

from s3t.bugs import failure_lines, log_failure
from s3t.core import Inventory
from s3t.errors import FsyncError, WorkerError
from s3t.ledger import Repair
from s3t.recipe import repair_due
from s3t.run import Run

_LEAST_HOURS = 0.1
"""A repair by policy is not begun for less: to load the model takes its time."""
_STOPPING_SECONDS = 10.0
_LOOK_SECONDS = 1.0


class Repairs:
    """Repairs of one run: those that this process begins, and what the ledger knows of all. Safe among threads."""

    def __init__(self, run: Run) -> None:
        self._parts = run.parts
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._stopped = False

    def all(self) -> tuple[Repair, ...]:
        """The repairs that the ledger remembers, the newest first."""
        with self._parts.ledger.reading() as transaction:
            return tuple(transaction.repairs.all())

    def find(self, id: str) -> Repair | None:
        with self._parts.ledger.reading() as transaction:
            return transaction.repairs.find(id)

    def begin(self, *, asked_by: str, hours: float | None = None) -> Repair | None:
        """Begin a repair; None if one runs. It takes the place of an interrupted one. No stage begins after `hours`."""
        return self._begin(asked_by, hours=hours, if_idle=False)

    def _begin(self, asked_by: str, *, hours: float | None, if_idle: bool) -> Repair | None:
        """Begin a repair; `if_idle`: not in the place of an interrupted one, which is to be taken up."""
        self._parts.check_changeable()
        self._parts.check_trainable()
        missing = len(self._inventory().missing())
        with self._starting:
            with self._parts.ledger.writing() as transaction:
                if if_idle and transaction.repairs.is_busy():
                    return None
                repair = transaction.repairs.begin(asked_by, hours=hours, stages=missing)
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
        """Begin a repair if the run's policy asks for one and the day has hours left; None if not.

        `hours_a_day` bounds all repairs within the last 24 hours, whoever asked for them; None: no bound.
        """
        with self._parts.ledger.reading() as transaction:
            busy, left = transaction.repairs.is_busy(), transaction.repairs.hours_left(hours_a_day)
        if busy or (left is not None and left < _LEAST_HOURS):
            return None
        policy, trained = self._parts.present_recipe.deletion.repair, self._parts.latest.snapshot().trained
        if not repair_due(policy, self._inventory(), trained=trained):
            return None
        return self._begin("policy", hours=left, if_idle=True)

    def attend(self) -> None:
        """Look after the process that this one has started: while it begins, it cannot tell of itself; once it is
        gone, the ledger learns of it.
        """
        with self._starting:
            process = self._process
            if process is None:
                return
            if gone := process.poll() is not None:
                self._process = None
        with self._parts.ledger.reading() as transaction:
            silent = transaction.repairs.is_silent(process.pid)
        if gone or silent:
            with self._parts.ledger.writing() as transaction:
                transaction.repairs.note_process(process.pid, gone=gone)

    def stop(self) -> None:
        """Stop the repair that this process began, and begin none any more; a server that starts later goes on."""
        with self._starting:
            self._stopped = True
            process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOPPING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, repair: Repair) -> Repair | None:
        if self._stopped:
            return None  # the ledger has it as this process's, so another takes it up
        command = [sys.executable, "-m", "s3t_server.repair_process", str(self._parts.layout.root), repair.id]
        try:
            # A group of its own: an interrupt from the keyboard is the server's to hear. No session of its own: Linux
            # shares processors out among sessions first, and priorities count within one.
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=sys.stderr, process_group=0
            )
        except OSError as error:
            with self._parts.ledger.writing() as transaction:
                transaction.repairs.end(repair.id, process=repair.process, error=type(error).__name__)
            raise WorkerError(f"a repair could not be started: {error.strerror or error}") from error
        with self._parts.ledger.writing() as transaction:
            transaction.repairs.hand_over(repair.id, process=self._process.pid, server=repair.process)
        return repair

    def _inventory(self) -> Inventory:
        return self._parts.latest.inventory(self._parts.latest.snapshot())


class Repairer:
    """A thread that begins what is due. Each server process has one; the ledger lets one repair run at a time.

    Args:
        hours_a_day: most hours of repairs in 24; None: no bound.
    """

    def __init__(self, repairs: Repairs, *, by_policy: bool, hours_a_day: float | None) -> None:
        self._repairs = repairs
        self._by_policy = by_policy
        self._hours_a_day = hours_a_day
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="s3t-repairs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and stop the repair that this process began; a server that starts later goes on with it."""
        self._closed.set()
        self._thread.join()
        self._repairs.stop()

    def _work(self) -> None:
        reported = ""
        while not self._closed.wait(_LOOK_SECONDS):
            try:
                self._repairs.attend()
                if self._repairs.resume(hours_a_day=self._hours_a_day) is None and self._by_policy:
                    self._repairs.begin_if_due(hours_a_day=self._hours_a_day)
                reported = ""
            except FsyncError:
                return
            except Exception as error:
                if (line := failure_lines(error, command="repairs")[0]) != reported:  # once, and not every second
                    log_failure(error, command="repairs")
                reported = line
