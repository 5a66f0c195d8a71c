"""Random bit flips over all files of a run: each is refused at opening, found by the audit, or shown to be harmless.

A run with deletions in its history is made once. A trial sets a copy of it up, flips one bit of one file, and looks:

    opening   opening the run refuses, or a damaged `home` keeps it from being changed
    audit     the audit names a mismatch
    harmless  the run answers the same bits, locates every name as before, and a deletion of a record and of a person
              leaves the same records and the same artifacts as in an untouched copy
    lost      the same, but for stages that were committed to a log that the flip cut short: they are trained again,
              to the same bytes

Anything else fails, with the file, the byte and the bit.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import shutil
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet

import s3t
from s3t.store.folder import Home, Layout, write_home
from testing import tiny

SECONDS = 180
"""After that a trial counts as hanging."""
WEIGHTS = {
    "run/ledger.sqlite": 34,
    "run/ledger.sqlite-wal": 14,
    "run/ledger.sqlite-shm": 2,
    "run/run.json": 8,
    "run/recipe.yaml": 6,
    "run/secret": 2,
    "run/home": 2,
    "run/public.parquet": 3,
    "run/slices": 9,
    "run/artifacts/tensors": 4,
    "run/artifacts/manifests": 6,
    "state": 9,
}
"""How often a kind of file is hit: small ones, and the ledger, more often than their bytes would be."""
EMPTY_LESS = 0.9
"""How often another byte of a ledger's file is drawn instead of a zero: most of a small ledger's pages is empty."""
STATES = ("closed", "killed", "waiting")
"""The run was closed; its process was killed, so that the ledger has a log; and while records wait to be erased."""
RECORD, PERSON = "r9", "p5"
"""Who is deleted in the end."""


@dataclass(frozen=True, kw_only=True)
class Flip:
    """One bit of one file of a prepared world."""

    state: str
    file: str
    byte: int
    bit: int

    def __str__(self) -> str:
        return f"{self.file}:{self.byte}:{self.bit}:{self.state}"


def kind_of(file: str) -> str:
    """The kind of a file by its path in the world."""
    if file.startswith("run/artifacts/"):
        return "run/artifacts/" + ("tensors" if file.endswith(".safetensors") else "manifests")
    return next((kind for kind in WEIGHTS if file == kind or file.startswith(f"{kind}/")), file)


def table() -> pd.DataFrame:
    """24 records of 8 persons."""
    return tiny.text_table(24, subjects=8)


def warm_up() -> None:
    """Load what every trial needs, so that it is there when a process is forked off."""
    for name in (
        "pyarrow.parquet",
        "s3t.run.workshop",
        "sqlalchemy.dialects.sqlite",
        "transformers.models.auto.modeling_auto",
        "transformers.models.bert.modeling_bert",
        "transformers.models.bert.tokenization_bert",
    ):
        importlib.import_module(name)
    _ = s3t.Run


class Stock:
    """Prepared worlds, each a folder with `run` and `state`, and what becomes of each without a flip.

    A trial has its world at the place where it was made, as a run that was not moved.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = folder / "world"
        warm_up()
        self.model, self.public = folder / "model", folder / "public.csv"
        _done(in_child(lambda: str(tiny.make_text_model(self.model))))
        rows = tiny.text_table(60, seed=7)
        rows[~rows.text.isin(table().text)].drop(columns="id").head(8).to_csv(self.public, index=False)
        self.expected = {state: self._prepare(state) for state in STATES}

    def _prepare(self, state: str) -> dict[str, Any]:
        shutil.rmtree(self.world, ignore_errors=True)
        _done(in_child(lambda: self._make(state)))
        self.set_up(state)
        expected: dict[str, Any] = _done(in_child(lambda: outcome(self.world / "run")))
        if not expected["ok"]:
            raise RuntimeError(f"the audit finds something wrong with the run that is {state}, without a flip")
        return expected

    def _make(self, state: str) -> None:
        self.world.mkdir()
        enter(self.world)
        recipe = tiny.recipe(
            self.model,
            columns={"subject": "person"},
            partition={"shards": 2, "slices": 2},
            sequences={"budget": 2},
            training={"epochs": 1},
            prediction={"select": "validation", "validation": str(self.public)},
            deletion={"erase_within": 3600.0 if state == "waiting" else 0.0},
        )
        run = s3t.Run.create(self.world / "run", recipe=recipe, data=table())
        run.train()
        run.delete(records=["r3"], key="a key")
        run.delete(subjects=["p1"])
        if state == "closed":
            run.repair()
        if state != "waiting":
            run.delete(records=["r20", "r3"])
        if state != "killed":
            run.close()
        shutil.copytree(self.world, self.folder / state)

    def set_up(self, state: str) -> None:
        """Put a copy of a prepared world where it was made."""
        shutil.rmtree(self.world, ignore_errors=True)
        shutil.copytree(self.folder / state, self.world)
        layout = Layout(self.world / "run")
        write_home(layout, Home.of(layout.root))

    def flip(self, rng: random.Random) -> Flip:
        """A random one."""
        state = rng.choice(STATES)
        files: dict[str, list[Path]] = {}
        for path in sorted((self.folder / state).rglob("*")):
            if path.is_file() and path.stat().st_size:
                files.setdefault(kind_of(str(path.relative_to(self.folder / state))), []).append(path)
        kinds = sorted(files)
        kind = rng.choices(kinds, [WEIGHTS.get(kind, 3) for kind in kinds])[0]
        path = rng.choice(files[kind])
        content = path.read_bytes()
        byte = rng.randrange(len(content))
        while kind.startswith("run/ledger") and content[byte] == 0 and rng.random() < EMPTY_LESS:
            byte = rng.randrange(len(content))
        return Flip(state=state, file=str(path.relative_to(self.folder / state)), byte=byte, bit=rng.randrange(8))


