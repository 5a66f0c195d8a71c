"""From a YAML file, a mapping or a `Recipe` to a `Recipe`, with all problems reported at once."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping
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
        content = read_yaml(path)
    except ValueError as error:
        raise RecipeError(str(path), [str(error)]) from error
    if not isinstance(content, Mapping):
        raise RecipeError(str(path), ["holds no fields; start with `task:` (see docs/recipe.md)"])
    recipe = recipe_from(content, where=str(path))
    beside = path.parent / recipe.base_model
    if not Path(recipe.base_model).is_absolute() and beside.is_dir():
        recipe = recipe.model_copy(update={"base_model": str(beside.resolve())})
    return recipe


def read_yaml(path: Path) -> Any:
    """What a YAML file holds.

    Raises:
        ValueError: it cannot be read, is not YAML, or gives a key twice.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_OnceOnly)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}; check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"is not YAML: {' '.join(str(error).split())}") from error


class _OnceOnly(yaml.SafeLoader):
    """YAML, in which a key that is given twice is a mistake; plain YAML takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As the parent, after a look at the keys."""
        seen = set()
        for key, _ in node.value:
            name = getattr(key, "value", None)
            if isinstance(name, str) and name != "<<":
                if name in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{name!r} is given twice; keep one of the two", key.start_mark
                    )
                seen.add(name)
        return super().construct_mapping(node, deep=deep)


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
        raise RecipeError(where, _all_problems(content, error)) from error


# Takes the place of a wrong field, where leaving it out would be a problem of its own.
_STAND_INS: dict[tuple[int | str, ...], Any] = {("labels",): "infer", ("base_model",): "stand-in"}
# Left out whole where a field of it is wrong: the rest of it would be a problem of its own.
_WHOLE: tuple[int | str, ...] = ("partition", "group")


def _all_problems(content: Mapping[str, Any], error: ValidationError) -> list[str]:
    """Every problem. Checks across fields wait until each field is right, so wrong ones are left out and it is asked
    again."""
    problems = _problems(error)
    known: set[tuple[int | str, ...]] = set()
    left = copy.deepcopy(dict(content))
    while True:
        wrong = {_left_out(detail) for detail in error.errors(include_url=False, include_input=False)} - known
        known |= wrong
        left_out = [_leave_out(left, field) for field in wrong]
        if not any(left_out):
            return problems
        try:
            Recipe.model_validate(left)
        except ValidationError as next_error:
            error = next_error
            new = [detail for detail in error.errors(include_url=False) if _left_out(detail) not in known]
            problems += [problem for problem in _problems_of(new) if problem not in problems]
        else:
            return problems


def _leave_out(content: dict[str, Any], field: tuple[int | str, ...]) -> bool:
    """Take a field out of nested mappings, or put its stand-in there; whether it was there."""
    inner: Any = content
    for part in field[:-1]:
        inner = inner.get(part) if isinstance(inner, dict) else None
    if not field or not isinstance(inner, dict) or field[-1] not in inner:
        return False
    if field in _STAND_INS:
        inner[field[-1]] = _STAND_INS[field]
    else:
        del inner[field[-1]]
    return True


def _field(detail: Any) -> tuple[int | str, ...]:
    """Which field a problem is of, down to the last mapping: an item of a list is its list's."""
    # Unions (labels, target_modules, threads) add the type that was tried to the location.
    tried = ("list[", "literal[", "constrained-", "int", "str", "bool")
    return tuple(itertools.takewhile(lambda part: isinstance(part, str) and not part.startswith(tried), detail["loc"]))


def _left_out(detail: Any) -> tuple[int | str, ...]:
    """What is left out so that the rest can be checked."""
    field = _field(detail)
    return _WHOLE if field[: len(_WHOLE)] == _WHOLE else field


def _problems(error: ValidationError) -> list[str]:
    return _problems_of(error.errors(include_url=False, include_input=False))


def _problems_of(details: Iterable[Any]) -> list[str]:
    problems: list[str] = []
    for detail in details:
        field = ".".join(str(part) for part in _field(detail))
        if detail["type"] == "extra_forbidden":
            problems.append(f"{field}: no such field; see docs/recipe.md for the names")
            continue
        message = detail["msg"].removeprefix("Value error, ")
        for line in message.splitlines():
            problem = f"{field}: {line}" if field else line
            if problem not in problems:
                problems.append(problem)
    return problems
