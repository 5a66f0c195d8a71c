"""From a YAML file, a mapping or a `Recipe` to a `Recipe`, with all problems reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from s3t.errors import RecipeError
from s3t.recipe.schema import Recipe


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe file. A relative local `base_model` is taken from the recipe's folder if it exists there.

    Raises:
        RecipeError: the file cannot be read, is not YAML, or has fields that are wrong (all are listed).
    """
    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(str(path), [f"cannot be read: {error.strerror}; check the path"]) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(str(path), [f"is not YAML: {' '.join(str(error).split())}"]) from error
    if not isinstance(content, Mapping):
        raise RecipeError(str(path), ["holds no fields; start with `task:` (see docs/recipe.md)"])
    recipe = recipe_from(content, where=str(path))
    beside = path.parent / recipe.base_model
    if not Path(recipe.base_model).is_absolute() and beside.is_dir():
        recipe = recipe.model_copy(update={"base_model": str(beside.resolve())})
    return recipe


def recipe_from(content: Recipe | Mapping[str, Any] | str | Path, *, where: str = "recipe") -> Recipe:
    """A `Recipe` from what the caller has: a recipe, a mapping, or the path of a YAML file.

    Raises:
        RecipeError: with every problem, each naming its field.
    """
    if isinstance(content, Recipe):
        return content
    if isinstance(content, str | Path):
        return load_recipe(content)
    try:
        return Recipe.model_validate(dict(content))
    except ValidationError as error:
        raise RecipeError(where, _problems(error)) from error


def _problems(error: ValidationError) -> list[str]:
    problems = []
    for detail in error.errors(include_url=False, include_input=False):
        # The union of `labels` and of `target_modules` adds the type that was tried to the location.
        field = ".".join(str(part) for part in detail["loc"] if not str(part).startswith(("list[", "literal[")))
        if detail["type"] == "extra_forbidden":
            problems.append(f"{field}: no such field; see docs/recipe.md for the names")
            continue
        message = detail["msg"].removeprefix("Value error, ")
        for line in message.splitlines():
            problem = f"{field}: {line}" if field else line
            if problem not in problems:
                problems.append(problem)
    return problems
