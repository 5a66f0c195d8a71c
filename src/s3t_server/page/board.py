"""State of a run for its page, read once for all visitors, and versions of the page's sections."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from s3t.core import Inventory, Stage
from s3t.ledger import DepthChange
from s3t.results.changes import Deletion
from s3t.results.serving import Held, Repair
from s3t.results.state import Forecast, Status, Worker
from s3t.run import Run
from s3t.run.forecasting import forecast_of
from s3t.run.reporting import forecast_now

ANY_SCOPE = ("delete", "operate", "audit")
"""Scopes that show the page; one is enough."""
SCOPES: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("summary", "done", "held", "shards", "repairs", "depths", "forecast", "deletions", "notes"), ("operate",)
) | dict.fromkeys(("done", "held", "deletions"), ANY_SCOPE)
"""Sections in the page's order, each with the scopes that show it; one is enough."""
DAY_SECONDS = 86_400.0
_LOOK_SECONDS = 0.25
"""Age at which a look at the run is made anew, in seconds, however many streams there are."""
_STATUS_SECONDS = 5.0
"""Seconds after which a status is made anew: warnings of this process come without a change of the run."""
_SHARE = 0.05
"""Largest share of the time that is spent on forecasts, which each deletion changes."""

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Look:
    """State of a run that the page depends on."""

    changes: int
    """Counter of the ledger's changes. Repairs, requests that are held or refused, and stages in training do not raise
    it."""
    workers: tuple[Worker, ...]
    """Processes that train a stage."""
    repairs: tuple[Repair, ...]
    """The newest first."""
    held: tuple[Held, ...]
    """Held requests for deletion, the newest first."""
    deleted: int
    """Deletions within the last day."""

    @property
    def training(self) -> frozenset[Stage]:
        return frozenset(worker.stage for worker in self.workers)


class Forecasts(NamedTuple):
    """Forecasts, and the counter of changes that they belong to."""

    now: Forecast | None
    repaired: Forecast | None
    """Once everything is repaired; None if nothing is missing."""
    changes: int


@dataclass(frozen=True)
class _Kept:
    value: Any
    of: Any
    until: float


@dataclass
class Board:
    """The state of one run for its page. Reading it is cheap and erases nothing. Safe to share among threads."""

    run: Run
    _kept: dict[str, _Kept] = field(default_factory=dict, init=False)
    _making: dict[str, threading.Lock] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def look(self) -> Look:
        """State of the run now, with what the visitor has just changed."""
        changes = self.run.parts.latest.snapshot().changes
        with self.run.parts.ledger.reading() as transaction:
            return Look(
                changes=changes,
                workers=tuple(transaction.sessions.workers()),
                repairs=tuple(transaction.rows.all(Repair)),
                held=tuple(transaction.rows.all(Held)),
                deleted=transaction.history.count_since(time.time() - DAY_SECONDS),
            )

    def last_look(self) -> Look:
        return self._keep("look", object(), self.look, seconds=_LOOK_SECONDS)

    def status(self, look: Look) -> Status:
        """Status of the run; warnings are at most a few seconds old."""
        return self._keep("status", (look.changes, time.monotonic() // _STATUS_SECONDS), self.run.status)

    def inventory(self, look: Look) -> Inventory:
        return self._keep("inventory", look.changes, self.run.inventory)

    def depths(self, look: Look) -> tuple[DepthChange, ...]:
        """Changes of shards' depths, the oldest first; the ledger keeps at least the newest 10,000."""
        return self._keep("depths", look.changes, self._depths)

    def _depths(self) -> tuple[DepthChange, ...]:
        with self.run.parts.ledger.reading() as transaction:
            return tuple(transaction.rows.all(DepthChange))

    def impact(self, look: Look, held: Held) -> Deletion:
        """Forecast of a held request. Computing it reads the names of every slice, so it is kept."""
        return self._keep("impact", (held.id, look.changes), lambda: self.run.approvals.impact(held))

    def forecast(self, look: Look) -> Forecast | None:
        """Forecast of exactly this state; kept, since it is the only slow part of /metrics."""
        return self._keep("forecast", look.changes, lambda: forecast_now(self.inventory(look), self.run.recipe))

    def forecasts(self, look: Look) -> Forecasts:
        """Forecasts, which may be behind: they take a second for a large run, and each deletion changes them."""
        return self._keep("forecasts", look.changes, lambda: self._forecasts(look), share=_SHARE)

    def _forecasts(self, look: Look) -> Forecasts:
        inventory, now, repaired = self.inventory(look), self.forecast(look), None
        if now is not None and inventory.missing():
            repaired = forecast_of(repaired_inventory(inventory), self.run.recipe)
        return Forecasts(now, repaired, look.changes)

    def versions(self, look: Look) -> dict[str, str]:
        """A version of every section: with the same one it shows the same."""
        forecasts = self.forecasts(look).changes
        of: dict[str, Any] = {
            "summary": (look.changes, forecasts),
            "held": (look.changes, [(held.id, held.state) for held in look.held]),
            "shards": (look.changes, look.workers),
            "repairs": (look.changes, forecasts, look.repairs),
            "forecast": forecasts,
            "notes": (look.changes, self.status(look).warnings),
        }
        return {name: _digest(of.get(name, look.changes)) for name in SCOPES}

    def _keep(
        self, name: str, of: Any, make: Callable[[], Value], *, seconds: float = 0.0, share: float = 1.0
    ) -> Value:
        """A value, made anew by one thread at a time if the state is another and its time is over.

        With `seconds` or `share` the value may be old, so no other thread waits for the new one.
        """
        with self._lock:
            making, old = self._making.setdefault(name, threading.Lock()), self._kept.get(name)
        if not making.acquire(blocking=old is None or (seconds == 0 and share == 1)):
            return old.value  # type: ignore[union-attr, no-any-return]
        try:
            kept, began = self._kept.get(name), time.monotonic()
            if kept is not None and (kept.of == of or began < kept.until):
                return kept.value  # type: ignore[no-any-return]
            value, ended = make(), time.monotonic()
            self._kept[name] = _Kept(value, of, ended + max(seconds, (ended - began) * (1 / share - 1)))
            return value
        finally:
            making.release()


def repaired_inventory(inventory: Inventory) -> Inventory:
    return replace(inventory, alive={**inventory.alive, **dict.fromkeys(inventory.missing(), "")}, scores=None)


def _digest(value: Any) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=6).hexdigest()
