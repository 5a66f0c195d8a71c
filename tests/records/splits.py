"""Division of a table into slices, in one go."""

import tempfile
from pathlib import Path

from s3t.records.splitting import Split
from s3t.store.spill import Spill


def split_into_slices(rows, *, secret, shards, slices, among=None, windows=None):
    """Every slice's rows; the table is taken in `windows` rows at a time, None: at once."""
    with Spill(Path(tempfile.gettempdir())) as spill:
        split = Split(spill, secret=secret, shards=shards, slices=slices)
        size = windows or max(rows.num_rows, 1)
        for start in range(0, max(rows.num_rows, 1), size):
            split.add(rows.slice(start, size), None if among is None else among[start : start + size])
        return dict(split.items())
