"""Copies of records in the cache of `datasets`, under the user's home.

Who passes a `datasets.Dataset` has records in Arrow files there, which `datasets` wrote before the run began. They are
found by the dataset, remembered by the run, and go with its first deletion. A cache can be made again: the next
`load_dataset` does so, from the user's own files.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from s3t.disk import remove_durably
from s3t.ledger.state import Copy

INFO = "dataset_info.json"
"""In a folder of the cache, what makes `load_dataset` take it for whole."""
SAVED = "state.json"
"""What `save_to_disk` writes beside the data: such a folder is the user's own, wherever it lies."""


def cached_copies(data: object) -> tuple[Copy, ...]:
    """The Arrow files behind a `datasets.Dataset` that lie in the cache of `datasets`: absolute, sorted.

    Empty for other data, and for a dataset that was read into memory: it does not know its files.
    """
    # Looked up, not imported: who passes a dataset has imported the package already.
    datasets = sys.modules.get("datasets")
    if datasets is None or not isinstance(data, datasets.Dataset):
        return ()
    cache = _cache()
    paths = {Path(file["filename"]).resolve() for file in data.cache_files}
    return tuple(Copy(path=path, cache=cache, host=platform.node()) for path in sorted(paths) if _lies_in(cache, path))


def remove_copies(copies: Iterable[Copy]) -> tuple[Copy, ...]:
    """Remove what `cached_copies` named, durably, and with each all that lies in its folder.

    That is: what `map` and `filter` wrote beside it, of the same records; what a killed process left there; other
    splits; and what tells `load_dataset` that they are there. Files that are gone already are no error; one that the
    user has saved there since, or has replaced by a link, is the user's own and is left alone. What counts is which
    cache it was, not which one `datasets` would use now.

    Returns:
        Those that another host has, where alone they can be seen.

    Raises:
        OSError: the disk refused.
    """
    known = list(copies)
    # By folders: where a crash left a removal half done, a named file may be gone and what lies beside it not.
    ours = [copy.path for copy in known if copy.path.parent.is_dir() and _lies_in(copy.cache, copy.path)]
    for folder in sorted({path.resolve().parent for path in ours}):
        whole = (folder / INFO).exists()
        pattern = "*" if whole else "cache-*.arrow"  # elsewhere, only what `datasets` names
        files = [path for path in folder.glob(pattern) if path.is_file() and not path.is_symlink()]
        files += [path.resolve() for path in ours if path.resolve().parent == folder]
        # The mark goes last: without it, after a crash between the two, the rest would not be known for what it is.
        remove_durably([path for path in files if path.name != INFO])
        remove_durably([folder / INFO])
    here = platform.node()
    return tuple(copy for copy in known if copy.host != here and not copy.cache.is_dir())


def _cache() -> Path:
    import datasets.config  # here: it takes a second, and most runs have no copies

    return Path(datasets.config.HF_DATASETS_CACHE).expanduser().resolve()


def _lies_in(cache: Path, path: Path) -> bool:
    """Whether that very file lies in the cache, through no link, and the user has not saved it there."""
    return (
        path.resolve().is_relative_to(cache) and not path.is_symlink() and not (path.resolve().parent / SAVED).exists()
    )