def enter(world: Path) -> None:
    """From here on this process remembers deletions in a world."""
    os.environ["S3T_STATE"] = str(world / "state")


def outcome(path: Path) -> dict[str, Any]:
    """What a run answers, knows, and becomes after a deletion. Changes it."""
    enter(path.parent)
    rows = table()
    with s3t.Run.open(path) as run:
        located = run.locate(records=list(rows.id), subjects=sorted(set(rows.person)))
        answers = run.predict(rows[["text"]])
        missing = run.status().missing
        report = run.delete(records=[RECORD], subjects=[PERSON])
        run.erase()
        return {
            "located": [(place.kind, place.name, place.state, place.records) for place in located],
            "answers": np.asarray(answers.logits).tobytes(),
            "labels": run.labels,
            "missing": missing,
            "report": (report.deleted, report.already, report.unknown, report.slices),
            "left": {str(file): ids(file) for file in sorted(path.glob("slices/*/*.parquet"))},
            "artifacts": tiny.artifacts(path),
            "ok": run.audit().ok,
        }


def ids(file: Path) -> list[str]:
    """The records of a slice's file."""
    return pyarrow.parquet.ParquetFile(file).read(columns=["record"])["record"].to_pylist()


def look(stock: Stock, flip: Flip) -> list[str]:
    """What becomes of a flip: the class, and what was said. Runs in a process of its own."""
    enter(stock.world)
    path = stock.world / "run"
    try:
        with s3t.Run.open(path) as run:
            found = run.audit().mismatches
    except s3t.errors.S3TError as error:
        return ["opening", f"{type(error).__name__}: {error}"]
    if found:
        return ["audit", str(found[0]["problem"])]
    stock.set_up(flip.state)
    apply(stock, flip)
    try:
        now = outcome(path)
    except s3t.errors.MovedError as error:  # before anything is changed
        return ["opening", f"{type(error).__name__}: {error}"]
    except s3t.errors.S3TError as error:
        return ["FAILED", f"the audit finds nothing; then {type(error).__name__}: {error}"]
    expected = stock.expected[flip.state]
    differs = sorted(name for name in expected if now[name] != expected[name])
    if not differs:
        return ["harmless", ""]
    retrained = {"answers", "missing", "artifacts"}
    if flip.file.endswith("-wal") and now["missing"] > expected["missing"] and retrained.issuperset(differs):
        return ["lost", f"{now['missing'] - expected['missing']} stages"]
    return ["FAILED", f"neither found nor harmless: {', '.join(differs)}"]


def apply(stock: Stock, flip: Flip) -> None:
    with (stock.world / flip.file).open("r+b", buffering=0) as file:
        byte = min(flip.byte, os.fstat(file.fileno()).st_size - 1)  # `home` may be shorter here
        file.seek(byte)
        (old,) = file.read(1)
        file.seek(byte)
        file.write(bytes([old ^ 1 << flip.bit]))


def in_child(work: Callable[[], Any], *, seconds: float = 600) -> Any:
    """What a function returns in a forked process, so that nothing of it stays, and a crash is seen."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def answer() -> None:
        try:
            sending.send(work())
        except BaseException:
            sending.send(["FAILED", traceback.format_exc()])

    child = context.Process(target=answer)
    child.start()
    sending.close()
    try:
        return receiving.recv() if receiving.poll(seconds) else ["FAILED", f"not over after {seconds:.0f} s"]
    except EOFError:
        child.join()
        return ["FAILED", f"the process ended with {child.exitcode}"]
    finally:
        child.kill()
        child.join()


def _done(answer: Any) -> Any:
    """What a child returned.

    Raises:
        RuntimeError: it failed.
    """
    if isinstance(answer, list) and answer[0] == "FAILED":
        raise RuntimeError(answer[1])
    return answer


def campaign(folder: Path, *, seed: int, trials: int, say: Callable[[str], None]) -> Counter[str]:
    """So many random flips, and what became of them."""
    stock, rng, found = Stock(folder), random.Random(seed), Counter[str]()
    for number in range(1, trials + 1):
        flip = stock.flip(rng)
        stock.set_up(flip.state)
        apply(stock, flip)
        what, detail = in_child(lambda flip=flip: look(stock, flip), seconds=SECONDS)
        found[what] += 1
        say(f"{number:5} {what:9} {flip}  {detail}")
    return found
