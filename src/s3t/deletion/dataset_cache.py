"""Copies of records in the cache of `datasets`, under the user's home.

Who passes a `datasets.Dataset` has records in Arrow files there, which `datasets` wrote before the run began. They are
found by the dataset, remembered by the run, and go with its first deletion. A cache can be made again: the next
`load_dataset` does so, from the user's own files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from s3t.disk import remove_durably

INFO = "dataset_info.json"
"""In a folder of the cache, what makes `load_dataset` take it for whole."""
SAVED = "state.json"
"""What `save_to_disk` writes beside the data: such a folder is the user's own, wherever it lies."""


def cached_copies(data: object) -> tuple[Path, ...]:
    """The Arrow files behind a `datasets.Dataset` that lie in the cache of `datasets`: absolute, sorted.

    Empty for other data, and for a dataset that was read into memory: it does not know its files.
    """
    # Looked up, not imported: who passes a dataset has imported the package already.
    datasets = sys.modules.get("datasets")
    if datasets is None or not isinstance(data, datasets.Dataset):
        return ()
    cache = _cache()
    paths = {Path(file["filename"]).resolve() for file in data.cache_files}
    return tuple(sorted(path for path in paths if _lies_in(cache, path)))


def remove_copies(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Remove what `cached_copies` named, durably, and with each all that lies in its folder.

    That is: what `map` and `filter` wrote beside it, of the same records; what a killed process left there; other
    splits; and what tells `load_dataset` that they are there. Files that are gone already are no error.

    Returns:
        Those that are still there, because they are not in the cache (any more), or are the user's own.

    Raises:
        OSError: the disk refused.
    """
    # By folders: where a crash left a removal half done, a named file may be gone and what lies beside it not.
    suspect = [path for path in paths if path.parent.is_dir() and any(path.parent.iterdir())]
    if not suspect:
        return ()
    cache = _cache()
    ours = [path for path in suspect if _lies_in(cache, path)]
    for folder in sorted({path.resolve().parent for path in ours}):
        whole = (folder / INFO).exists()
        pattern = "*" if whole else "cache-*.arrow"  # elsewhere, only what `datasets` names
        files = [path for path in folder.glob(pattern) if path.is_file() and not path.is_symlink()]
        files += [path.resolve() for path in ours if path.resolve().parent == folder]
        # The mark goes last: without it, after a crash between the two, the rest would not be known for what it is.
        remove_durably([path for path in files if path.name != INFO])
        remove_durably([folder / INFO])
    return tuple(path for path in suspect if path not in ours and path.exists())


def _cache() -> Path:
    import datasets.config  # here: it takes a second, and most runs have no copies

    return Path(datasets.config.HF_DATASETS_CACHE).expanduser().resolve()


def _lies_in(cache: Path, path: Path) -> bool:
    """Whether that very file lies in the cache, through no link, and the user has not saved it there."""
    return (
        path.resolve().is_relative_to(cache) and not path.is_symlink() and not (path.resolve().parent / SAVED).exists()
    )
