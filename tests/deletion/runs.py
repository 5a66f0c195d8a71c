"""What tests of deletions do to a run's folder and to its parts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet

import s3t
from testing import tiny

LEDGER = ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm")


def put_back(run: Path, backup: Path, *names: str) -> None:
    """Put parts of a backup into a run's folder; without names, all but what tells where the run is."""
    parts = {path.name for folder in (run, backup) for path in folder.iterdir()} - {"home", "lock"}
    for name in names or parts:
        path, source = run / name, backup / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if source.exists():
            shutil.copytree(source, path) if source.is_dir() else shutil.copy2(source, path)


def patient_copy(run: Path, to: Path) -> Path:
    """A copy whose slices may be rewritten an hour after a deletion."""
    tiny.copy_run(run, to)
    tiny.change_recipe(to, deletion={"repair": "manual", "erase_within": 3600.0})
    return to


def delete(run: Path, *records: str) -> None:
    with s3t.Run.open(run) as opened:
        opened.delete(records=list(records))


def states_of(run: Path, *records: str) -> list[str]:
    """The states of records, of a run that the audit finds to be in order."""
    with s3t.Run.open(run) as opened:
        assert opened.audit().ok
        return [found.state for found in opened.locate(records=list(records))]


def states(run: s3t.Run) -> list[str]:
    """The states of a run's deletions."""
    return [entry.state for entry in run.log()[1:]]


def names_left(run: Path) -> set[str]:
    """Names of all records in all files of slices."""
    return {name for path in run.glob("slices/*/*") for name in pyarrow.parquet.read_table(path)["record"].to_pylist()}


def killed(*_args: Any, **_named: Any) -> NoReturn:
    """In the place of a function: as if the process had ended there."""
    raise s3t.StorageError("killed")


def full_disk(*_args: Any, **_named: Any) -> NoReturn:
    raise OSError(28, "No space left on device")
