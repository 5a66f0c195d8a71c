"""What must hold after a fault, looked at by a process that had no part in it, and as far as it goes past s3t.

The files themselves are read: slices by pyarrow, artifacts by name and bytes, everything by a search for the words of
the deleted. What they must be is known from runs that never held the deleted records.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import traceback
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet

import s3t
from s3t.deletion.places import place_named
from tests import tiny
from tests.faults.plants import planted
from tests.faults.scenarios import SCENARIOS, Program, Scenario
from tests.faults.stock import Stock
from tests.faults.trial import Trial
from tests.faults.victim import Notes, acknowledged
from tests.faults.world import BUDGET, Request, table, words_of


def verify(trial: Trial, *, watched: Path, stock: Expected, notes: Notes) -> list[str]:
    """Everything that is wrong; empty if all promises were kept."""
    problems = notes.details("broke")
    try:
        with planted(trial.plant, looking=True):
            check = Check(SCENARIOS[trial.scenario], watched=watched, stock=stock, promised=acknowledged(notes))
            problems += check.all(repair=trial.repair)
    except BaseException:
        problems.append(f"checking raised\n{traceback.format_exc()}")
    return problems


class Expected:
    """What a prepared run and the counterfactual runs hold, as the server knows it before it forks."""

    def __init__(self, stock: Stock, scenario: Scenario) -> None:
        before = frozenset[str]().union(*(request.gone for request in scenario.before))
        requests = scenario.requests
        self.model = stock.model
        self.alive = stock.alive(scenario.start) if scenario.start else set()
        self.never_knew = {
            gone: stock.never_knew(gone, extended=scenario.extends)
            for number in range(len(requests) + 1)
            for gone in [before.union(*(request.gone for request in requests[:number]))]
        }
        # Not all orders may be there yet, if it is extended: then what is trained is what the old ones ask for.
        self.old_orders = stock.never_knew(before) if scenario.extends else None


class Check:
    """One look at a run after a fault."""

    def __init__(self, scenario: Scenario, *, watched: Path, stock: Expected, promised: set[str]) -> None:
        self.scenario = scenario
        self.watched = watched
        self.folder = watched / "run"
        self.stock = stock
        self.promised = {request.name for request in scenario.before} | promised

    def all(self, *, repair: bool) -> Iterator[str]:
        if not self.folder.exists():
            yield from self._no_run()
            return
        with s3t.Run.open(self.folder) as run:
            deleted, missing = [], []
            for request in (*self.scenario.before, *self.scenario.requests):
                left = request.gone & self._present()
                if left and (left != request.gone or request.name in self.promised):
                    yield f"{request.name}: {sorted(left)} of {sorted(request.gone)} are still there"
                (missing if left else deleted).append(request)
            yield from self._state(run, deleted)
            for request in deleted:
                yield from self._asked_again(run, request)
            for request in missing:
                yield from self._asked_for_the_first_time(run, request)
                deleted.append(request)
                yield from self._state(run, deleted)
            if repair:
                yield from self._repaired(run, deleted)
        with contextlib.closing(sqlite3.connect(self.folder / "ledger.sqlite")) as ledger:
            (found,) = ledger.execute("PRAGMA integrity_check").fetchone()
            if found != "ok":
                yield f"the ledger is damaged: {found}"

    def _present(self) -> set[str]:
        files = self.folder.glob("slices/shard-*/slice-*.parquet")
        return {name for file in files for name in pyarrow.parquet.ParquetFile(file).read()["record"].to_pylist()}

    def _state(self, run: s3t.Run, deleted: list[Request]) -> Iterator[str]:
        """What holds at any time between two operations."""
        gone = frozenset[str]().union(*(request.gone for request in deleted))
        if (present := self._present()) != set(table().id) - gone:
            yield f"the slices hold {sorted(present)} after {sorted(gone)} were deleted"
        files = tiny.all_files(self.watched)
        for word in words_of(gone):
            yield from (f"{word.decode()} is in {path} still" for path, content in files.items() if word in content)
        for path in files:
            inside = path.removeprefix("run/")
            if inside == path or place_named(inside) is None or inside.startswith("tmp/"):
                yield f"{path} was left behind"
        wanted = self.stock.never_knew[gone]
        artifacts = tiny.artifacts(self.folder)
        for name, content in artifacts.items():
            if wanted.get(name) != content:
                yield f"artifact {name} is not one of a run that never knew {sorted(gone)}"
        for name in self.stock.alive & wanted.keys() - artifacts.keys():
            yield f"artifact {name} was lost, though nothing under it was deleted"
        if warnings := run.status().warnings:
            yield f"the status warns: {warnings}"
        yield from (f"audit: {mismatch}" for mismatch in run.audit().mismatches)

    def _asked_again(self, run: s3t.Run, request: Request) -> Iterator[str]:
        before = run.status().generation
        report = run.delete(records=request.records, subjects=request.subjects)
        if set(report.already) != {*request.records, *request.subjects} or report.status.generation != before:
            yield f"{request.name}, asked for again: {report}"

    def _asked_for_the_first_time(self, run: s3t.Run, request: Request) -> Iterator[str]:
        report = run.delete(records=request.records, subjects=request.subjects)
        if report.deleted != len(request.gone):
            yield f"{request.name}, not accepted before the fault and asked for again: {report}"

    def _repaired(self, run: s3t.Run, deleted: list[Request]) -> Iterator[str]:
        run.repair()
        gone = frozenset[str]().union(*(request.gone for request in deleted))
        wanted = self.stock.never_knew[gone]
        if self.stock.old_orders is not None and run.recipe.sequences.budget == BUDGET:
            wanted = self.stock.old_orders
        artifacts = tiny.artifacts(self.folder)
        if artifacts != wanted:
            differ = sorted(name for name in artifacts.keys() | wanted if artifacts.get(name) != wanted.get(name))
            yield f"after repair the artifacts differ from those of a run that never knew {sorted(gone)}: {differ}"
        yield from self._state(run, deleted)

    def _no_run(self) -> Iterator[str]:
        if self.scenario.start is not None:
            yield "the run's folder is gone"
            return
        self.scenario.act(Program(run=self.folder, model=self.stock.model, acknowledge=lambda request: None))
        yield from self.all(repair=False)


def copy(start: Path | None, watched: Path) -> None:
    """A prepared run, or none, in the watched folder."""
    watched.mkdir()
    if start is not None:
        shutil.copytree(start, watched / "run")
