"""A run folder's home: a note in the folder of its own path, by which a copy is told from the run.

A copy has the run's id, and with it the run's memory of deletions, or its database. A deletion in a copy would take
the run itself out of service. So before anything is changed the folder is compared with the note `home`. It is the
run's home if it has the noted path, or the noted folder's inode, wherever that is mounted or was moved to on its file
system. A backup that is put back in place is no copy; nor is a bind mount, a container's volume or another host's mount
of a network file system. Any other folder was copied, or moved across file systems. Nobody can tell these apart: the
user says which.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from s3t.disk import write_bytes_durably
from s3t.errors import IntegrityError, MovedError, S3TError
from s3t.folder.layout import Layout, read_description

MOVED = "--moved (in Python: Run.open(..., moved=True))"


@dataclass(frozen=True, kw_only=True)
class Home:
    """Identity of a folder among its copies."""

    path: str
    """Absolute, without symbolic links."""
    inode: int
    """Inode of the folder. Files may be hard links of another folder's, as some backups make them; folders may not."""
    file_system: int
    """The file system's own number, which outlives a mount; 0 where it has none, as over NFS."""

    @classmethod
    def of(cls, folder: Path, *, named: Path | None = None) -> Home:
        """The identity of an existing folder.

        Args:
            named: its future path; None: the same.
        """
        path = os.path.realpath(folder if named is None else named)
        return cls(path=path, inode=folder.stat().st_ino, file_system=os.statvfs(folder).f_fsid)

    def is_folder_of(self, other: Home) -> bool:
        """True if both are one folder, by whatever path."""
        return (self.inode, self.file_system) == (other.inode, other.file_system)


def write_home(layout: Layout, home: Home) -> None:
    """Note a run's home. The caller holds the run's lock, or no other process knows the folder."""
    write_bytes_durably(layout.home, (json.dumps(asdict(home)) + "\n").encode(), tmp=layout.tmp)


def read_home(layout: Layout) -> Home | None:
    """The noted home; None if there is no note."""
    try:
        content = json.loads(layout.home.read_bytes())
        return Home(path=str(content["path"]), inode=content["inode"], file_system=content["file_system"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{layout.home} is damaged ({error})") from error


def moved_error(layout: Layout, *, run: str) -> MovedError | None:
    """The error if the folder is not the run's home; None if it is, or if no home is noted."""
    try:
        noted = read_home(layout)
    except IntegrityError as error:
        return MovedError(f"{error}: if {layout.root} is the run and no copy of it, say so with {MOVED}")
    here = Home.of(layout.root)
    if noted is None or noted.path == here.path:
        return None
    also_there = _is_there(noted, run=run, here=here)
    if noted.is_folder_of(here) and not also_there:
        return None
    adopt = f"to make it a run of its own, run `s3t clone --adopt {layout.root}`"
    if also_there:
        copied = MovedError(f"{layout.root} is a copy of the run in {noted.path}: change that one, or, {adopt}")
        copied.certainly_a_copy = True
        return copied
    return MovedError(
        f"{layout.root} is a copy of the run that was in {noted.path}, or that run was moved here: if it was moved, "
        f"say so with {MOVED}; if it is a copy, {adopt}"
    )


def _is_there(noted: Home, *, run: str, here: Home) -> bool:
    """True if another folder of the run is at the noted path."""
    folder = Path(noted.path)
    try:
        return not Home.of(folder).is_folder_of(here) and read_description(Layout(folder)).run == run
    except (OSError, S3TError):
        return False
