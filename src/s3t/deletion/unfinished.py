"""Unfinished folders: `init` and `clone` make a run in one, and a killed one leaves it, with all records in it.

And folders of runs that nobody keeps, of which nothing stays.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from s3t.deletion.witness import Witness
from s3t.errors import S3TError
from s3t.ledger import Ledger
from s3t.ledger.engines import address_of
from s3t.processes import may_be_at_work
from s3t.store.blobs import KINDS, open_blobs
from s3t.store.disk import OpenedFolder, remove_folder_durably, storage_errors, temporary_name
from s3t.store.folder import Description, Layout, read_description

_INIT = ".init-"


def new_folder(run: Path) -> Path:
    """Path of a folder beside a run's place in which `init` or `clone` makes it, before it gets its name."""
    return run.with_name(f".{run.name}{_INIT}{temporary_name(os.getpid())}")


def remove_unfinished(run: Path, *, in_buckets: bool = True) -> None:
    """Remove the folders, with all records in them, that killed inits and clones left beside a run's place."""
    for left in run.parent.glob(f"{glob.escape(f'.{run.name}{_INIT}')}*"):
        remove_left(left, in_buckets=in_buckets)


def remove_left(folder: Path, *, in_buckets: bool = True) -> bool:
    """Remove an unfinished folder, as `remove_run` does; False if its maker may still be running, or if it has a bucket
    and those are not to be asked.
    """
    if folder.exists():
        try:
            changed = folder.stat().st_mtime
        except FileNotFoundError:  # removed meanwhile, or renamed: it has become a run
            return False
        if may_be_at_work(folder.name.rpartition(_INIT)[2], seen_at=changed):
            return False
        described = _described(folder)
        if not in_buckets and described is not None and described.store is not None:
            return False
        remove_run(folder)  # another process may remove it, too
    return True


@contextmanager
def passing_folder(within: Path, name: str) -> Iterator[Path]:
    """A folder for runs, removed with them in the end. Those that killed processes left under this name go first."""
    doing = f"keeping records in a temporary folder in {within}"
    with storage_errors(doing):
        for left in within.glob(f".{glob.escape(name)}-*"):
            if not may_be_at_work(left.name.removeprefix(f".{name}-"), seen_at=left.stat().st_mtime):
                _remove_runs(left)
        folder = within / f".{name}-{temporary_name(os.getpid())}"
        folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        with storage_errors(doing):
            _remove_runs(folder)


def _remove_runs(folder: Path) -> None:
    for run in folder.iterdir():
        remove_run(run)
    remove_folder_durably(folder)


def remove_run(folder: Path) -> None:
    """Remove a run that nobody keeps, or what there is of it: its ledger, its memory of deletions, its folder.

    If a database or the memory's folder refuses, what is there stays: keyed hashes, whose key goes with the folder. If
    a bucket refuses, that is raised, and the folder stays, which alone tells of it.
    """
    layout, description = Layout(folder), _described(folder)
    if description is not None:
        if description.store is not None:
            with storage_errors(f"removing what there is of a run in {description.store}"):
                for kind in KINDS:
                    blobs = open_blobs(layout, description, kind, within=OpenedFolder.of(folder))
                    blobs.erase(blobs.names())
        with suppress(S3TError):
            Ledger.drop_at(address_of(layout, description))
        with suppress(OSError):
            Witness.of_run(description.run).path.unlink(missing_ok=True)
    remove_folder_durably(folder)


def _described(folder: Path) -> Description | None:
    """What run.json says; None if there is none yet: then nothing lies elsewhere."""
    layout = Layout(folder)
    return read_description(layout) if layout.description.exists() else None
