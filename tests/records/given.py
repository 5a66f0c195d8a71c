"""What tests of records begin with: a recipe, and a table that is divided into slices in one go."""

import tempfile
from pathlib import Path

from s3t.recipe import recipe_from
from s3t.records.splitting import Split
from s3t.store.spill import Spill


def recipe(**changes):
    """A recipe of texts with ids and two labels, but for the changes; `...` leaves a field out."""
    fields = {
        "task": "text-classification",
        "base_model": "m",
        "columns": {"id": "id", "text": "text", "label": "label"},
        "labels": ["a", "b"],
    }
    return recipe_from({name: value for name, value in (fields | changes).items() if value is not ...})


def split_into_slices(rows, *, secret, shards, slices, among=None, windows=None):
    """Every slice's rows; the table is taken in `windows` rows at a time, None: at once."""
    with Spill(Path(tempfile.gettempdir())) as spill:
        split = Split(spill, secret=secret, shards=shards, slices=slices)
        size = windows or max(rows.num_rows, 1)
        for start in range(0, max(rows.num_rows, 1), size):
            split.add(rows.slice(start, size), None if among is None else among[start : start + size])
        return dict(split.items())
