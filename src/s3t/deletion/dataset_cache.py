"""Copies of records in the cache of `datasets`, under the user's home.

`datasets` writes the records of a `datasets.Dataset` there as Arrow files. `init` remembers the files, and the run's
first deletion removes them. The next `load_dataset` makes them again, from the user's own files.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from s3t.disk import remove_durably
from s3t.ledger.state import Copy
from s3t.records.imported import is_of

INFO = "dataset_info.json"  # its presence tells `load_dataset` that a folder of the cache is whole
SAVED = "state.json"  # written by `save_to_disk`: such a folder is the user's, wherever it lies


def cached_copies(data: Any) -> tuple[Copy, ...]:
    """The Arrow files of a `datasets.Dataset` in the cache, sorted; none for other data, or a dataset in memory."""
    if not is_of(data, "datasets", "Dataset"):
        return ()
    import datasets  # it is in memory

    cache = Path(datasets.config.HF_DATASETS_CACHE).expanduser().resolve()
    paths = {Path(file["filename"]).resolve() for file in data.cache_files}
    return tuple(Copy(path=path, cache=cache, host=platform.node()) for path in sorted(paths) if _lies_in(cache, path))


def remove_copies(copies: Iterable[Copy]) -> tuple[Copy, ...]:
    """Remove copies durably, and the files that `map`, `filter` and killed processes left in their folders.

    Missing files are no error. Files that the user has saved there, or replaced by a link, stay. Returns the copies
    that are only visible on another host.
    """
    copies = list(copies)
    # By folders: after a crash, a named file may be gone and the files beside it not.
    ours = [copy.path for copy in copies if copy.path.parent.is_dir() and _lies_in(copy.cache, copy.path)]
    for folder in sorted({path.resolve().parent for path in ours}):
        whole = (folder / INFO).exists()
        pattern = "*" if whole else "cache-*.arrow"  # else only names of `datasets`
        files = [path for path in folder.glob(pattern) if path.is_file() and not path.is_symlink()]
        files += [path.resolve() for path in ours if path.resolve().parent == folder]
        # Last: without this file, the next attempt could not tell that the rest belongs to `datasets`.
        remove_durably([path for path in files if path.name != INFO])
        remove_durably([folder / INFO])
    here = platform.node()
    return tuple(copy for copy in copies if copy.host != here and not copy.cache.is_dir())


def _lies_in(cache: Path, path: Path) -> bool:
    """True if the file itself, not a link, lies in the cache, and the user has not saved it there."""
    resolved = path.resolve()
    return resolved.is_relative_to(cache) and not path.is_symlink() and not (resolved.parent / SAVED).exists()
