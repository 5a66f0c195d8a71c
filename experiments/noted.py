"""The recipes of the runs that a point makes, as `s3t.Run.create` is given them, noted for its results."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Recipe = dict[str, Any]

_since_taken: list[Recipe] = []


def note(recipe: Mapping[str, Any]) -> None:
    """A run of it is made, or one that was kept is used."""
    _since_taken.append(copy.deepcopy(dict(recipe)))


def taken() -> list[Recipe]:
    """Those noted in this process since the last call, each once: without the training's seed, which the row tells, and
    without this machine's folders."""
    found = {json.dumps(_of_any_machine(recipe), sort_keys=True): None for recipe in _since_taken}
    _since_taken.clear()
    return [json.loads(text) for text in found]


def named(rows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Recipe]]:
    """Rows that name their recipes, and the recipes by name: many rows have the same.

    >>> rows, recipes = named([{"x": 1, "recipes": [{"a": 1}]}, {"x": 2, "recipes": [{"a": 1}]}, {"x": 3}])
    >>> rows[0]["recipes"] == rows[1]["recipes"] == list(recipes), rows[2]
    (True, {'x': 3})
    """
    found: dict[str, Recipe] = {}
    told = []
    for row in rows:
        names = []
        for recipe in row.get("recipes", []):
            name = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:8]
            found[name] = recipe
            names.append(name)
        told.append({**row, "recipes": names} if names else dict(row))
    return told, found


def _of_any_machine(recipe: Recipe) -> Recipe:
    own = {key: value for key, value in recipe.items() if key != "training"}
    training = {key: value for key, value in recipe.get("training", {}).items() if key != "seed"}
    text = json.dumps({**own, "training": training})
    for variable, default in (("S3T_DATA", "../shared/data"), ("S3T_EXPERIMENTS", ".experiments")):
        folder = os.environ.get(variable, default)
        for written in (str(Path(folder).resolve()), folder):
            text = text.replace(f'"{json.dumps(written)[1:-1]}/', f'"${variable}/')
    return dict(json.loads(text))
