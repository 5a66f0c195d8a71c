# ruff: noqa: E501 - tables of odd values
"""One wrong input, given to the command line, and the promises that it broke."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import s3t
from testing import tiny
from tests.cli.typed import program
from tests.inputs import wrong

SECONDS = 30
"""That one command may take: what hangs is a fault."""
OURS = ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "lock")
"""Files of a run that looking at it may touch, and reconciling, which counts up."""
RECORDS = {"id": "z{number}", "text": "w1 {canary} w{number}", "label": "a", "person": "{canary}{number}"}
REQUESTS = {"record": "z{number}", "note": "{canary}"}
CALLS = (
    ("status", "RUN"), ("log", "RUN"), ("train", "RUN", "--workers", "1"), ("audit", "RUN", "--replay", "0", "--seed", "1"),
    ("predict", "RUN", "--input", "DATA"), ("evaluate", "RUN", "--data", "DATA"), ("locate", "RUN", "--subject", "zz"),
    ("delete", "RUN", "--record", "zz", "--key", "k", "--dry-run"), ("ids", "DATA", "--recipe", "RECIPE"),
    ("destroy-key", "RUN"), ("extend", "RUN", "--budget", "0"), ("erase", "RUN"), ("reconcile", "RUN"),
    ("sequences", "--slices", "3", "--budget", "2", "--seed", "1", "--horizon", "1,2", "--values", "1,2,3"),
    ("simulate", "--shards", "2", "--slices", "3", "--budget", "2", "--trials", "10", "--prior", "0.5,0.3,0.2"),
    ("simulate", "--shards", "2", "--slices", "3", "--repair", "as-needed", "--depth", "2", "--trials", "5", "--over", "9"),
    ("plan", "--deletions-per-month", "2", "--shards", "2", "--slices", "3", "--mean-depth", "2", "--months", "1"),
    ("plan", "--deletions-per-month", "2", "--budget", "3", "--months", "1", "--max-shards", "2", "--max-slices", "3"),
    ("init", "NEW", "--data", "DATA", "--recipe", "RECIPE"),
)  # fmt: skip


class TooLong(BaseException):
    """A command did not come to an end."""


@dataclass(frozen=True, kw_only=True)
class World:
    """What trials share: models, right inputs and a trained run, which they may not change."""

    folder: Path
    run: Path
    right: dict[str, Any]
    files: dict[str, bytes] = field(repr=False)

    @classmethod
    def make(cls, folder: Path) -> World:
        text = tiny.recipe(
            tiny.make_text_model(folder / "text"),
            columns={"subject": "person"},
            training={"epochs": 1},
            partition={"shards": 1},
            sequences={"budget": 1},
        )
        tiny.text_table(subjects=12).to_csv(folder / "records.csv", index=False)
        (folder / "text.yaml").write_text(yaml.safe_dump(text))
        with s3t.Run.create(folder / "run", recipe=text, data=folder / "records.csv") as made:
            made.train()
        return cls(folder=folder, run=folder / "run", right=text, files=_kept(folder / "run"))


def _kept(run: Path) -> dict[str, bytes]:
    return {name: content for name, content in tiny.all_files(run).items() if name not in OURS}


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a trial went."""

    number: int
    what: str
    words: list[str]
    status: int | None
    problems: list[str]
    stderr: str

    def __str__(self) -> str:
        told = "".join(f"\n    {problem}" for problem in self.problems)
        return (
            f"trial {self.number} ({self.what}): {self.words!r:.400}, status {self.status}{told}\n{self.stderr[-1500:]}"
        )


def attempt(world: World, *, seed: int, number: int) -> Result:
    """Draw the wrong input of that number in the campaign of a seed and give it to the command line."""
    rng = random.Random(f"{seed}/{number}")
    scratch = world.folder / f"trial-{number}"
    scratch.mkdir()
    what = rng.choice(("recipe", "recipe", "records", "records", "inputs", "requests", "words", "words"))
    words = _drawn(rng, what, world, scratch)
    if rng.random() < 0.7:
        words = [*words, "--json"]
    before = {path.name for path in scratch.iterdir()}
    problems: list[str] = []
    status, stdout, stderr = _here(words, scratch)
    if status is None:
        problems.append(f"did not end in {SECONDS} seconds")
    elif status not in (0, 1, 2):
        problems.append(f"ended with status {status}")
    if "Traceback" in stderr or "this is a bug of s3t" in stderr:
        problems.append("a bug was told")
    if status != 0 and wrong.CANARY in stdout + stderr:
        problems.append("the text of a record was told")
    parsed = not stderr.startswith("Usage") and not (what == "words" and stdout == "")  # --json may be another's value
    if status in (1, 2) and "--json" in words and parsed:
        problems += _document_problems(stdout)
    left = {path.name for path in scratch.iterdir()} - before
    if status != 0 and left:
        problems.append(f"left {sorted(left)}")
    if any(".init-" in name for name in left):
        problems.append("left what was half made")
    if _kept(world.run) != world.files:
        problems.append("the run is not as it was")
    shutil.rmtree(scratch)
    return Result(number=number, what=what, words=words, status=status, problems=problems, stderr=stderr)


def _drawn(rng: random.Random, what: str, world: World, scratch: Path) -> list[str]:
    new, text = str(scratch / "new"), str(world.folder / "text.yaml")
    right = str(world.folder / "records.csv")
    if what == "recipe":
        (scratch / "recipe.yaml").write_bytes(wrong.recipe(rng, world.right))
        return ["init", new, "--data", right, "--recipe", str(scratch / "recipe.yaml")]
    if what == "requests":
        file = str(wrong.table(rng, scratch, "requests", REQUESTS))
        return [rng.choice(("delete", "locate")), str(world.run), "--file", file]
    if what == "words":
        known = {"RUN": str(world.run), "DATA": right, "RECIPE": text, "NEW": new}
        command, *rest = (known.get(word, word) for word in rng.choice(CALLS))
        return [command, *wrong.words(rng, rest)]
    data = str(wrong.table(rng, scratch, "records", RECORDS))
    if what == "records":
        return ["init", new, "--data", data, "--recipe", text]
    return rng.choice((["predict", str(world.run), "--input", data], ["evaluate", str(world.run), "--data", data]))


def _document_problems(stdout: str) -> list[str]:
    try:
        document = json.loads(stdout)
        if stdout.count("\n") == 1 and ("error" in document or "problems" in document or "mismatches" in document):
            return []
    except ValueError:
        pass
    return [f"stdout is no document of an error: {stdout[:200]!r}"]


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    def stop(_number: int, _frame: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _here(words: list[str], folder: Path) -> tuple[int | None, str, str]:
    """In this process, in a folder of the trial's."""
    at, stdin = Path.cwd(), sys.stdin
    os.chdir(folder)
    sys.stdin = io.TextIOWrapper(io.BytesIO(b""))
    try:
        with _bounded():
            ended = program(*words)
    except TooLong:
        return None, "", ""
    finally:
        os.chdir(at)
        sys.stdin = stdin
    return ended.status, ended.stdout, ended.stderr
