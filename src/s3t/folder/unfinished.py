"""Folders that a killed init or clone left beside the new run's place, with all records in them."""

from __future__ import annotations

import glob
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from s3t.disk import remove_folder_durably, temporary_name
from s3t.errors import S3TError
from s3t.folder.layout import Layout, read_description
from s3t.folder.ledger_address import ledger_address
from s3t.ledger import Ledger
from s3t.processes import is_running, this_machine, was_before

_INIT = ".init-"
_FORGOTTEN_SECONDS = 86_400.0
"""Time without a write after which another machine's folder counts as abandoned, in seconds."""


@dataclass(frozen=True)
class Unfinished:
    """Folders beside a run's place in which `init` or `clone` makes it."""

    run: Path
    """The run's folder."""

    @property
    def _prefix(self) -> str:
        return f".{self.run.name}{_INIT}"

    def new_folder(self) -> Path:
        """Path of a folder to make the run in, before it gets its name."""
        return self.run.with_name(self._prefix + temporary_name(os.getpid()))

    def remove(self) -> None:
        """Remove the folders of inits that have ended."""
        for left in self.run.parent.glob(f"{glob.escape(self._prefix)}*"):
            remove_left(left)


def remove_left(folder: Path) -> bool:
    """Remove an unfinished folder, and perhaps its ledger; False if its maker may still be running."""
    if folder.exists():
        if _is_at_work(folder):
            return False
        _remove(folder)
    return True


def _is_at_work(left: Path) -> bool:
    """True if the process that made an unfinished folder may still be running."""
    machine, _, rest = left.name.rpartition(_INIT)[2].partition("-")
    process = rest.partition("-")[0]
    try:
        changed = left.stat().st_mtime
    except FileNotFoundError:  # removed meanwhile, or renamed: it has become a run
        return True
    if machine == this_machine() and process.isdecimal():
        return is_running(int(process), seen_at=changed)
    return not was_before(machine) and changed > time.time() - _FORGOTTEN_SECONDS


def _remove(left: Path) -> None:
    """Remove a folder, and perhaps a ledger in a database.

    If the database does not answer, the ledger stays: it holds keyed hashes, whose key goes with the folder.
    """
    with suppress(S3TError):  # there is no ledger before there is a description
        description = read_description(Layout(left))
        Ledger.drop_at(ledger_address(Layout(left), url=description.ledger, run=description.run))
    remove_folder_durably(left)  # another process may remove it, too
