"""Threads and processes that delete, predict and repair at once, and what an onlooker sees of it.

Every process writes down, with the machine's monotonic clock, what it accepts, stores, answers and rewrites. The
onlooker judges by manifests and by what slices held, and asks neither ledger nor run.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import s3t
from s3t.deletion.acceptance import Accepted, Acceptor
from s3t.store.artifacts import Artifacts
from testing.roles import roles
from tests.slice_files import read_slice

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ["w1 w30", "w7 w8 w9", "w39"]


class Notes:
    """One process's lines in a file that all write to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._mine = threading.local()

    def write(self, what: str, **facts: Any) -> None:
        os.write(self._file, (json.dumps({"what": what, **facts}) + "\n").encode())

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """From here on, note what this process does."""
        from s3t.deletion import protocol
        from s3t.run.answerer import Answerer

        accept, put, answer_of, slice_digest = Acceptor.accept, Artifacts.put, Answerer._answer, protocol.slice_digest

        def accepting(acceptor: Acceptor, batches: Sequence[Any], *incoming: Any, **how: Any) -> Any:
            results = accept(acceptor, batches, *incoming, **how)
            now = time.monotonic()
            taken = [row.token.hex() for result in results[0] if isinstance(result, Accepted) for row in result.rows]
            self.write("accepted", at=now, tokens=taken)
            return results

        def putting(store: Artifacts, shard: int, key: str, content: bytes, manifest: Any) -> None:
            parents = [parent.key for parent in manifest.parents]
            self.write("stored", at=time.monotonic(), key=key, digests=manifest.slice_digests, parents=parents)
            put(store, shard, key, content, manifest)

        def predicting(*args: Any, **options: Any) -> Any:
            answer = answer_of(*args, **options)
            self._mine.computed = time.monotonic()
            return answer

        def rewriting(rows: Any, secret: Any) -> str:
            digest = slice_digest(rows, secret)
            self.write("slice", digest=digest, records=rows["record"].to_pylist())
            return digest

        patch.setattr(Acceptor, "accept", accepting)
        patch.setattr(Artifacts, "put", putting)
        patch.setattr(Answerer, "_answer", predicting)
        patch.setattr(protocol, "slice_digest", rewriting)

    def slices_of(self, run: s3t.Run) -> None:
        """Note what every slice holds."""
        for place in roles(run).ledger.snapshot().slices:
            content = read_slice(roles(run).layout.slices, place, roles(run).secret)
            self.write("slice", digest=content.digest, records=content.rows["record"].to_pylist())

    def ask(self, run: s3t.Run, **options: Any) -> None:
        """Predict once."""
        started = time.monotonic()
        try:
            answer = run.predict(INPUTS, **options)
        except s3t.NoLiveShardError:
            time.sleep(0.01)
            return
        self.write(
            "answered", started=started, computed=self._mine.computed, keys=[member.key for member in answer.members]
        )

    def act(self, work: Callable[[], object]) -> None:
        """Note an error instead of a thread that ends silently."""
        try:
            work()
        except Exception as error:
            self.write("error", error=f"{type(error).__name__}: {error}")


@dataclass
class Seen:
    """What the onlooker makes of the notes."""

    stored: int = 0
    answered: int = 0
    accepted: int = 0
    errors: list[str] = field(default_factory=list)
    tainted_stored: list[str] = field(default_factory=list)
    """Artifacts stored after the acceptance of a deletion whose record they were trained on."""
    tainted_asked: list[str] = field(default_factory=list)
    """Answers that were asked for after such an acceptance."""
    tainted_answers: list[str] = field(default_factory=list)
    """Answers that were computed only after such an acceptance, whenever they were asked for."""

    @classmethod
    def read(cls, path: Path, names: dict[str, str]) -> Seen:
        """Judge.

        Args:
            path: the notes of all processes.
            names: of records, by token.
        """
        notes: dict[str, list[dict[str, Any]]] = {}
        for line in path.read_text().splitlines():
            note = json.loads(line)
            notes.setdefault(note["what"], []).append(note)
        held = {note["digest"]: note["records"] for note in notes["slice"]}
        gone: dict[str, float] = {}
        for note in notes.get("accepted", ()):
            for token in note["tokens"]:
                gone.setdefault(names[token], note["at"])
        manifests = {note["key"]: note for note in notes.get("stored", ())}

        def tainted_at(key: str) -> float:
            """When the first record was accepted for deletion that an artifact or its parents were trained on."""
            records = (record for digest in manifests[key]["digests"] for record in held[digest])
            return min((gone.get(record, math.inf) for record in records), default=math.inf)

        seen = cls(errors=[note["error"] for note in notes.get("error", ())], accepted=len(gone))
        for note in notes.get("stored", ()):
            seen.stored += 1
            if min(map(tainted_at, [note["key"], *note["parents"]])) < note["at"]:
                seen.tainted_stored.append(note["key"])
        for note in notes.get("answered", ()):
            seen.answered += 1
            first = min(map(tainted_at, note["keys"]))
            seen.tainted_asked += [str(note)] if first < note["started"] else []
            seen.tainted_answers += [str(note)] if first < note["computed"] else []
        return seen


def racers(notes: Notes, runs: Sequence[s3t.Run], *, records: Sequence[str], seconds: float) -> list[threading.Thread]:
    """Eight threads on several handles, of which some are shared; three delete the records, spread over the time."""
    until = time.monotonic() + seconds

    def again(work: Callable[[], object]) -> None:
        while time.monotonic() < until:
            work()

    def delete(run: s3t.Run, own: Iterable[tuple[float, str]]) -> None:
        for moment, record in sorted(own):
            time.sleep(max(0.0, moment - time.monotonic()))
            run.delete(records=[record])

    chance = random.Random(0)
    moments = [(until - seconds * chance.uniform(0.02, 0.98), record) for record in records]
    work: list[Callable[[], object]] = [
        *(lambda run=run, part=part: delete(run, moments[part::3]) for part, run in enumerate(runs)),
        # An error is noted, and the next one is tried: where a leak is planted, one may end in an error.
        *(lambda run=run: again(lambda: notes.act(lambda: notes.ask(run))) for run in runs),
        *(lambda run=run: again(lambda: notes.act(run.repair)) for run in runs[:2]),
    ]
    return [threading.Thread(target=notes.act, args=[each]) for each in work]


class Process:
    """Another process that predicts or repairs: it opens the run, and begins when it is told to."""

    def __init__(self, run: Path, notes: Path, *, role: str, seconds: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.run.race", str(run), str(notes), role, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def join(self) -> None:
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0


def main() -> None:
    folder, path, role, seconds = sys.argv[1:]
    notes = Notes(Path(path))
    with pytest.MonkeyPatch.context() as patch, s3t.Run.open(folder) as run:
        notes.watch(patch)
        notes.ask(run)  # loads the model
        print("ready", flush=True)
        sys.stdin.readline()
        until = time.monotonic() + float(seconds)
        while time.monotonic() < until:
            notes.act(run.repair if role == "repair" else lambda: notes.ask(run))


if __name__ == "__main__":
    main()
