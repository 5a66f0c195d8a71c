"""The newest state of a run for its page, read once for all who look on, and versions of the page's sections."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from s3t.run.forecasting import forecast_of
from s3t.serve.page.outlook import repaired_inventory

if TYPE_CHECKING:
    from s3t.deletion.deleter import Outcome
    from s3t.ledger import Held, Repair
    from s3t.planning.forecast import Forecast
    from s3t.run import Run
    from s3t.run.results import Status
    from s3t.stages import Stage

SCOPES: Mapping[str, tuple[str, ...]] = {
    "summary": ("operate",),
    "done": ("delete", "operate", "audit"),
    "held": ("delete", "operate", "audit"),
    "shards": ("operate",),
    "repairs": ("operate",),
    "depths": ("operate",),
    "forecast": ("operate",),
    "deletions": ("delete", "operate", "audit"),
    "notes": ("operate",),
}
"""Sections of the page, in its order, and scopes of which one shows each."""
ANY_SCOPE = ("delete", "operate", "audit")
"""Scopes of which one shows the page."""
_LOOK_SECONDS = 0.25
"""A state is read anew after this time, if somebody asks."""
_SHARE = 0.05
"""Share of the time in which forecasts are computed, at most: each deletion changes them."""

Value = TypeVar("Value")


@dataclass
class _Kept:
    """A value, and when it was made."""

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

    def changes(self) -> int:
        """The counter of the run's changes."""
        return self._keep("changes", None, self.run.watch.changes, seconds=_LOOK_SECONDS)

    def status(self) -> Status:
        """The run's status."""
        return self._keep("status", self.changes(), self.run.status)

    def training(self) -> frozenset[Stage]:
        """Stages in training."""
        return self._keep("training", None, self.run.watch.in_training, seconds=_LOOK_SECONDS)

    def repairs(self) -> tuple[Repair, ...]:
        """Repairs, the newest first."""
        return self._keep("repairs", None, self.run.repairs.all, seconds=_LOOK_SECONDS)

    def held(self) -> tuple[Held, ...]:
        """Held requests for deletion, the newest first."""
        return self._keep("held", None, self.run.approvals.all, seconds=_LOOK_SECONDS)

    def impact(self, held: Held) -> Outcome:
        """What a held request would do now. It reads the names of every slice, so it is kept while nothing changes."""
        return self._keep("impact", (held.id, self.changes()), lambda: self.run.approvals.impact(held))

    def forecasts(self) -> tuple[Forecast | None, Forecast | None, int]:
        """Forecasts from now on, and from after a repair; and the counter of changes that they belong to.

        Of a large run they take a second. They are computed in a twentieth of the time, so they may be behind.
        """
        return self._keep("forecasts", self.changes(), self._forecasts, share=_SHARE)

    def _forecasts(self) -> tuple[Forecast | None, Forecast | None, int]:
        status, changes = self.status(), self.changes()
        after = None
        if status.missing and status.forecast is not None:
            try:
                after = forecast_of(repaired_inventory(status.inventory), status.recipe)
            except (ArithmeticError, MemoryError, ValueError):
                after = None
        return status.forecast, after, changes

    def versions(self) -> dict[str, str]:
        """A version of every section: with the same one it shows the same."""
        changes, training, repairs = self.changes(), sorted(self.training()), self.repairs()
        forecasts = self.forecasts()[-1]
        of: dict[str, Any] = {
            "summary": (changes, forecasts),
            "shards": (changes, training),
            "forecast": forecasts,
            "repairs": (changes, forecasts, repairs),
            "held": (changes, [(held.id, held.state) for held in self.held()]),
        }
        return {name: _digest(of.get(name, changes)) for name in SCOPES}

    def _keep(
        self, name: str, of: Any, make: Callable[[], Value], *, seconds: float | None = None, share: float = 1.0
    ) -> Value:
        """A value that is made anew when what it is made of has changed, or so many seconds have passed.

        Args:
            name: of the value.
            of: what it is made of.
            make: makes it, in one thread at a time.
            seconds: for which it stays; None: for as long as `of` does.
            share: of the time, at most, is taken by making it.
        """
        with self._lock:
            making = self._making.setdefault(name, threading.Lock())
        with making:
            kept, began = self._kept.get(name), time.monotonic()
            if kept is not None and (began < kept.until or (seconds is None and kept.of == of)):
                return kept.value  # type: ignore[no-any-return]
            value, ended = make(), time.monotonic()
            stays = (ended - began) * (1 / share - 1) if seconds is None else seconds
            self._kept[name] = _Kept(value, of, ended + (stays if share < 1 or seconds is not None else 0.0))
            return value


def _digest(value: Any) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=6).hexdigest()
