"""What must hold after a fault, looked at by a process that had no part in it, and as far as it goes past s3t.

The files themselves are read: slices by pyarrow, artifacts by name and bytes, everything by a search for the words of
the deleted. What they must be is known from runs that never held the deleted records.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import traceback
from collections.abc import Collection, Iterator
from pathlib import Path

import pandas as pd
import pyarrow.parquet

import s3t
from s3t.deletion.witness import Witness
from testing import tiny
from tests.deletion.listed import place_named
from tests.faults.plants import planted
from tests.faults.scenarios import DESTROYED, ERASED, EXPORTS, SCENARIOS, SYNCED, Program, Scenario
from tests.faults.stock import Stock
from tests.faults.trial import Trial
from tests.faults.victim import Notes
from tests.faults.world import BUDGET, NEW_WORDS, OLD_WORDS, Request, next_table, table, words_of


def verify(trial: Trial, *, watched: Path, stock: Expected, notes: Notes) -> list[str]:
    """Everything that is wrong; empty if all promises were kept."""
    problems = notes.details("broke")
    try:
        with planted(trial.plant, looking=True):
            promised = set(notes.details("acknowledged"))
            check = Check(SCENARIOS[trial.scenario], watched=watched, stock=stock, promised=promised)
            problems += check.all(repair=trial.repair)
    except BaseException:
        problems.append(f"checking raised\n{traceback.format_exc()}")
    return problems


class Expected:
    """What a prepared run and the counterfactual runs hold, as the server knows it before it forks."""

    def __init__(self, stock: Stock, scenario: Scenario) -> None:
        gone = frozenset[str]().union(*(request.gone for request in scenario.before))
        self.model, self.ledger = stock.model, stock.database.url if scenario.postgres else None
        self.alive = stock.alive(scenario.start) if scenario.start else set()
        self.follows = stock.follows() if scenario.follows else {}
        # Not all orders may be there yet, if it is extended: then what is trained is what the old ones ask for.
        self.old_orders = stock.never_knew(gone) if scenario.extends else None
        self.never_knew = {gone: stock.never_knew(gone, extended=scenario.extends)}
        for request in scenario.requests:
            for step in request.steps:
                self.never_knew[gone | step] = stock.never_knew(gone | step, extended=scenario.extends)
            gone |= request.gone


class Check:
    """One look at a run after a fault."""

    def __init__(self, scenario: Scenario, *, watched: Path, stock: Expected, promised: set[str]) -> None:
        self.scenario = scenario
        self.watched = watched
        self.folder = watched / "run"
        self.stock = stock
        self.promised = {request.name for request in scenario.before} | promised
        self.requests = (*scenario.before, *scenario.requests)

    def all(self, *, repair: bool) -> Iterator[str]:
        if not self.folder.exists():
            yield from self._no_run()
            return
        if self.scenario.clones and (clone := self.folder.with_name("clone")).exists():
            with s3t.Run.open(clone) as made:
                yield from (f"audit of the clone: {mismatch}" for mismatch in made.audit().mismatches)
            shutil.rmtree(clone)
        with self._opened() as run:
            if self.scenario.destroys and (yield from self._destroyed(run)):
                return
            if self.scenario.follows:
                yield from self._follows(run)
                return
            if self.scenario.waits:
                yield from self._waits(run)
            gone = frozenset[str]()
            left = {request.name: request.gone & self._present() for request in self.requests}
            for request in self.requests:
                yield from self._whole_or_not_at_all(request, left[request.name])
                gone |= request.gone - left[request.name]
            yield from self._state(run, gone)
            for request in self.requests:
                if not left[request.name]:
                    yield from self._asked_again(run, request)
            for request in self.requests:
                if left[request.name]:
                    yield from self._goes_on(run, request, begun=left[request.name] < request.gone)
                    gone |= request.gone
                    yield from self._state(run, gone)
            if repair:
                yield from self._repaired(run, gone)
        if not self.scenario.postgres:
            yield from self._sound()

    def _opened(self) -> s3t.Run:
        """The run, as whoever comes next opens it: what is an older state says so, and can be healed."""
        try:
            return s3t.Run.open(self.folder)
        except s3t.errors.RestoredError:
            if not self.scenario.restored:
                raise
            s3t.Run.reconcile(self.folder)
            return s3t.Run.open(self.folder)

    def _present(self) -> set[str]:
        files = self.folder.glob("slices/shard-*/slice-*.parquet")
        return {name for file in files for name in pyarrow.parquet.ParquetFile(file).read()["record"].to_pylist()}

    def _follows(self, run: s3t.Run) -> Iterator[str]:
        """The run holds one table or the other, and nothing of both; it can follow the next one, and learn it."""
        followed = bool(run.parts.ledger.snapshot().added)
        if SYNCED in self.promised and not followed:
            yield "the run does not follow the table any more"
        yield from self._holds(run, next_table() if followed else table(), OLD_WORDS if followed else NEW_WORDS)
        done = run.sync(next_table(), max_deletions=1)
        if (done.addition, done.unchanged) != ((None, 16) if followed else (1, 14)):
            yield f"synchronised after the fault: {done}"
        yield from self._holds(run, next_table(), OLD_WORDS)
        run.train()
        if tiny.artifacts(self.folder) != self.stock.follows:
            yield "once the table is learned, the artifacts differ from those of a run that never knew the old one"
        yield from self._holds(run, next_table(), OLD_WORDS)

    def _holds(self, run: s3t.Run, rows: pd.DataFrame, others: Collection[bytes]) -> Iterator[str]:
        if (present := self._present()) != set(rows.id):
            yield f"the slices hold {sorted(present)}"
        yield from self._clean(others)
        yield from (f"audit: {mismatch}" for mismatch in run.audit().mismatches)

    def _whole_or_not_at_all(self, request: Request, left: frozenset[str]) -> Iterator[str]:
        """A request, or of a long one each batch."""
        allowed = [request.gone - step for step in request.steps]
        if left and (request.name in self.promised or left not in (request.gone, *allowed)):
            yield f"{request.name}: {sorted(left)} of {sorted(request.gone)} are still there"

    def _state(self, run: s3t.Run, gone: frozenset[str]) -> Iterator[str]:
        """What holds at any time between two operations."""
        yield from self._exports(run)
        if (present := self._present()) != set(table().id) - gone:
            yield f"the slices hold {sorted(present)} after {sorted(gone)} were deleted"
        yield from self._forgotten(gone)
        yield from self._artifacts(gone)
        wanted, artifacts = self.stock.never_knew[gone], tiny.artifacts(self.folder)
        for name in self.stock.alive & wanted.keys() - artifacts.keys():
            yield f"artifact {name} was lost, though nothing under it was deleted"
        name = json.loads((self.folder / "run.json").read_text())["run"]
        witness, status = Witness.of_run(name).newest(), run.status()
        if witness != status.generation:
            yield f"the witness has seen generation {witness}, the ledger is at {status.generation}"
        silent = set() if all(status.depths) else set(status.outage)  # a deletion may leave a shard without a stage
        if warnings := set(status.warnings) - silent:
            yield f"the status warns: {warnings}"
        yield from (f"audit: {mismatch}" for mismatch in run.audit().mismatches)
        for held in run.approvals.all():
            if held.state == "approved":
                yield f"{held.id} is approved, and was not carried out"

    def _exports(self, run: s3t.Run) -> Iterator[str]:
        """What was exported is of what is alive; what was not, the operator withdraws, and nothing is left of it."""
        for export in run.status().to_withdraw:
            run.withdraw(export.name)
        alive = set(run.inventory().alive.values())
        with run.parts.ledger.reading() as transaction:
            standing = {export.label: export for export in transaction.exports.standing()}
        for path in self.watched.glob(f"{EXPORTS}/*"):
            if path.name not in standing:
                yield f"{path.name} was left behind by an export"
            elif not alive >= set(standing[path.name].keys):
                yield f"export {path.name} holds what was trained on a deleted record"

    def _forgotten(self, gone: frozenset[str]) -> Iterator[str]:
        """No file holds what they were, and no file is there that nobody knows."""
        yield from self._clean(words_of(gone))

    def _clean(self, words: Collection[bytes]) -> Iterator[str]:
        files = tiny.all_files(self.watched)
        for word in words:
            yield from (f"{word.decode()} is in {path} still" for path, content in files.items() if word in content)
        for path in files:
            folder, _, inside = path.partition("/")
            known = folder == EXPORTS or (folder in ("run", "state") and place_named(inside, folder=folder) is not None)
            if not known or inside.startswith("tmp/"):
                yield f"{path} was left behind"

    def _artifacts(self, gone: frozenset[str]) -> Iterator[str]:
        wanted = self.stock.never_knew[gone]
        for name, content in tiny.artifacts(self.folder).items():
            if wanted.get(name) != content:
                yield f"artifact {name} is not one of a run that never knew {sorted(gone)}"

    def _waits(self, run: s3t.Run) -> Iterator[str]:
        """What is accepted may wait in its slice until somebody asks, unless that was promised; nothing else may."""
        accepted = sum(entry.records for entry in run.log())
        gone = frozenset[str]()
        for request in self.requests:
            if request.name in self.promised or accepted >= len(gone | request.gone):
                gone |= request.gone
        if accepted != len(gone):
            yield f"{accepted} records are accepted for deletion; promised are {sorted(gone)}"
        if ERASED in self.promised:
            yield from self._forgotten(gone)
        yield from self._artifacts(gone)
        run.erase()

    def _destroyed(self, run: s3t.Run) -> Iterator[str]:
        """Whether the run's secret was destroyed; if so, the run answers, and nothing of the secret is left."""
        try:
            run.delete(records=["id03w"], dry_run=True)
        except s3t.errors.KeyDestroyedError:
            pass
        else:
            if DESTROYED in self.promised:
                yield "the run's secret was destroyed, and is there again"
            return False
        if DESTROYED not in self.promised:
            run.destroy_key()  # interrupted, it is asked for again
        salt = tiny.SALT.encode()
        yield from (
            f"{path} holds the secret" for path, content in tiny.all_files(self.watched).items() if salt in content
        )
        gone = frozenset[str]().union(*(request.gone for request in self.requests))
        yield from self._forgotten(gone)
        yield from self._artifacts(gone)
        if not run.predict(["w1 w2"]).members:
            yield "it does not answer"
        return True

    def _asked_again(self, run: s3t.Run, request: Request) -> Iterator[str]:
        before = run.status().generation
        if request.key is not None:
            report = request.ask(run)
            if not report.repeated or report.deleted != len(request.gone) or report.already or report.unknown:
                yield f"{request.name}, made again with its key: {report}"
        report = request.ask(run, with_key=False)
        if set(report.already) != {*request.records, *request.subjects} or report.generation != before:
            yield f"{request.name}, asked for again: {report}"

    def _goes_on(self, run: s3t.Run, request: Request, *, begun: bool) -> Iterator[str]:
        """A request that was not accepted, or not whole, before the fault."""
        report = request.ask(run)
        if self.scenario.waits:
            run.erase()
        if report.deleted != len(request.gone) or report.repeated != begun:
            yield f"{request.name}, asked for after the fault: {report}"

    def _repaired(self, run: s3t.Run, gone: frozenset[str]) -> Iterator[str]:
        run.repair()
        wanted = self.stock.never_knew[gone]
        if self.stock.old_orders is not None and run.recipe.sequences.budget == BUDGET:
            wanted = self.stock.old_orders
        artifacts = tiny.artifacts(self.folder)
        if artifacts != wanted:
            differ = sorted(name for name in artifacts.keys() | wanted if artifacts.get(name) != wanted.get(name))
            yield f"after repair the artifacts differ from those of a run that never knew {sorted(gone)}: {differ}"
        yield from self._state(run, gone)

    def _sound(self) -> Iterator[str]:
        with contextlib.closing(sqlite3.connect(self.folder / "ledger.sqlite")) as ledger:
            (found,) = ledger.execute("PRAGMA integrity_check").fetchone()
            if found != "ok":
                yield f"the ledger is damaged: {found}"

    def _no_run(self) -> Iterator[str]:
        if self.scenario.start is not None:
            yield "the run's folder is gone"
            return
        stock = self.stock
        self.scenario.act(
            Program(run=self.folder, model=stock.model, acknowledge=lambda promise: None, ledger=stock.ledger)
        )
        yield from self.all(repair=False)
