"""What trials begin with and are compared to: prepared runs, and runs that never knew the deleted records.

Each is made once, in a process of its own, so that the server that forks the trials has never touched a run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import s3t
from tests import tiny
from tests.faults.scenarios import Program, deletes
from tests.faults.shim import Shim, read_log
from tests.faults.world import MORE, ONE, recipe, table

InChild = Callable[[Callable[[], None]], int]
"""Runs a function in a forked process; its exit status, negative for a signal."""


class Stock:
    """Prepared runs in a folder."""

    def __init__(self, folder: Path, in_child: InChild, shim: Shim) -> None:
        self.folder = folder
        self.model = folder / "model"
        self._in_child = in_child
        self._shim = shim
        self._counterfactual: dict[tuple[frozenset[str], bool], dict[str, bytes]] = {}
        self._in_fork(lambda: tiny.make_text_model(self.model))

    def run(self, name: str) -> Path:
        """A run to be copied: half (trained), trained, deleted (ONE is gone), unfinished (ONE is accepted alone)."""
        made = self.folder / name
        if not made.exists():
            getattr(self, f"_make_{name}")(made)
        return made

    def alive(self, name: str) -> set[str]:
        """Files of committed stages in a prepared run, relative to its artifacts folder."""
        noted = self.folder / f"{name}.alive"
        if not noted.exists():
            copy = self.folder / f"{name}.copy"
            shutil.copytree(self.run(name), copy)

            def look() -> None:
                with s3t.Run.open(copy) as run:
                    assert run.audit().ok
                noted.write_text(json.dumps(sorted(tiny.artifacts(copy))))

            self._in_fork(look)
            shutil.rmtree(copy)
        return set(json.loads(noted.read_text()))

    def never_knew(self, gone: frozenset[str], *, extended: bool = False) -> dict[str, bytes]:
        """The artifacts of a run that was trained without some records."""
        if (gone, extended) not in self._counterfactual:
            made = self.folder / f"never-knew-{len(self._counterfactual)}"
            if gone:
                self._in_fork(lambda: _train(made, recipe(self.model), gone=gone))
            else:  # it is there already
                shutil.copytree(self.run("trained"), made)
            if extended:
                self._in_fork(lambda: _extend(made))
            self._counterfactual[gone, extended] = tiny.artifacts(made)
            shutil.rmtree(made)
        return self._counterfactual[gone, extended]

    def _make_trained(self, made: Path) -> None:
        self._in_fork(lambda: _train(made, recipe(self.model), gone=frozenset()))

    def _make_half(self, made: Path) -> None:
        def make() -> None:
            with s3t.Run.create(made, recipe=recipe(self.model), data=table()) as run:
                try:
                    run.train(progress=StopAt(7))
                except KeyboardInterrupt:
                    return

        self._in_fork(make)

    def _make_deleted(self, made: Path) -> None:
        shutil.copytree(self.run("trained"), made)
        self._in_fork(lambda: self._delete(made))

    def _make_unfinished(self, made: Path) -> None:
        """Killed for real, when the first artifact shall be removed: that is after acceptance."""
        tried, log = self.folder / "unfinished.tried", self.folder / "unfinished.log"
        shutil.copytree(self.run("trained"), tried)

        def count() -> None:
            self._shim.arm([tried], log=log)
            self._delete(tried)

        self._in_fork(count)
        point = next(entry.number for entry in read_log(log) if entry.type == "unlink" and "/artifacts/" in entry.path)
        shutil.rmtree(tried)
        shutil.copytree(self.run("trained"), made)

        def die() -> None:
            self._shim.arm([made], log=self.folder / "unfinished.killed", kind="kill", point=point)
            self._delete(made)

        if self._in_child(die) != -9:
            raise RuntimeError("the deletion that should be left unfinished was not killed")

    def _delete(self, folder: Path) -> None:
        deletes(ONE)(Program(run=folder, model=self.model, acknowledge=lambda request: None))

    def _in_fork(self, make: Callable[[], object]) -> None:
        if status := self._in_child(lambda: (make(), None)[1]):
            raise RuntimeError(f"preparing ended with {status}; what it wrote is on stderr")


def _train(made: Path, content: dict[str, Any], *, gone: frozenset[str]) -> None:
    rows = table()
    with s3t.Run.create(made, recipe=content, data=rows[~rows.id.isin(gone)]) as run:
        run.train()


def _extend(made: Path) -> None:
    with s3t.Run.open(made) as run:
        run.extend(budget=MORE)


class StopAt:
    """A listener that interrupts training before a stage."""

    def __init__(self, stage: int) -> None:
        self._left = stage

    def start(self, what: str, total: int) -> None: ...

    def finish(self) -> None: ...

    def advance(self, count: int) -> None: ...

    def note(self, what: str) -> None:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
