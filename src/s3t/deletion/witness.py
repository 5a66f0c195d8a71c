"""A second, outside memory of what was deleted: so that a backup of the run that is put back is recognised.

A run folder that is restored whole is consistent in itself: its ledger does not know of later deletions. So every
deletion is also noted in a file outside of the folder, one line a generation with the tokens that it took (keyed
hashes, as in the ledger). An opening compares every line: a ledger that does not know one is an old one, or that of a
copy. From the witness the later deletions can be applied again (`reconcile.py`).

By default it lies under the user's state folder, under the run's own random id. `S3T_STATE` names another folder: one
that hosts share, or one that backups of the run do not reach.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from s3t.disk import append_durably, make_folder, storage_errors
from s3t.errors import StorageError
from s3t.ledger import Ledger, Transaction

VARIABLE = "S3T_STATE"
_TOKEN = rb'"(?:[0-9a-f]{2})*"'
_WHOLE_LINE = re.compile(
    rb'^\{"generation": (\d+), "mark": "(\w*)", "tokens": \[(?:%b(?:, %b)*)?\]\}$' % (_TOKEN, _TOKEN), re.MULTILINE
)


def state_folder() -> Path:
    """Where witnesses are kept on this machine.

    Raises:
        StorageError: the user has no home folder, and the environment names no other.
    """
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    if (base := Path(os.environ.get("XDG_STATE_HOME", ""))).is_absolute():  # a relative one counts as none, by XDG
        return base / "s3t"
    # Not beside whatever folder a command is given in: the next one would know of nothing.
    home = Path(os.environ.get("HOME") or _home_of_account())
    if not home.is_absolute():
        raise StorageError(
            f"the memory of deletions has no place: HOME ({str(home)!r}) is no whole path; set {VARIABLE} to a folder"
        )
    return home / ".local" / "state" / "s3t"


def _home_of_account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container's user, say
        return ""


class Line(NamedTuple):
    """A line of a witness: one deletion."""

    generation: int
    mark: str
    """Random: two deletions with one number, in a run and in a copy, are told apart."""
    begin: int
    """Where it begins in the file, in bytes."""
    length: int


class Witness:
    """The outside memory of one run. What was read of it is kept: later looks read what was added since."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._noted: int | None = None  # at least up to here, the file knows
        self._noting = threading.Lock()
        self._reading = threading.Lock()
        self._file: tuple[int, int] | None = None  # device and number of the file that was read
        self._lines: list[Line] = []
        self._read = 0  # bytes

    @classmethod
    def of_run(cls, run: str) -> Witness:
        """The witness of a run's id, on this machine."""
        return cls(state_folder() / f"{run}.deletions")

    @property
    def path(self) -> Path:
        """Its file."""
        return self._path

    def lines(self) -> list[Line]:
        """Every whole line, in the order of the file; one that a crash tore was never acknowledged.

        Raises:
            StorageError: the file cannot be read.
        """
        with self._errors(), self._reading:
            return self._look()

    def newest(self) -> int:
        """The newest generation that was noted; 0 if there is none.

        Raises:
            StorageError: the file cannot be read.
        """
        return max((line.generation for line in self.lines()), default=0)

    def tokens(self, lines: Iterable[Line] | None = None) -> list[bytes]:
        """Every token that was noted in some lines, or ever.

        Raises:
            StorageError: the file cannot be read.
        """
        chosen = self.lines() if lines is None else list(lines)
        if not chosen:
            return []
        found: set[bytes] = set()
        with self._errors(), self._path.open("rb") as file:
            for line in chosen:
                file.seek(line.begin)
                found.update(bytes.fromhex(token) for token in json.loads(file.read(line.length))["tokens"])
        return sorted(found)

    def strangers(self, transaction: Transaction) -> list[Line]:
        """Lines of deletions that the ledger has not made, nor noted as another history's that it has taken over.

        Raises:
            StorageError: the file cannot be read.
        """
        own, foreign = transaction.marks(), transaction.foreign_marks()
        return [
            line
            for line in self.lines()
            if own.get(line.generation) != line.mark and (line.mark, line.generation) not in foreign
        ]

    def catch_up(self, ledger: Ledger) -> None:
        """Note what the ledger has and this does not. Every process may; a line that is there twice does no harm.

        Raises:
            StorageError: the disk refused.
        """
        with self._errors(), self._noting, self._reading:
            with ledger.reading() as transaction:
                if self._noted is None:
                    newest, missing = self._missing(transaction)
                else:
                    missing = transaction.deleted_since(self._noted)
                    newest = max(missing, default=self._noted)
            self.note(missing)
            self._noted = newest

    def _missing(self, transaction: Transaction) -> tuple[int, dict[int, tuple[str, list[bytes]]]]:
        """The ledger's newest generation, and what is not noted of it and those before: the newest line may be that of
        another history."""
        marks, noted = transaction.marks(), {(line.generation, line.mark) for line in self._look()}
        missing = [number for number, mark in marks.items() if number > 0 and (number, mark) not in noted]
        taken = transaction.deleted_since(min(missing) - 1) if missing else {}
        return transaction.snapshot().generation, {number: taken[number] for number in missing}

    def note_again(self, ledger: Ledger) -> None:
        """Note every deletion of the ledger of which a token is missing here: a line may have been damaged.

        Raises:
            StorageError: the disk refused.
        """
        noted = set(Witness(self._path).tokens())
        with self._errors(), self._noting:
            with ledger.reading() as transaction:
                deletions = transaction.deleted_since(-1)
            self.note({number: row for number, row in deletions.items() if not noted.issuperset(row[1])})

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

    def _look(self) -> list[Line]:
        """Read what was added since the last look."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            self._file, self._lines, self._read = None, [], 0
            return []
        with file:
            status = os.fstat(file.fileno())
            if (status.st_dev, status.st_ino) != self._file or status.st_size < self._read:  # another was put here
                self._file, self._lines, self._read = (status.st_dev, status.st_ino), [], 0
            file.seek(self._read)
            content = file.read()
        begin, whole = self._read, content.rfind(b"\n") + 1
        # A crash may have torn the last line, and a power cut left zeros in the midst of one: those are none.
        found = [
            Line(int(line[1]), line[2].decode(), begin + line.start(), line.end() - line.start())
            for line in _WHOLE_LINE.finditer(content)
        ]
        self._read += whole
        self._lines += (line for line in found if line.begin < self._read)
        return [*self._lines, *(line for line in found if line.begin >= self._read)]  # the next writer closes it off
