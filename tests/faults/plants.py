"""Mistakes that somebody could make in s3t. Each is a context in which the real code has it.

The interrupted process has it; the one that looks has it only if it is about what opening a run mends.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

from s3t.deletion.acceptance import Acceptor, Batch
from s3t.deletion.protocol import Eraser
from s3t.deletion.withdrawal import Withdrawer
from s3t.deletion.witness import Witness
from s3t.run import Run
from s3t.store import disk
from s3t.store.artifacts import Artifacts

Plant = Callable[[], AbstractContextManager[object]]


@contextlib.contextmanager
def acknowledge_early() -> Iterator[None]:
    """`delete` returns before anything is accepted, and does its work when the run is closed."""
    delete, close = Run.delete, Run.close
    later: list[dict[str, Any]] = []

    def closing(run: Run) -> None:
        while later:
            delete(run, **later.pop())
        close(run)

    with (
        mock.patch.object(Run, "delete", lambda run, **request: later.append(request)),
        mock.patch.object(Run, "close", closing),
    ):
        yield


def lenient(descriptor: int, path: Path) -> None:
    """What cannot be synchronised is taken for synchronised."""
    with contextlib.suppress(OSError):
        os.fsync(descriptor)


@contextlib.contextmanager
def witness_first() -> Iterator[None]:
    """A deletion is noted outside of the run before it is accepted."""
    accept = Acceptor.accept

    def noted_first(acceptor: Acceptor, batches: Sequence[Batch], *incoming: Any, **how: Any) -> Any:
        (description,) = Path(os.environ["S3T_STATE"]).parent.glob("run/run.json")
        witness = Witness.of_run(json.loads(description.read_text())["run"])
        found = acceptor.look(batches)
        witness.note(
            {result.generation: ("00", [row.token for row in result.rows], []) for result in found if result.generation}
        )
        return accept(acceptor, batches, *incoming, **how)

    with mock.patch.object(Acceptor, "accept", noted_first):
        yield


@contextlib.contextmanager
def write_unseen() -> Iterator[None]:
    """A file is written past the calls that the shim knows."""
    sweep = Eraser.sweep

    def and_scribble(eraser: Eraser, **options: bool) -> None:
        sweep(eraser, **options)
        with (
            (eraser.run / "recipe.yaml").open("r+b", buffering=0) as file,
            mmap.mmap(file.fileno(), 0) as content,
        ):
            content[-1:] = b" "

    with mock.patch.object(Eraser, "sweep", and_scribble):
        yield


def _nothing(where: object, name: str) -> Plant:
    """Does nothing instead."""
    return lambda: mock.patch.object(where, name, return_value=None)


PLANTS: dict[str, Plant] = {
    "acknowledge-early": acknowledge_early,
    "skip-fsync": _nothing(os, "fsync"),  # files are renamed, but never synchronised
    "skip-sweep": _nothing(Eraser, "sweep"),  # what killed processes left stays
    "skip-unfinished": _nothing(Withdrawer, "remove_unfinished"),  # and of exports
    "skip-erasure": _nothing(Artifacts, "erase"),  # tainted artifacts stay in the store
    "skip-finish": _nothing(Eraser, "finish"),  # opening does not finish what a crash interrupted
    "swallow-os-errors": lambda: mock.patch.object(disk, "_confirm", lenient),
    "witness-first": witness_first,
    "write-unseen": write_unseen,
}
MENDS = ("skip-sweep", "skip-unfinished", "skip-erasure", "skip-finish")


def planted(name: str | None, *, looking: bool = False) -> AbstractContextManager[object]:
    """The mistake of this name, or none."""
    return contextlib.nullcontext() if name is None or (looking and name not in MENDS) else PLANTS[name]()
