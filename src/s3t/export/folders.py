"""Folders of exports. Their names are hashes of their content: no two exports share a name, so that no server that has
loaded one takes another for it. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from s3t.errors import InputError
from s3t.export.description import DESCRIPTION, README
from s3t.processes import may_be_at_work, this_machine
from s3t.store.disk import publish_folder, remove_durably, remove_folder_durably, temporary_name

_BESIDE = (DESCRIPTION, README)
"""Files that are not content: the name does not follow from them."""
_DIGITS = 16
_PART = ".s3t-export-"


class File(NamedTuple):
    name: str
    """Its path below the export's folder, with `/`."""
    size: int
    """In bytes."""
    sha256: str

    def is_at(self, path: Path) -> bool:
        try:
            found = path.lstat()
            regular = stat.S_ISREG(found.st_mode) and not path.parent.is_symlink()
            return regular and found.st_size == self.size and digest_of(path) == self.sha256
        except OSError:
            return False


_writing: set[str] = set()
"""Marks of exports that threads of this process are writing."""


@contextmanager
def new_mark() -> Iterator[str]:
    """A name for an export that has no content yet, while it is written; it tells machine and process."""
    mark = temporary_name(os.getpid())
    _writing.add(mark)
    try:
        yield mark
    finally:
        _writing.discard(mark)


def part_folder(output: Path, mark: str) -> Path:
    """The folder in which an export is written, beside its final place."""
    return output / f"{_PART}{mark}"


def is_being_written(mark: str, *, announced_at: float) -> bool:
    if mark.startswith(f"{this_machine()}-{os.getpid()}-"):
        return mark in _writing
    return may_be_at_work(mark, seen_at=announced_at)


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_in(folder: Path) -> tuple[File, ...]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple(File(path.relative_to(folder).as_posix(), path.stat().st_size, digest_of(path)) for path in paths)


def folder_name(shard: int, files: Iterable[File]) -> str:
    """The name of a folder with these files: of its shard, and of the hash of tensors and configuration.

    >>> folder_name(2, [File("adapter_config.json", 2, "ab")])
    'shard-002-2cc937f97f09a3cf'
    """
    content = sorted([file.name, file.sha256] for file in files if file.name not in _BESIDE)
    return f"shard-{shard:03d}-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:_DIGITS]}"


def output_problems(output: Path, *, run: Path) -> list[str]:
    """Reasons why exports cannot be written to a folder, which need not exist."""
    try:
        real, home = Path(os.path.realpath(output)), Path(os.path.realpath(run))
        if real.exists() and not real.is_dir():
            return [f"{output} is no folder; name one"]
        above = next(path for path in (real, *real.parents) if path.exists())
    except (OSError, ValueError) as error:
        return [f"{output} cannot be a folder: {getattr(error, 'strerror', None) or error}; name another"]
    if not above.is_dir():
        return [f"{above} is no folder, so {output} cannot be made; name another"]
    if real.is_relative_to(home):
        return [f"{output} is in the folder of the run; name one outside of it"]
    return []


def publish(part: Path, final: Path, files: Sequence[File]) -> bool:
    """Give a written export its place, durably; False if it is there already."""
    if not os.path.lexists(final):
        try:
            publish_folder(part, final)
            return True
        except OSError:
            if not final.exists():  # else another process has published the same meanwhile
                raise
    if final.is_symlink() or not all(file.is_at(final / file.name) for file in files):
        raise InputError(
            "the export",
            f"{final} is there, and holds something else than the export of that name: another run's, or it was "
            "changed; remove it, or name another folder",
        )
    remove_folder_durably(part)
    return False


def remove_unchanged(folder: Path, files: Collection[File]) -> list[Path]:
    """Remove an export's files that are as they were written, and its folder if nothing else is in it.

    Returns what is left of the export: files of its names that were changed.
    """
    if not folder.is_dir() or folder.is_symlink():
        return [folder] if os.path.lexists(folder) else []
    left = [folder / file.name for file in files if os.path.lexists(folder / file.name)]
    gone = [folder / file.name for file in files if file.is_at(folder / file.name)]
    remove_durably(gone)
    if all(path.is_dir() and not path.is_symlink() for path in folder.rglob("*")):
        remove_folder_durably(folder)
    return [path for path in left if path not in gone]


def left_behind(output: Path, name: str, files: Collection[File], *, but: Collection[Path] = ()) -> list[Path]:
    """Remains of an export: its folder, and files with its content anywhere below the output folder, but in those of
    other exports.
    """
    sizes = {file.size for file in files if file.name not in _BESIDE and file.name.endswith(".safetensors")}
    tensors = {file.sha256 for file in files if file.size in sizes}
    found = [output / name] if os.path.lexists(output / name) else []
    for path in _regular(output, {*but, output / name}, sizes):
        with suppress(OSError):  # it went meanwhile, or may not be read
            found += [path] if digest_of(path) in tensors else []
    return found


def _regular(folder: Path, but: Collection[Path], sizes: Collection[int]) -> Iterator[Path]:
    """Files of some sizes below a folder, on its file system."""
    if not folder.is_dir():
        return
    device = folder.stat().st_dev
    for path, folders, names in os.walk(folder):
        here = Path(path)
        inner = ((name, _state(here / name)) for name in sorted(folders) if here / name not in but)
        folders[:] = [name for name, found in inner if found is not None and found.st_dev == device]
        for name in sorted(names):
            found = _state(here / name)
            if found is not None and stat.S_ISREG(found.st_mode) and found.st_size in sizes:
                yield here / name


def _state(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None
