"""The newest state of a run for its page, read once for all who look on, and versions of the page's sections."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from s3t.run.forecasting import forecast_of
from s3t.serve.page.outlook import repaired_inventory

if TYPE_CHECKING:
    from s3t.deletion.deleter import Outcome
    from s3t.ledger import Held, Repair
    from s3t.planning.forecast import Forecast
    from s3t.run import Run
    from s3t.run.results import Status
    from s3t.stages import Stage

ANY_SCOPE = ("delete", "operate", "audit")
"""Scopes of which one shows the page."""
SCOPES: Mapping[str, tuple[str, ...]] = {
    "summary": ("operate",),
    "done": ANY_SCOPE,
    "held": ANY_SCOPE,
    "shards": ("operate",),
    "repairs": ("operate",),
    "depths": ("operate",),
    "forecast": ("operate",),
    "deletions": ANY_SCOPE,
    "notes": ("operate",),
}
"""Sections of the page, in its order, and scopes of which one shows each."""
_LOOK_SECONDS = 0.25
"""Streams look at the run this often, however many there are."""
_SHARE = 0.05
"""Share of the time in which forecasts are computed, at most: each deletion changes them."""

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the page depends on, at one time."""

    changes: int
    """The counter of the run's changes."""
    training: frozenset[Stage]
    """Stages in training."""
    repairs: tuple[Repair, ...]
    """The newest first."""
    held: tuple[Held, ...]
    """Held requests for deletion, the newest first."""


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
    """The state of one run for its page. Safe to share among threads."""

    run: Run
    _kept: dict[str, _Kept] = field(default_factory=dict, init=False)
    _making: dict[str, threading.Lock] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def look(self) -> Look:
        """The run now: whoever has just changed something sees it."""
        return Look(
            changes=self.run.watch.changes(),
            training=self.run.watch.in_training(),
            repairs=self.run.repairs.all(),
            held=self.run.approvals.all(),
        )

    def last_look(self) -> Look:
        """The run as it was a moment ago."""
        return self._keep("look", object(), self.look, seconds=_LOOK_SECONDS)

    def status(self, look: Look) -> Status:
        """The run's status."""
        return self._keep("status", look.changes, self.run.status)

    def impact(self, look: Look, held: Held) -> Outcome:
        """What a held request would do now. It reads the names of every slice, so it is kept while nothing changes."""
        return self._keep("impact", (held.id, look.changes), lambda: self.run.approvals.impact(held))

    def forecasts(self, look: Look) -> Forecasts:
        """Forecasts. Of a large run they take a second, and each deletion changes them, so they may be behind."""
        return self._keep("forecasts", look.changes, lambda: self._forecasts(look), share=_SHARE)

    def _forecasts(self, look: Look) -> Forecasts:
        status, repaired = self.status(look), None
        if status.missing and status.forecast is not None:
            repaired = forecast_of(repaired_inventory(status.inventory), status.recipe)
        return Forecasts(status.forecast, repaired, look.changes)

    def versions(self, look: Look) -> dict[str, str]:
        """A version of every section: with the same one it shows the same."""
        forecasts = self.forecasts(look).changes
        of: dict[str, Any] = {
            "summary": (look.changes, forecasts),
            "held": (look.changes, [(held.id, held.state) for held in look.held]),
            "shards": (look.changes, sorted(look.training)),
            "repairs": (look.changes, forecasts, look.repairs),
            "forecast": forecasts,
        }
        return {name: _digest(of.get(name, look.changes)) for name in SCOPES}

    def _keep(
        self, name: str, of: Any, make: Callable[[], Value], *, seconds: float = 0.0, share: float = 1.0
    ) -> Value:
        """A value that is made anew, in one thread at a time, if it belongs to another state, and some time is over.

        Args:
            name: of the value.
            of: state that it belongs to.
            make: makes it.
            seconds: for which it stays in any case.
            share: of the time, at most, is taken by making it.
        """
        with self._lock:
            making = self._making.setdefault(name, threading.Lock())
        with making:
            kept, began = self._kept.get(name), time.monotonic()
            if kept is not None and (kept.of == of or began < kept.until):
                return kept.value  # type: ignore[no-any-return]
            value, ended = make(), time.monotonic()
            self._kept[name] = _Kept(value, of, ended + max(seconds, (ended - began) * (1 / share - 1)))
            return value


def _digest(value: Any) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=6).hexdigest()
