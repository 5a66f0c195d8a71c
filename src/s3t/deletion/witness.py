"""The witness: a second memory of deletions outside of the run folder, by which a restored backup is recognised.

A run folder that is restored whole is consistent, but its ledger does not know later deletions. So every deletion is
also noted in a file elsewhere: one line for each generation, with the deleted tokens (keyed hashes, as in the ledger).
An opening compares every line; a ledger that does not know one is an older state, or a copy's. `reconcile.py` applies
later deletions again.

By default the file lies in the user's state folder, under the run's random id. `S3T_STATE` names another folder, such
as one that hosts share, or that backups of the run do not include.
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
from typing import TYPE_CHECKING, NamedTuple

from s3t.core import Place
from s3t.errors import StorageError
from s3t.ledger import Ledger, Transaction
from s3t.ledger.state import Deletions
from s3t.store.disk import append_durably, identity_of, make_folder, storage_errors

if TYPE_CHECKING:
    from s3t.store.slices import Slices

VARIABLE = "S3T_STATE"
_TOKEN = rb'"(?:[0-9a-f]{2})*"'
_TOKENS = rb"\[(?:%b(?:, %b)*)?\]" % (_TOKEN, _TOKEN)
_WHOLE_LINE = re.compile(
    rb'^\{"generation": (\d+), "mark": "(\w*)", "late": (\d+), "tokens": %b, "unasked": %b\}$' % (_TOKENS, _TOKENS),
    re.MULTILINE,
)


def state_folder() -> Path:
    if folder := os.environ.get(VARIABLE):
        return Path(folder)
    if (base := Path(os.environ.get("XDG_STATE_HOME", ""))).is_absolute():  # XDG ignores relative paths
        return base / "s3t"
    # Not relative to the current folder: commands elsewhere would not find it.
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
    generation: int
    mark: str
    """Random: it tells a run's deletion from a copy's with the same number."""
    late: int
    """0; or of a line that repeats a deletion for those who asked for it afterwards, its number among such."""
    begin: int
    """Position in the file, in bytes."""
    length: int
    """Size in bytes."""


class Journal(NamedTuple):
    """Deletions that a witness lacks."""

    deletions: Deletions
    noted: int | None
    """The generation up to which nothing is missing once they are noted; None: not known."""


class Witness:
    """The witness of one run. Lines are kept in memory; later readings read what was added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._noted: int | None = None  # generation up to which the file has all deletions
        self._noting, self._reading = threading.Lock(), threading.Lock()
        self._file: tuple[int, int] | None = None  # device and inode of the file that was read
        self._lines: list[Line] = []
        self._read = 0  # number of bytes

    @classmethod
    def of_run(cls, run: str) -> Witness:
        """The witness of a run's id, on this machine."""
        return cls(state_folder() / f"{run}.deletions")

    def lines(self) -> list[Line]:
        """Every whole line, in order. A line that a crash tore belongs to no acknowledged deletion."""
        with self._errors(), self._reading:
            return self._look()

    def newest(self) -> int:
        """The newest generation; 0 without one."""
        return max((line.generation for line in self.lines()), default=0)

    def tokens(self, lines: Iterable[Line] | None = None) -> dict[bytes, int]:
        """Tokens of some lines, or of all, each with the last generation that deleted it."""
        return {token: generation for token, (generation, _) in self.last(lines).items()}

    def last(self, lines: Iterable[Line] | None = None) -> dict[bytes, tuple[int, bool]]:
        """As `tokens`, also with whether somebody asked for that deletion."""
        lines = self.lines() if lines is None else list(lines)
        if not lines:
            return {}
        last: dict[bytes, tuple[int, bool]] = {}
        with self._errors(), self.path.open("rb") as file:
            for line in lines:
                file.seek(line.begin)
                content = json.loads(file.read(line.length))
                for name, asked in (("tokens", True), ("unasked", False)):
                    for token in map(bytes.fromhex, content[name]):
                        last[token] = max((line.generation, asked), last.get(token, (0, False)))
        return last

    def strangers(self, transaction: Transaction) -> list[Line]:
        """Lines of deletions that the ledger has not made: those of a copy, or of a later state."""
        marks = transaction.history.marks()
        return [line for line in self.lines() if marks.get(line.generation) != line.mark]

    def missing(self, transaction: Transaction) -> Journal:
        """The ledger's deletions that are missing here."""
        with self._errors(), self._reading:
            if self._noted is not None:
                deletions = transaction.history.deleted_since(self._noted)
                return Journal(deletions, max(deletions, default=self._noted))
            # Lines may be another history's, and a late one has not all tokens.
            marks = transaction.history.marks()
            noted = {(line.generation, line.mark) for line in self._look() if not line.late}
        missing = [number for number, mark in marks.items() if number > 0 and (number, mark) not in noted]
        taken = transaction.history.deleted_since(min(missing) - 1) if missing else {}
        return Journal({number: taken[number] for number in missing}, transaction.snapshot().generation)

    def note(self, deletions: Deletions, noted: int | None = None) -> None:
        """Append deletions, durably. A repeated line does no harm.

        `noted`: the generation up to which nothing is missing any more.
        """
        with self._errors(), self._noting:
            if deletions:
                self._append(deletions)
            if noted is not None:
                self._noted = max(noted, self._noted or 0)

    def note_late(self, deletions: Deletions, number: int) -> None:
        """Append what somebody asked for once it had left, by the number of `History.note_late`."""
        with self._errors(), self._noting:
            self._append(deletions, late=number)

    def asked_late(self, since: int) -> tuple[set[bytes], int]:
        """Tokens in lines of late requests after one, and the number of the last."""
        lines = [line for line in self.lines() if line.late > since]
        return set(self.tokens(lines)), max((line.late for line in lines), default=since)

    def _append(self, deletions: Deletions, *, late: int = 0) -> None:
        make_folder(self.path.parent)
        lines = [
            json.dumps(
                {
                    "generation": number,
                    "mark": mark,
                    "late": late,
                    "tokens": [token.hex() for token in asked],
                    "unasked": [token.hex() for token in others],
                }
            )
            for number, (mark, asked, others) in sorted(deletions.items())
        ]
        append_durably(self.path, "".join(f"{line}\n" for line in lines).encode())

    def catch_up(self, ledger: Ledger, *, to: int | None = None) -> None:
        """Note the ledger's deletions that are missing here, unless those up to `to` are known to be noted."""
        if to is None or self._noted is None or self._noted < to:
            with ledger.reading() as transaction:
                journal = self.missing(transaction)
            self.note(*journal)

    def note_again(self, ledger: Ledger) -> None:
        """Note every deletion of the ledger again of which a token is missing: its line may be damaged."""
        noted = Witness(self.path).last()
        with ledger.reading() as transaction:
            deletions = transaction.history.deleted_since(-1)

        lost = {
            number: row
            for number, row in deletions.items()
            for tokens, asked in zip(row[1:], (True, False), strict=True)
            if any(noted.get(token, (-1, False)) < (number, asked) for token in tokens)
        }
        self.note(lost)

    def _errors(self) -> AbstractContextManager[None]:
        return storage_errors(f"using {self.path}, the memory of deletions ({VARIABLE} may name another folder for it)")

    def _look(self) -> list[Line]:
        """Read what was added since the last reading."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            self._file, self._lines, self._read = None, [], 0
            return []
        with file:
            status = os.fstat(file.fileno())
            if identity_of(status) != self._file or status.st_size < self._read:  # another file was put here
                self._file, self._lines, self._read = identity_of(status), [], 0
            file.seek(self._read)
            content = file.read()
        begin, whole = self._read, content.rfind(b"\n") + 1
        # A crash may tear the last line, and a power cut may leave zeros in one; neither counts as a line.
        lines = [
            Line(int(line[1]), line[2].decode(), int(line[3]), begin + line.start(), line.end() - line.start())
            for line in _WHOLE_LINE.finditer(content)
        ]
        self._read += whole
        self._lines += (line for line in lines if line.begin < self._read)
        return [*self._lines, *(line for line in lines if line.begin >= self._read)]  # the last one, without a line end


def why_older(transaction: Transaction, witness: Witness, slices: Slices) -> str | None:
    """The reason why a run is an older state of itself, a backup that was put back or a copy; None if it is not.

    folder with its ledger    the witness has seen a later generation, or a deletion that the ledger does not know
    folder or slices alone    a slice has another version than the one that the ledger names
    ledger alone              as above; or a version has fewer rows than the ledger counts, or is of an addition that it
                              does not know
    """
    snapshot, seen = transaction.snapshot(), witness.newest()
    if seen > snapshot.generation:
        return f"its ledger is at generation {snapshot.generation}, but {witness.path} has seen generation {seen}"
    if (number := _unknown_deletion(transaction, witness)) is not None:
        return f"generation {number} of its ledger is another deletion than the one that {witness.path} has seen"
    # Who opens a run asks no bucket: who erases from it looks.
    return None if slices.blobs.remote else version_of_another_time(transaction, slices, slices.versions())


def _unknown_deletion(transaction: Transaction, witness: Witness) -> int | None:
    """The generation of a deletion in the witness of which the ledger does not know every token."""
    strangers = witness.strangers(transaction)
    if not strangers or not _unknown(transaction, witness, strangers):
        return None
    return next((line.generation for line in strangers if _unknown(transaction, witness, [line])), None)


def _unknown(transaction: Transaction, witness: Witness, lines: Sequence[Line]) -> bool:
    tokens = witness.tokens(lines)
    located, slices = transaction.locate(records=tokens, subjects=()), transaction.snapshot().slices
    present = any(row.token not in located.gone or tokens[row.token] > slices[row.place].after for row in located.rows)
    return present or len(located.gone) < len(tokens)


def version_of_another_time(
    transaction: Transaction, slices: Slices, stored: Mapping[Place, frozenset[str]], shard: int | None = None
) -> str | None:
    """The problem of a slice, or of one of a shard's, of which only an older version is stored, or a newer one than the
    current one.

    A slice without any version, or with a damaged one, is no older state: reading it is an error, and other slices
    serve on. Older versions beside the current one are swept as long as the run has its secret.
    """
    destroyed = transaction.history.key_destroyed_at() is not None
    known = transaction.snapshot().slices
    _, condemned = transaction.condemned()  # what a killed addition put is known by that
    for place in sorted(stored.keys() - known.keys()):
        for digest in sorted(stored[place]):
            if (place, digest) not in condemned:
                return f"{slices.where(place, digest)} is of an addition that its ledger does not know"
    for place, state in sorted(each for each in known.items() if shard in (None, each[0].shard)):
        others = stored.get(place, frozenset()) - {state.digest}
        alone = state.digest not in stored.get(place, frozenset())
        for digest in sorted(others):
            name, rows = slices.where(place, digest), slices.count_rows(place, digest)
            if alone or destroyed:
                return f"{name} is not the version of the slice that its ledger names"
            if rows is not None and rows < state.records:
                return f"its ledger counts {state.records} records in a slice of which {name} holds {rows}"
    return None
