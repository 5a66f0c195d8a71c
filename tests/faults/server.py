"""The fork server: imports everything once, then forks two processes a trial, one to be stopped and one to look.

Reads trials from standard input (pickles), answers with results. The name of a scenario is answered with its points
when nothing stops it. Started by client.py, with the shim in LD_PRELOAD, a folder, and the URL of a PostgreSQL
database or nothing.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import s3t
from tests.faults import power
from tests.faults.companion import companion
from tests.faults.database import Database, schema_of
from tests.faults.scenarios import SCENARIOS
from tests.faults.shim import Entry, Shim, read_log
from tests.faults.stock import Stock
from tests.faults.trial import Result, Trial
from tests.faults.verify import Expected, verify
from tests.faults.victim import SECONDS_AT_MOST, Notes, be_victim
from tests.faults.world import enter


def in_child(work: Callable[[], None]) -> int:
    """Run in a forked process; its exit status, negative for the signal that ended it."""
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries are idle, and stay behind
        child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(SECONDS_AT_MOST)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Server:
    """Does trials in a folder."""

    def __init__(self, folder: Path, database: Database) -> None:
        self._folder = folder
        self._shim = Shim()
        self._database = database
        self._stock = Stock(folder, in_child, self._shim, database)
        self._expected: dict[str, Expected] = {}
        self._number = 0

    def count(self, name: str) -> list[Entry]:
        """Every point of a scenario that nothing stops; it must end well."""
        result, entries = self._try(Trial(scenario=name, kind="count", point=0, seed=0))
        if result.problems:
            raise RuntimeError(f"{name} goes wrong without any fault: {result}")
        return [entry for entry in entries if entry.mark == "P"]

    def try_out(self, trial: Trial) -> Result:
        return self._try(trial)[0]

    def _try(self, trial: Trial) -> tuple[Result, list[Entry]]:
        started = time.monotonic()
        scenario = SCENARIOS[trial.scenario]
        expected = self._expected.setdefault(trial.scenario, Expected(self._stock, scenario))
        self._number += 1
        place = self._folder / f"trial-{self._number}"
        place.mkdir()
        watched, log, notes, found = place / "watched", place / "log", Notes(place / "notes"), Notes(place / "found")
        self._stock.copy(scenario.start, watched) if scenario.start else watched.mkdir()
        powered = trial.kind in ("power", "fsync-power", "kill-power", "count") and scenario.beside is None
        disk = power.Disk(watched) if powered else None

        def victim() -> None:
            enter(watched)
            model, ledger = expected.model, expected.ledger
            be_victim(trial, watched=watched, model=model, ledger=ledger, notes=notes, log=log, shim=self._shim)

        def look() -> None:
            enter(watched)
            if scenario.postgres:
                self._database.settle()
            for problem in verify(trial, watched=watched, stock=expected, notes=notes):
                found.add("problem", problem)
            if scenario.postgres:
                for schema in self._database.schemas() - ledgers - {schema_of(watched / "run")}:
                    if not scenario.clones:  # a clone that was made has one, and a killed one's goes with its folder
                        found.add("problem", f"a ledger that no run has was left in the database: {schema}")

        ledgers = self._database.schemas() if scenario.postgres else set()
        with companion(scenario, watched=watched, stock=expected, found=found) if scenario.beside else nullcontext():
            status = in_child(victim)
        entries = list(read_log(log))
        struck = next((entry.number for entry in entries if entry.mark in "FK"), None)
        problems = [] if status in (0, -signal.SIGKILL) else [f"the process ended with {status}"]
        if (
            trial.shim_kind == "fsync"
            and struck
            and "finished" in dict(notes.read())
            and not _of_sqlite(struck, entries)
        ):
            problems.append("a failed fsync was taken for done")
        if disk is not None:
            resumed = self._resume(trial, watched) if trial.kind == "kill-power" else []
            problems += self._power(trial, disk, entries + resumed, watched, struck=struck is not None)
        if in_child(look):
            problems.append("the process that checks died")
        problems += found.details("problem")
        result = Result(
            trial=trial,
            where=_where(struck, entries),
            outcome=_outcome(struck is not None, status, notes),
            problems=tuple(problems),
            seconds=time.monotonic() - started,
        )
        if scenario.postgres:
            self._database.drop(self._database.schemas() - ledgers)
        shutil.rmtree(place)
        return result, entries

    def _resume(self, trial: Trial, watched: Path) -> list[Entry]:
        """Another process heals the run if it has to be, and opens it; what it does to the disk."""
        log = watched.with_name("resumed")

        def resume() -> None:
            enter(watched)
            self._shim.arm([watched], log=log, kind="kill", point=trial.resumed_until)
            if SCENARIOS[trial.scenario].restored:
                s3t.Run.reconcile(watched / "run")
            s3t.Run.open(watched / "run").close()

        if (watched / "run").exists():
            in_child(resume)
        return list(read_log(log))

    def _power(self, trial: Trial, disk: power.Disk, entries: list[Entry], watched: Path, *, struck: bool) -> list[str]:
        """Put back what a loss of power may leave; if none comes, see that the log tells all that was done."""
        disk.replay(entries)
        if trial.kind != "count":
            if struck:
                power.write(watched, disk.lose_power(trial.seed))
            return []
        there = {
            str(path.relative_to(watched)): None if path.is_dir() else path.read_bytes() for path in watched.rglob("*")
        }
        told = disk.now()
        differ = sorted(path for path in there.keys() | told if there.get(path, 0) != told.get(path, 0))
        return [f"the shim did not see how {path} came to be" for path in differ if not path.endswith("-shm")]


def _of_sqlite(number: int, entries: list[Entry]) -> bool:
    """Whether a point is SQLite's fsync of its files, or of their folder just behind: it hides some failures."""
    points = {entry.number: entry for entry in entries if entry.mark == "P"}
    here, before = points[number], points.get(number - 1)
    return any("/ledger.sqlite" in point.path for point in (here, before) if point and point.type == "sync")


