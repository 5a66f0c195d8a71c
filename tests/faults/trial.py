"""One trial: a scenario, a fault, the point at which it comes; and what came of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


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
    problems: tuple[str, ...] = field(default=())
    """Empty: all promises were kept."""
    seconds: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Result:
        content = json.loads(line)
        trial = Trial(**content.pop("trial"))
        return cls(trial=trial, problems=tuple(content.pop("problems")), **content)

    def __str__(self) -> str:
        found = "".join(f"\n    {problem}" for problem in self.problems)
        return f"python -m tests.faults {self.trial}\n  at {self.where}: {self.outcome}{found}"
