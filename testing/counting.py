"""What an operation costs, counted: statements and rows of the ledger, and calls of the file system."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, Row, Table, event

import s3t
from s3t.core import Stage
from s3t.events import Progress
from s3t.ledger import Snapshot
from s3t.ledger.presence import Uses
from s3t.ledger.rows import Rows
from s3t.prediction.answers import choose_members
from s3t.run.parts import LazyWorkshop
from s3t.store.artifacts import Manifest
from testing.roles import roles

_FILE_EVENTS = ("open", "os.listdir", "os.scandir", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod")


class _Heard:
    """Counts of the thread that counts; other threads look at the ledger whenever they like."""

    counts: Counter[str] | None = None
    thread = 0
    hooked = False

    @classmethod
    def add(cls, what: str, count: int = 1) -> None:
        if cls.counts is not None and cls.thread == threading.get_ident():
            cls.counts[what] += count


def _hear_audit(name: str, _arguments: tuple[Any, ...]) -> None:
    if name in _FILE_EVENTS:
        _Heard.add("file calls")


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts, while within, of this thread: `statements`, `rows`, `rows of TABLE`, `file calls`, `looks` (stat)."""
    if not _Heard.hooked:
        sys.addaudithook(_hear_audit)  # there is no taking it away
        _Heard.hooked = True
    stat, wrong = os.stat, Rows.wrong

    def look(*arguments: Any, **options: Any) -> os.stat_result:
        _Heard.add("looks")
        return stat(*arguments, **options)

    def read(self: Rows, table: Table, rows: list[Row[Any]]) -> list[Row[Any]]:
        _Heard.add("rows", len(rows))
        _Heard.add(f"rows of {table.name}", len(rows))
        return wrong(self, table, rows)

    def run(*_arguments: Any) -> None:
        _Heard.add("statements")

    _Heard.counts, _Heard.thread = Counter(), threading.get_ident()
    os.stat, Rows.wrong = look, read  # type: ignore[assignment, method-assign]
    event.listen(Engine, "before_cursor_execute", run)
    try:
        yield _Heard.counts
    finally:
        event.remove(Engine, "before_cursor_execute", run)
        os.stat, Rows.wrong = stat, wrong  # type: ignore[method-assign]
        _Heard.counts = None


@contextmanager
def training_nothing() -> Iterator[None]:
    """Stages, while within, are trained without a model, to a byte; all else of a training is done."""
    train = LazyWorkshop.train
    LazyWorkshop.train = _train  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        LazyWorkshop.train = train  # type: ignore[method-assign]


def _train(
    _self: LazyWorkshop, stage: Stage, snapshot: Snapshot, _progress: Progress, _checkpoints: object
) -> tuple[str, bytes, Manifest]:
    digests, content = snapshot.digests(stage), b"x"
    key = hashlib.sha256(f"{stage}{digests}".encode()).hexdigest()
    return (
        key,
        content,
        Manifest(
            key=key,
            shard=stage.shard,
            prefix=stage.prefix,
            slice_digests=digests,
            base_digest="",
            seed=0,
            precision="fp32",
            threads=1,
            steps=0,
            environment={},
            sha256=hashlib.sha256(content).hexdigest(),
            parents=(),
        ),
    )


def answer_nothing(run: s3t.Run) -> int:
    """All of a prediction but the model: who answers, and whether they still may; returns the number of members."""
    parts = roles(run)
    parts.upkeep.erase_due()
    now = parts.latest.snapshot()
    inventory = parts.latest.inventory(now)
    members = choose_members(inventory, None, settings=parts.recipe.prediction, run=str(run.path))
    uses = Uses(stages={link: now.stages[link] for stage in members for link in stage.chain})
    with parts.presence.answering(now, uses):
        return len(members)
