"""A run that is served, and what its routes share."""

from __future__ import annotations

import time
from pathlib import Path

from anyio import CapacityLimiter

import s3t
from s3t_server.batching import Batcher
from s3t_server.callers import Callers
from s3t_server.metrics import Metrics
from s3t_server.page.board import Board
from s3t_server.repairs import Repairs
from s3t_server.settings import Settings
from s3t_server.tokens import Access
from s3t_server.writing import Scribe

LOOK_SECONDS = 0.01
"""Between two looks at the ledger: how soon a deletion that another process accepts is effective here."""
_DELETING_THREADS = 32
"""Deletions of a run that a worker accepts at once. They share transactions."""

_LOOKING_THREADS = 4
"""Threads of all streams of the page: while one computes a forecast, they must not keep the threads that answer."""


class ServedRun:
    """A run that is served under a name.

    Raises:
        S3TError: the run cannot be opened, or its base model cannot be loaded; it is not left open.
    """

    def __init__(self, name: str, path: Path, settings: Settings, metrics: Metrics) -> None:
        self.name, self.settings, self.metrics = name, settings, metrics
        self.run = run = s3t.Run.open(path)
        self.gateway = None  # asks an engine for the answers; None: the run computes them
        try:
            if settings.engine is None:
                run.prepare(look_seconds=LOOK_SECONDS)
            run.parts.presence.start()  # also while nothing is asked, it finishes what other processes leave undone
            if settings.engine is not None and settings.engine_adapters is not None:
                from s3t_server.gateway.gateway import Gateway  # here: most servers have none

                run.parts.presence.poll_seconds = LOOK_SECONDS
                self.gateway = Gateway(run, settings.engine, settings.engine_adapters, settings.engine_seconds)
        except BaseException:
            run.close()
            raise
        self.board = Board(run)
        self.callers = Callers(Access(run), frozenset(settings.open_scopes))
        self.batcher = Batcher(
            (self.gateway or run).hold,
            most=0 if settings.exact else run.recipe.prediction.batch_size,
            wait=settings.wait,
            max_queued=settings.max_queued_inputs,
            max_queued_bytes=settings.max_queued_bytes,
        )
        self.scribe = Scribe(
            run.parts.writer,
            most=settings.max_texts,
            max_queued=settings.max_queued_texts,
            together=not settings.exact,
        )
        self.repairs = Repairs(run)
        self.repairs.start(by_policy=settings.repair, hours_a_day=settings.repair_hours_a_day)
        self.deletions = CapacityLimiter(_DELETING_THREADS)  # they may wait for other servers, and keep no other thread
        self.looking = CapacityLimiter(_LOOKING_THREADS)

    def close(self) -> None:
        self.batcher.close()
        self.scribe.close()
        if self.gateway is not None:
            self.gateway.close()
        self.repairs.close()
        self.run.close()

    @property
    def has_subjects(self) -> bool:
        return self.run.recipe.columns.subject is not None

    @property
    def hangs(self) -> bool:
        """True if a computation has not come to an end for longer than any takes."""
        oldest = time.monotonic() - self.settings.hang_seconds
        return any(since is not None and since < oldest for since in (self.batcher.busy_since, self.scribe.busy_since))

    @property
    def trouble(self) -> str | None:
        """Why the run cannot answer now; None if it can."""
        inventory = self.run.inventory()
        if not inventory.answering():
            remedy = "it needs a repair" if any(inventory.records.values()) else "it holds no record"
            return f"no shard of the run can answer; {remedy}"
        if self.gateway is not None and (trouble := self.gateway.keeper.trouble) is not None:
            return f"{trouble}; the server's log has more"
        return None
