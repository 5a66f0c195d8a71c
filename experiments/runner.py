"""Runs experiments: point after point, kept as they come, so that a run that is stopped goes on where it was."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.machine import describe, kind
from experiments.jobs import Row, measured, told
from experiments.noted import named
from experiments.settings import Settings, load

__all__ = [
    "FOLDER",
    "NAMES",
    "ROOTS",
    "TRAINED",
    "Row",
    "commit_of",
    "draw",
    "experiment",
    "results",
    "rounded",
    "run",
    "smoke",
    "suite",
]

FOLDER = Path(__file__).resolve().parent
NAMES = (
    "deletion_rate_budget",
    "deletion_rate_scaling",
    "deletion_rate_prior",
    "distance_cyclic",
    "bms_random",
    "bms_sorted_cyclic",
    "storage",
    "cost_by_slices",
    "slice_wise",
    "lists_of_labels",
    "slice_wise_language",
    "deleted_slices",
    "deletion_accuracy",
    "thousand_requests",
    "layers_per_slice",
    "sequential",
    "trained_layers",
    "storage_here",
    "protosisa_weights",
    "sequence_ensembles",
    "design_ablation",
    "kept_accuracy",
    "repair_policies",
    "kept_by_forests",
    "tofu",
    "frontier",
    "a_year",
)
TRAINED = frozenset(NAMES[NAMES.index("slice_wise") :])
"""They train models, for minutes or hours. Rows of theirs are kept over a change of the package, and say so."""
TIMED = frozenset({"thousand_requests", "trained_layers", "kept_by_forests", "tofu", "frontier", "a_year"})
"""They measure times, so nothing runs beside a point of theirs, but of those in CPU_TIMED."""
CPU_TIMED = frozenset({"frontier", "a_year"})
"""Their times are CPU seconds."""
NOT_MEASURING = frozenset(f"experiments.{module}" for module in ("runner", "drawing", "noted"))
"""Modules on which no number hangs."""
ROOTS = [FOLDER]
"""Where results are looked for."""
DIGITS = 8
"""Of every number written: more would be noise in the file's history."""
NOTHING = 1e-12
"""What is smaller is rounding, and written as 0."""
SECONDS_KEPT = 1.0
"""No more work than this is lost when a run is stopped, beyond the point it was at."""


class Experiment(Protocol):
    """What `experiment.py` of every folder holds."""

    Config: type[Settings]

    def points(self, config: Any) -> Sequence[Row]:
        """Where to look, in the order of the work; each point is distinct."""
        ...

    def measure(self, config: Any, point: Row) -> Row:
        """What is found there. Depends on the config and the point alone."""
        ...

    def summary(self, config: Any, rows: Sequence[Row]) -> Row:
        """What the curves and the README are made of: averages over rows, and the numbers that matter."""
        ...


def experiment(name: str) -> Experiment:
    """The experiment of that name."""
    return cast(Experiment, importlib.import_module(f"experiments.{name}.experiment"))


def run(name: str, *, into: Path | None = None, smoke: bool = False, jobs: int = 1) -> Path:
    """Compute an experiment, write results.json, and draw it.

    Args:
        name: one of NAMES.
        into: a folder for what it leaves; by default its own.
        smoke: at the small size of its config.yaml: that it works, no measurement.
        jobs: processes that share the points, but of those that measure times.

    Returns:
        The folder.
    """
    chosen = experiment(name)
    folder = into or FOLDER / name
    config = load(chosen.Config, FOLDER / name / "config.yaml", smoke=smoke)
    partial = Partial(folder / "partial.json", _digest(name, config))
    if partial.dropped:
        message = (
            f"{name}: {partial.dropped} rows so far are of other settings, code or machine, and are measured again"
        )
        print(message, file=sys.stderr)
    commit = commit_of([FOLDER / name / "config.yaml", *_code(name)])
    own = {"commit": commit} if name in TRAINED else {}  # such rows may be of several
    points = chosen.points(config)
    left = partial.left(points)
    for point, found, seconds in _told(
        name, left, measured(name, config, left, jobs=1 if name in TIMED - CPU_TIMED else jobs)
    ):
        partial.keep(point, rounded({**point, **found}) | own, seconds)
    rows, recipes = named(partial.rows(points))
    result = {
        "experiment": name,
        "commit": ", ".join(sorted({row.get("commit", commit) for row in rows})),
        "date": datetime.now(UTC).date().isoformat(),
        "seed": config.seed,
        "seconds": round(partial.seconds, 1),
        "machine": kind(),
        "versions": {package: version(package) for package in ("numpy", "scipy", "transformers", "peft")},
        "config": config.model_dump(mode="json"),
        "summary": rounded(chosen.summary(config, rows)),
        **({"recipes": recipes} if recipes else {}),
        "rows": rows,
    }
    (folder / "results.json").write_text(_text(result))
    partial.remove()
    draw(name, folder)
    return folder


