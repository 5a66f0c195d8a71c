"""One trial: a scenario, a fault, the point at which it comes; and what came of it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.faults.scenarios import Scenario

KINDS = (
    *("kill", "kill-after", "torn", "short", "full", "eio", "fsync"),
    *("fsync-power", "kill-power", "power", "connection"),
)
"""kill, kill-after: SIGKILL before the call, or after it. torn: a first part is written, then SIGKILL. short: fewer
bytes are written than asked, which is legal. full: no space, here and from here on. eio: one write fails. fsync: one
fsync fails. fsync-power: so it does, and then the power is lost. power: it is lost here. kill-power: SIGKILL, and the
power is lost while, or just after, the next process opens the run. connection: that to a database server is lost."""


def applies(kind: str, type_of_point: str) -> bool:
    """Whether a fault can happen at a point of this type."""
    if kind in ("torn", "short", "eio"):
        return type_of_point == "write"
    if kind in ("fsync", "fsync-power"):
        return type_of_point == "sync"
    if kind == "connection":
        return type_of_point in ("send", "receive")
    return True


def kinds_of(scenario: Scenario) -> tuple[str, ...]:
    """The kinds of fault of a scenario. The log of one process alone does not tell what a loss of power leaves."""
    return tuple(kind for kind in KINDS if scenario.beside is None or "power" not in kind)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What is tried. Two runs of the same trial do the same."""

    scenario: str
    kind: str
    point: int
    seed: int
    repair: bool = False
    """Whether the run is repaired at the end, and compared with one that never knew the records."""
    plant: str | None = None
    """A mistake planted into s3t (plants.py), which the trial must find."""

    @property
    def shim_kind(self) -> str:
        """The fault as the shim knows it."""
        return self.kind.removesuffix("-power")

    @property
    def last(self) -> int:
        """Where the process is killed after another fault; 0 for nowhere."""
        return self.point + self._later() if self.kind == "fsync-power" else 0

    @property
    def resumed_until(self) -> int:
        """At which of its points the process that opens the run next is killed; 0 for nowhere."""
        return self._later() if self.seed % 3 else 0

    def _later(self) -> int:
        rng = random.Random(self.seed)
        return rng.randint(1, rng.choice((4, 40, 400)))

    def __str__(self) -> str:
        return f"{self.scenario} {self.kind} {self.point} {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a trial."""

    trial: Trial
    where: str
    """The point: what was called, on which file."""
    outcome: str
    """killed, refused, finished; or missed: the fault did not happen."""
    problems: tuple[str, ...] = ()
    """Empty: all promises were kept."""
    seconds: float = 0.0

    def __str__(self) -> str:
        found = "".join(f"\n    {problem}" for problem in self.problems)
        return f"python -m tests.faults {self.trial}\n  at {self.where}: {self.outcome}{found}"
