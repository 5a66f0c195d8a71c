"""A second, outside memory of what was deleted: so that a backup of the run that is put back is recognised.

A run folder that is restored whole is consistent in itself: its ledger does not know of later deletions. So every
deletion is also noted in a file outside of the folder, one line a generation with the tokens that it took (keyed
hashes, as in the ledger). An opening compares: the ledger behind the witness is an old one. From the witness the later
deletions can be applied again (`reconcile.py`).

By default it lies under the user's state folder, under the run's own random id. `S3T_STATE` names another folder: one
that hosts share, or one that backups of the run do not reach.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from s3t.disk import append_durably, make_folder, storage_errors
from s3t.ledger import Ledger

VARIABLE = "S3T_STATE"
_STEP_BYTES = 2**20
_WHOLE_LINE = re.compile(rb'\{"generation": (\d+), "mark": "(\w*)", "tokens": \[[0-9a-f", ]*\]\}')


def state_folder() -> Path:
    """Where witnesses are kept on this machine."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "s3t"


class Witness:
    """The outside memory of one run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._noted: int | None = None  # at least up to here, the file knows
        self._noting = threading.Lock()

    @classmethod
    def of_run(cls, run: str) -> Witness:
        """The witness of a run's id, on this machine."""
        return cls(state_folder() / f"{run}.deletions")

    @property
    def path(self) -> Path:
        """Its file."""
        return self._path

    def newest(self) -> tuple[int, str]:
        """The newest generation that was noted, and its mark; 0 if there is none. Reads the end of the file alone.

        Raises:
            StorageError: the file cannot be read.
        """
        with self._errors():
            return self._newest()

    def _newest(self) -> tuple[int, str]:
        found: list[tuple[int, str]] = []
        further = 0  # processes note side by side: the last line may not be the newest, but that one is near
        try:
            with self._path.open("rb") as file:
                for line in _lines_backwards(file):
                    if further >= _STEP_BYTES:
                        break
                    further += len(line) + 1 if found else 0
                    if whole := _WHOLE_LINE.fullmatch(line):
                        found.append((int(whole[1]), whole[2].decode()))
        except FileNotFoundError:
            return 0, ""
        return max(found, key=lambda line: line[0], default=(0, ""))  # of equals the one noted last

    def tokens(self) -> list[bytes]:
        """Every token that was ever noted.

        Raises:
            StorageError: the file cannot be read.
        """
        with self._errors():
            return sorted({token for tokens in self._lines() for token in tokens})

    def catch_up(self, ledger: Ledger) -> None:
        """Note what the ledger has and this does not. Every process may; a line that is there twice does no harm.

        Raises:
            StorageError: the disk refused.
        """
        with self._errors(), self._noting:
            known = self._newest()[0] if self._noted is None else self._noted
            with ledger.reading() as transaction:
                later = transaction.deleted_since(known)
            self.note(later)
            self._noted = max(later, default=known)

    def note(self, deletions: Mapping[int, tuple[str, Sequence[bytes]]]) -> None:
        """Append generations, their marks and their tokens, durably.

        Raises:
            OSError: the disk refused.
        """
        if not deletions:
            return
        make_folder(self._path.parent)
        lines = [
            json.dumps({"generation": number, "mark": mark, "tokens": [token.hex() for token in tokens]})
            for number, (mark, tokens) in sorted(deletions.items())
        ]
        append_durably(self._path, "".join(f"{line}\n" for line in lines).encode())

    def _errors(self) -> AbstractContextManager[None]:
        return storage_errors(
            f"using {self._path}, the memory of deletions ({VARIABLE} may name another folder for it)"
        )

    def _lines(self) -> Iterator[list[bytes]]:
        """Whole lines; one that a crash tore was never acknowledged, and is noted again from the ledger."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        for line in content.split(b"\n"):
            try:
                found = json.loads(line)
                yield [bytes.fromhex(token) for token in found["tokens"]]
            except (ValueError, KeyError, TypeError):
                continue


def _lines_backwards(file: BinaryIO) -> Iterator[bytes]:
    """A file's lines from the last to the first, without what ends them.

    A line may be a long one: a deletion of a million records makes 65 MiB. Each byte is read and looked at once.
    """
    begin, later = file.seek(0, os.SEEK_END), list[bytes]()  # pieces of the line that is not whole yet, the last first
    while begin > 0:
        begin, end = max(0, begin - _STEP_BYTES), begin
        file.seek(begin)
        first, *others = file.read(end - begin).split(b"\n")
        while others:
            yield others.pop() + b"".join(reversed(later))
            later.clear()
        later.append(first)
    yield b"".join(reversed(later))
