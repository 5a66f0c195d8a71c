"""Starts the fork server, draws trials, and sums up what came of them."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from tests.faults.build import build
from tests.faults.scenarios import SCENARIOS
from tests.faults.trial import KINDS, Result, Trial, applies, kinds_of

ROOT = Path(__file__).resolve().parents[2]

Points = Mapping[str, Sequence[str]]
"""For each scenario the types of its points, in order."""


class Client:
    """A fork server, asked one thing at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._points: dict[str, list[tuple[str, str]]] = {}

    def points(self, scenario: str) -> list[str]:
        """The types of a scenario's points, in order. The scenario is run once, without a fault."""
        return [type_of_point for type_of_point, _ in self.counted(scenario)]

    def find(self, scenario: str, wanted: str, *, path: str, nth: int = 1) -> int:
        """The point of a type at a path that ends so; the first of them, or the nth."""
        counted = enumerate(self.counted(scenario), 1)
        found = [number for number, (kind, where) in counted if kind == wanted and where.endswith(path)]
        return found[nth - 1]

    def counted(self, scenario: str) -> list[tuple[str, str]]:
        """The points, in order: what was called, and on which file."""
        if scenario not in self._points:
            self._points[scenario] = self._ask(scenario)
        return self._points[scenario]

    def try_out(self, trial: Trial) -> Result:
        return self._ask(trial)

    def _ask(self, what: str | Trial) -> Any:
        pickle.dump(what, self._process.stdin)
        self._process.stdin.flush()
        try:
            return pickle.load(self._process.stdout)
        except EOFError:
            raise RuntimeError(
                f"the fork server died ({self._process.wait()}) on {what}; see its stderr above"
            ) from None


@contextmanager
def serving(url: str | None = None) -> Iterator[Client]:
    """A fork server in a temporary folder: in memory, where the machine has such a place, as fsync is cheap there.

    Args:
        url: of a PostgreSQL database, for the scenarios that have their ledger in one.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="s3t-faults-", dir=memory) as folder:
        environment = os.environ | {
            "LD_PRELOAD": str(build(Path(folder))),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        command = [sys.executable, "-m", "tests.faults.server", folder, *([url] if url else [])]
        with subprocess.Popen(
            command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            try:
                yield Client(process)
            finally:
                process.stdin.close()
                process.wait(timeout=300)


def draw(points: Points, *, trials: int, seed: int, every_point: bool, repair_one_in: int) -> list[Trial]:
    """Trials: (asked for) every point; then each scenario in turn, each time with another kind of fault.

    Where there is a connection, it is lost at every point of it, and in every third turn.
    """
    rng = random.Random(seed)
    chosen: list[tuple[str, str, int]] = []
    if every_point:
        for scenario, types in points.items():
            for point, type_of_point in enumerate(types, 1):
                kinds = [kind for kind in kinds_of(SCENARIOS[scenario]) if applies(kind, type_of_point)]
                chosen.append((scenario, "connection" if "connection" in kinds else rng.choice(kinds), point))
    turns = {
        scenario: itertools.cycle(rng.sample(kinds, len(kinds)))
        for scenario, types in points.items()
        for fitting in [[kind for kind in kinds_of(SCENARIOS[scenario]) if _fitting(kind, types)]]
        for kinds in [[*fitting, *["connection"] * (len(fitting) // 2 if "connection" in fitting else 0)]]
    }
    for scenario in itertools.cycle(points):
        if len(chosen) >= trials:
            break
        kind = next(turns[scenario])
        chosen.append((scenario, kind, rng.choice(_fitting(kind, points[scenario]))))
    return [
        Trial(
            scenario=scenario,
            kind=kind,
            point=point,
            seed=rng.randrange(2**32),
            repair=rng.randrange(repair_one_in) == 0,
        )
        for scenario, kind, point in chosen
    ]


def summary(results: Sequence[Result]) -> str:
    """Trials by scenario and kind, and how many of all failed, or had no fault."""
    tried = pd.crosstab(
        pd.Series([result.trial.scenario for result in results], name="trials"),
        pd.Categorical([result.trial.kind for result in results], KINDS),
    )
    failed = sum(bool(result.problems) for result in results)
    missed = sum(result.outcome == "missed" for result in results)
    seconds = sum(result.seconds for result in results)
    return (
        f"{tried.to_string()}\n{len(results)} trials, {failed} failed, {missed} whose fault did not happen; "
        f"{seconds:.0f} s, {seconds / max(1, len(results)):.2f} s a trial"
    )


def _fitting(kind: str, types: Sequence[str]) -> list[int]:
    return [point for point, type_of_point in enumerate(types, 1) if applies(kind, type_of_point)]
