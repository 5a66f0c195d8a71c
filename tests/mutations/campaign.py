"""A mistake is planted in a copy of the tree; tests of the copy must fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from tests.mutations.catalogue import ROOT, SOURCE, Mutation

TIMEOUT_SECONDS = 600.0
_COPIED = ("src", "tests", "testing", "experiments", "benchmarks", "docs", "README.md", "pyproject.toml")
_FAST = "not slow and not integration"
"""What `make test` runs: it is this that has to notice."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[| - |$)", re.MULTILINE)
_PASSED, _SOME_FAILED = 0, 1  # pytest's exit statuses; with any other it could not run the tests

Verdict = Literal["caught", "missed", "broken", "hung"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a mistake."""

    mutation: str
    verdict: Verdict
    """Broken: the tests could not be run at all."""
    failed: tuple[str, ...]
    """Test functions that noticed it."""
    unnoticed: tuple[str, ...]
    """Tests that had to fail, and did not."""
    seconds: float
    output: str

    def __str__(self) -> str:
        text = f"{self.verdict:7} {self.mutation} ({self.seconds:.0f} s)"
        return text + "".join(f"\n        passes all the same: {test}" for test in self.unnoticed)


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of source and tests, removed afterwards."""
    with TemporaryDirectory(prefix="s3t-mutations-") as folder:
        for name in _COPIED:
            source, copy = ROOT / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy(source, copy)
        yield Path(folder)


def try_out(mutation: Mutation, *, tests: Sequence[str] = (), options: Sequence[str] = ()) -> Result:
    """Plant a mistake and see who notices.

    Args:
        mutation: the mistake.
        tests: to run instead of its own; then it is enough that one of them fails.
        options: more of pytest's.
    """
    started = time.monotonic()
    with copied_tree() as tree:
        path = tree / SOURCE / mutation.file
        path.write_text(mutation.planted(path.read_text()))
        status, output = _run(tree, [*(tests or mutation.tests), *options])
    failed = tuple(dict.fromkeys(_FAILED.findall(output)))
    unnoticed = () if tests else tuple(test for test in mutation.tests if test not in failed)
    verdict: Verdict = "broken"
    if status is None:
        verdict = "hung"
    elif status == _PASSED or (status == _SOME_FAILED and unnoticed):
        verdict = "missed"
    elif status == _SOME_FAILED:
        verdict = "caught"
    seconds = time.monotonic() - started
    return Result(
        mutation=mutation.name, verdict=verdict, failed=failed, unnoticed=unnoticed, seconds=seconds, output=output
    )


def sound(chosen: Sequence[Mutation]) -> str | None:
    """What pytest says where tests of some mistakes fail without them; None if all pass."""
    with copied_tree() as tree:
        status, output = _run(tree, sorted({test for mutation in chosen for test in mutation.tests}))
    return None if status == _PASSED else output


def _run(tree: Path, arguments: Sequence[str]) -> tuple[int | None, str]:
    """pytest's exit status, None if it did not end, and what it said."""
    options = ("-q", "-rfE", "--tb=line", "-p", "no:cacheprovider", "-m", _FAST)
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"not over after {TIMEOUT_SECONDS:.0f} seconds"
    return done.returncode, done.stdout + done.stderr