def _where(number: int | None, entries: list[Entry]) -> str:
    for entry in entries:
        if entry.mark == "P" and entry.number == number:
            return f"{entry.type} {' -> '.join(_inside(name) for name in (entry.path, entry.other) if name)}"
    return "no such point"


def _inside(path: str) -> str:
    """A path relative to the watched folder."""
    return path.rpartition("/watched")[2].lstrip("/") or path


def _outcome(struck: bool, status: int, notes: Notes) -> str:
    if not struck:
        return "missed"
    if status == -signal.SIGKILL:
        return "killed"
    refused = notes.details("refused")
    return f"refused ({refused[0].splitlines()[0]})" if refused else "finished"


def import_everything() -> None:
    """Once, and not in every child. Nothing is computed before a fork."""
    for name in (
        "peft.utils.transformers_weight_conversion",
        "psycopg",
        "pyarrow.pandas_compat",
        "s3t.run.workshop",
        "sqlalchemy.dialects.postgresql.psycopg",
        "sqlalchemy.dialects.sqlite",
    ):
        importlib.import_module(name)
    mapping = importlib.import_module("transformers.conversion_mapping")
    mapping.get_checkpoint_conversion_mapping("bert")  # compiles a thousand patterns, and keeps them


def main() -> None:
    """Serve until standard input ends."""
    server = Server(Path(sys.argv[1]), Database(sys.argv[2] if len(sys.argv) > 2 else None))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not come between the answers
    import_everything()
    gc.collect()
    gc.freeze()  # children would copy every page that the collector marks
    with suppress(EOFError):
        while True:
            asked = pickle.load(sys.stdin.buffer)
            if isinstance(asked, Trial):
                answer: object = server.try_out(asked)
            else:
                answer = [(entry.type, _inside(entry.path)) for entry in server.count(asked)]
            pickle.dump(answer, answers)
            answers.flush()


if __name__ == "__main__":
    main()
