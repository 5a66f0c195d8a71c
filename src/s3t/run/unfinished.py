"""What a killed init left beside the run: a folder that never became one, with all its records in it."""

from __future__ import annotations

import glob
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from s3t.disk import temporary_name
from s3t.errors import S3TError
from s3t.ledger import Ledger
from s3t.processes import is_running, this_machine, was_before
from s3t.run.layout import Layout, read_description
from s3t.run.ledger_address import ledger_address

_FORGOTTEN_SECONDS = 86_400.0
"""A folder of another machine that nothing was written into for so long is taken for one that was left."""


def unfinished_folder(run: Path) -> Path:
    """Where a run is made, before it gets its name."""
    return run.with_name(_prefix(run) + temporary_name(os.getpid()))


def remove_unfinished(run: Path) -> None:
    """Remove what inits of a run left, if they are not still at it.

    Raises:
        OSError: the disk refused.
    """
    for left in run.parent.glob(f"{glob.escape(_prefix(run))}*"):
        if not _is_at_work(left.name.removeprefix(_prefix(run)), left):
            _remove(left)


def _prefix(run: Path) -> str:
    return f".{run.name}.init-"


def _is_at_work(name: str, left: Path) -> bool:
    """Whether the process that made an unfinished folder may still be at it."""
    machine, _, rest = name.partition("-")
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
    with suppress(FileNotFoundError):  # another process may be at it, too
        shutil.rmtree(left)