def smoke(names: Sequence[str], *, jobs: int = 1) -> None:
    """Run experiments at the small size of their config.yaml, in a folder that goes: that they work."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".experiment-") as folder:
        os.environ["S3T_EXPERIMENTS"] = str(Path(folder) / "kept")
        ROOTS.insert(0, Path(folder))
        for name in names:
            (Path(folder) / name).mkdir()
            run(name, into=Path(folder) / name, smoke=True, jobs=jobs)


def suite(names: Sequence[str], *, jobs: int = 1) -> None:
    """Compute experiments, one after another. After a stop, the same call goes on with what was not finished."""
    path = Path(os.environ.get("S3T_EXPERIMENTS", ".experiments")) / "suite.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    finished = json.loads(path.read_text()) if path.exists() else {}
    for name in names:
        digest = _digest(name, load(experiment(name).Config, FOLDER / name / "config.yaml"))
        if finished.get(name) == digest:
            print(f"{name}: finished before the stop", file=sys.stderr)
            continue
        run(name, jobs=jobs)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(finished := finished | {name: digest}))
        part.replace(path)
    path.unlink(missing_ok=True)


def draw(name: str, folder: Path | None = None) -> None:
    """Draw figure.png from results.json."""
    from experiments.drawing import styled  # matplotlib is an extra

    folder = folder or FOLDER / name
    figure = importlib.import_module(f"experiments.{name}.figure")
    styled(figure.draw, results(name, folder), folder / "figure.png")


def results(name: str, folder: Path | None = None) -> Row:
    """What results.json says."""
    there = [folder] if folder else [root / name for root in ROOTS if (root / name / "results.json").exists()]
    return cast(Row, json.loads(((there or [FOLDER / name])[0] / "results.json").read_text()))


class Partial:
    """Rows found so far, in a file that is removed when all are found.

    Args:
        path: of the file.
        digest: of what the rows depend on; rows of another digest are not used.
    """

    def __init__(self, path: Path, digest: str) -> None:
        self._path = path
        self._digest = digest
        self._rows: dict[str, Row] = {}
        self._written = time.monotonic()
        self.seconds = 0.0
        """Spent on the rows, in all runs together."""
        self.dropped = 0
        """Rows found there of another digest."""
        if path.exists():
            kept = json.loads(path.read_text())
            if kept["digest"] == digest:
                self._rows, self.seconds = kept["rows"], kept["seconds"]
            else:
                self.dropped = len(kept["rows"])

    def left(self, points: Sequence[Row]) -> list[Row]:
        """The points of which there is no row."""
        return [point for point in points if _key(point) not in self._rows]

    def rows(self, points: Sequence[Row]) -> list[Row]:
        """Those of the points, all of which are found."""
        return [self._rows[_key(point)] for point in points]

    def keep(self, point: Row, found: Row, seconds: float) -> None:
        """Note a row."""
        self._rows[_key(point)] = found
        self.seconds += seconds
        if time.monotonic() - self._written > SECONDS_KEPT:
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps({"digest": self._digest, "seconds": self.seconds, "rows": self._rows}))
            part.replace(self._path)
            self._written = time.monotonic()

    def remove(self) -> None:
        """All is found."""
        self._path.unlink(missing_ok=True)


def rounded(value: Any) -> Any:
    """Floats to DIGITS digits, all the way down; those that are not finite to None, which JSON can say."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return float(f"{value:.{DIGITS}g}") if abs(value) > NOTHING else 0.0
    if isinstance(value, Mapping):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return value


def _key(point: Row) -> str:
    return json.dumps(point, sort_keys=True)


def _digest(name: str, config: Settings) -> str:
    """Of settings and code: rows are not kept over a change of them. Of what trains also of the machine, but not of the
    package's code, see TRAINED."""
    digest = hashlib.sha256(config.model_dump_json().encode())
    if name in TRAINED:  # those that train none give the same numbers anywhere
        digest.update(json.dumps(kind(), sort_keys=True).encode())
    for path in _imported(FOLDER / name / "experiment.py") if name in TRAINED else _code(name):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _imported(path: Path) -> list[Path]:
    """A file and those of the experiments and benchmarks that it imports, all the way down, but NOT_MEASURING."""
    found, left = [], [path]
    while left:
        found.append(left.pop())
        for module in re.findall(
            r"^from ((?:experiments|benchmarks)\.[\w.]+) import", found[-1].read_text(), flags=re.M
        ):
            file = FOLDER.parent / f"{module.replace('.', '/')}.py"
            if module not in NOT_MEASURING and file not in found + left:
                left.append(file)
    return sorted(found)


def _code(name: str) -> list[Path]:
    """What the rows depend on, besides the settings."""
    package = FOLDER.parent / "src" / "s3t"
    if name in TRAINED:
        own = _imported(FOLDER / name / "experiment.py")
        return [*FOLDER.glob("*.py"), *(FOLDER / name).glob("*.py"), *own, *package.rglob("*.py")]
    return [
        FOLDER / "systems.py",
        FOLDER / "quality.py",
        FOLDER / "laws.py",
        FOLDER / "retained.py",
        FOLDER / name / "experiment.py",
        *sorted(package.glob("planning/*.py")),
        *sorted(package.glob("sequences/*.py")),
    ]


def commit_of(paths: Sequence[Path]) -> str:
    """The commit, and whether code or settings in these files differ from it."""
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", *paths], cwd=FOLDER.parent, capture_output=True, text=True, check=False
    )
    return f"{describe()['commit']}{'+changes' if changed.stdout.strip() else ''}"


def _text(result: Row) -> str:
    """JSON that a person can read and a diff can show: one line a row, and a recipe."""
    head = json.dumps({key: value for key, value in result.items() if key not in ("rows", "recipes")}, indent=2)[:-2]
    recipes = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(own)}" for name, own in result.get("recipes", {}).items()
    )
    told = f',\n  "recipes": {{\n{recipes}\n  }}' if recipes else ""
    rows = ",\n".join(f"    {json.dumps(row)}" for row in result["rows"])
    return f'{head}{told},\n  "rows": [\n{rows}\n  ]\n}}\n'


def _told(name: str, left: Sequence[Row], found: Iterator[tuple[Row, Row, float]]) -> Iterator[tuple[Row, Row, float]]:
    """Rows as they come, with a bar; of what trains, which has bars of its own, with a line each."""
    if name in TRAINED:
        yield from told(name, left, found)
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield from progress.track(found, total=len(left), description=name)
