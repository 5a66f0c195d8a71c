"""What trials begin with and are compared to: prepared worlds, and runs that never knew the deleted records.

Each is made once, in a process of its own, so that the server that forks the trials has never touched a run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

import s3t
from s3t.deletion.holding import Limits
from s3t.store.folder import Home, Layout, write_home
from testing import tiny
from tests.faults.database import Database, Rows
from tests.faults.scenarios import Program, deletes
from tests.faults.shim import Shim, read_log
from tests.faults.world import LATER, MORE, ONE, enter, next_table, recipe, table

InChild = Callable[[Callable[[], None]], int]
"""Runs a function in a forked process; its exit status, negative for a signal."""


class Stock:
    """Prepared worlds in a folder."""

    def __init__(self, folder: Path, in_child: InChild, shim: Shim, database: Database) -> None:
        self.folder = folder
        self.model = folder / "model"
        self._in_child = in_child
        self._shim = shim
        self.database = database
        self._rows: dict[str, Rows] = {}
        self._follows: dict[str, bytes] | None = None
        self._counterfactual: dict[tuple[frozenset[str], bool], dict[str, bytes]] = {}
        self._in_fork(lambda: tiny.make_text_model(self.model))

    def copy(self, name: str, world: Path) -> None:
        """Set a prepared world up in a folder, and, where its ledger is in PostgreSQL, the rows there."""
        shutil.copytree(self._made(name), world)
        if (run := world / "run").is_dir():
            write_home(Layout(run), Home.of(run))
        if name in self._rows:
            self.database.restore(self._rows[name])

    def alive(self, name: str) -> set[str]:
        """Files of committed stages in a prepared run, relative to its artifacts folder."""
        noted = self.folder / f"{name}.alive"
        if not noted.exists():
            copy = self.folder / f"{name}.copy"
            self.copy(name, copy)

            def look() -> None:
                enter(copy)
                if name.startswith("restored"):
                    s3t.Run.reconcile(copy / "run")
                with s3t.Run.open(copy / "run") as run:
                    assert run.audit().ok
                noted.write_text(json.dumps(sorted(tiny.artifacts(copy / "run"))))

            self._in_fork(look)
            shutil.rmtree(copy)
        return set(json.loads(noted.read_text()))

    def never_knew(self, gone: frozenset[str], *, extended: bool = False) -> dict[str, bytes]:
        """The artifacts of a run that was trained without some records."""
        if (gone, extended) not in self._counterfactual:
            made = self.folder / f"never-knew-{len(self._counterfactual)}"
            if gone:
                self._make(made, lambda run: _train(run, recipe(self.model), gone=gone))
            else:  # it is there already
                self.copy("trained", made)
            if extended:
                self._make(made, _extend)
            self._counterfactual[gone, extended] = tiny.artifacts(made / "run")
            shutil.rmtree(made)
        return self._counterfactual[gone, extended]

    def follows(self) -> dict[str, bytes]:
        """The artifacts of a run that held what stays of the first table, and was given what comes with the next."""
        if self._follows is None:
            made, rows = self.folder / "follows", next_table()
            new = rows.id.isin(["id05w", "id16w"])

            def act(run: Path) -> None:
                with s3t.Run.create(run, recipe=recipe(self.model), data=rows[~new]) as one:
                    one.train()
                    one.add(rows[new])
                    one.train()

            self._make(made, act)
            self._follows = tiny.artifacts(made / "run")
            shutil.rmtree(made)
        return self._follows

    def _made(self, name: str) -> Path:
        made = self.folder / name
        if not made.exists():
            getattr(self, f"_make_{name.removeprefix('pg_')}")(made)
            if name.startswith("pg_"):
                self._rows[name] = self.database.save(made / "run")
        return made

    def _recipe(self, made: Path, **changes: Any) -> dict[str, Any]:
        """The recipe of a prepared run; its name says which database has its ledger."""
        ledger = {"ledger": self.database.url} if made.name.startswith("pg_") else {}
        return recipe(self.model, **changes, **ledger)

    def _make_trained(self, made: Path) -> None:
        self._make(made, lambda run: _train(run, self._recipe(made)))

    def _make_half(self, made: Path) -> None:
        self._make(made, lambda run: _train(run, self._recipe(made), progress=StopAt(7)))

    def _make_deleted(self, made: Path) -> None:
        self.copy(made.name.replace("deleted", "trained"), made)
        self._make(made, self._delete)

    def _make_held(self, made: Path) -> None:
        """ONE is asked for, and waits for an approval."""
        self.copy(made.name.replace("held", "trained"), made)
        self._make(made, _hold)

    def _make_unfinished(self, made: Path) -> None:
        """ONE is accepted, and nothing more: killed for real, when the first artifact shall be removed."""
        tried, log = self.folder / "unfinished.tried", self.folder / "unfinished.log"
        self.copy("trained", tried)

        def count(run: Path) -> None:
            self._shim.arm([tried], log=log)
            self._delete(run)

        self._make(tried, count)
        point = next(entry.number for entry in read_log(log) if entry.type == "unlink" and "/artifacts/" in entry.path)
        shutil.rmtree(tried)
        self.copy("trained", made)

        def die() -> None:
            enter(made)
            self._shim.arm([made], log=self.folder / "unfinished.killed", kind="kill", point=point)
            self._delete(made / "run")

        if self._in_child(die) != -9:
            raise RuntimeError("the deletion that should be left unfinished was not killed")

    def _make_patient(self, made: Path) -> None:
        """A record may wait in its slice."""
        self._make(made, lambda run: _train(run, self._recipe(made, deletion={"erase_within": LATER})))

    def _make_waiting(self, made: Path) -> None:
        """ONE waits in its slice."""
        self.copy("patient", made)
        self._make(made, self._delete)

    def _make_restored(self, made: Path) -> None:
        """ONE was deleted; then a backup from before was put back."""
        self.copy("deleted", made)
        shutil.rmtree(made / "run")
        shutil.copytree(self._backup(), made / "run")

    def _make_restored_slices(self, made: Path) -> None:
        """As before, but the ledger stayed, as one in a database does."""
        self.copy("deleted", made)
        kept = {path.name: path.read_bytes() for path in (made / "run").glob("ledger.sqlite*")}
        shutil.rmtree(made / "run")
        shutil.copytree(self._backup(), made / "run")
        for path in (made / "run").glob("ledger.sqlite*"):
            path.unlink()
        for name, content in kept.items():
            (made / "run" / name).write_bytes(content)
            (made / "run" / name).chmod(0o600)

    def _backup(self) -> Path:
        """The run that `deleted` was before the deletion."""
        return self._made("trained") / "run"

    def _delete(self, run: Path) -> None:
        deletes(ONE)(Program(run=run, model=self.model, acknowledge=lambda promise: None))

    def _make(self, world: Path, act: Callable[[Path], object]) -> None:
        """Let something be done to the run of a world."""

        def make() -> None:
            world.mkdir(exist_ok=True)
            enter(world)
            act(world / "run")

        self._in_fork(make)

    def _in_fork(self, make: Callable[[], None]) -> None:
        if status := self._in_child(make):
            raise RuntimeError(f"preparing ended with {status}; what it wrote is on stderr")


def _train(
    made: Path, content: dict[str, Any], *, gone: frozenset[str] = frozenset(), progress: StopAt | None = None
) -> None:
    rows: pd.DataFrame = table()
    with s3t.Run.create(made, recipe=content, data=rows[~rows.id.isin(gone)]) as run:
        try:
            run.train(progress=progress)
        except KeyboardInterrupt:
            return


def _hold(made: Path) -> None:
    every = Limits(records=0, share=None)
    with s3t.Run.open(made) as run:
        run.approvals.admit(
            records=ONE.records, subjects=ONE.subjects, key=None, strict=False, caller="app", limits=every
        )


def _extend(made: Path) -> None:
    with s3t.Run.open(made) as run:
        run.extend(budget=MORE)


class StopAt:
    """A listener that interrupts training before a stage."""

    def __init__(self, stage: int) -> None:
        self._left = stage

    def __call__(self, event: s3t.Event) -> None:
        self._left -= isinstance(event, s3t.StageStart)
        if self._left < 0:
            raise KeyboardInterrupt
