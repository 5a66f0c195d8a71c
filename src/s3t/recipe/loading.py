"""Loading of recipes from a YAML file, a mapping or a `Recipe`, with all problems reported at once."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from s3t.errors import RecipeError
from s3t.files import is_folder, open_regular, reading_problem
from s3t.recipe.schema import TAGGED, MethodSettings, Recipe
from s3t.wording import closest, problem_lines

MOST_BYTES = 10**7
MOST_NODES = 10**6
"""Values in a recipe: a prior of 100,000 shards has about as many."""


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe file. A relative local `base_model` is taken from the recipe's folder if it exists there.

    Raises:
        RecipeError: the file cannot be read, is not YAML, or has fields that are wrong (all are listed).
    """
    path = Path(path)
    try:
        content = read_yaml(path)
    except ValueError as error:
        raise RecipeError(str(path), str(error)) from None
    if not isinstance(content, Mapping):
        raise RecipeError(str(path), "holds no fields; start with `task:` (see docs/recipe.md)")
    recipe = recipe_from(content, where=str(path))
    beside = path.parent / recipe.base_model
    if not Path(recipe.base_model).is_absolute() and is_folder(beside):
        recipe = recipe.model_copy(update={"base_model": str(beside.resolve())})
    return recipe


def read_yaml(path: Path, *, ours: bool = False) -> Any:
    """The content of a YAML file; one that s3t wrote (`ours`, by `to_yaml`) may have any length. A `ValueError` says
    why it cannot be read, and quotes nothing of it but a key that is given twice: it may hold a salt, or records.
    """
    if (problem := reading_problem(path)) is not None:
        raise ValueError(problem)
    try:
        with open_regular(path) as file:
            content = file.read(-1 if ours else MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}; check the path") from None
    if len(content) > MOST_BYTES and not ours:
        raise ValueError(f"is longer than {MOST_BYTES // 10**6} MB; check the path")
    with suppress(UnicodeDecodeError):
        return parse_yaml(content.decode("utf-8-sig"), ours=ours)
    # Raised here, where no error is handled that quotes what it could not read.
    raise ValueError("is not YAML: it is not UTF-8 text; save it as UTF-8")


def parse_yaml(text: str, *, ours: bool = False) -> Any:
    """The value of a YAML text, by the core schema of YAML 1.2: yes, 1:30, 1_000 and dates are text, 017 is 17.

    >>> parse_yaml("{a: no, b: 1:30, c: 2024-01-01, d: 1e-4, e: 0x10, f: True}")
    {'a': 'no', 'b': '1:30', 'c': '2024-01-01', 'd': 0.0001, 'e': 16, 'f': True}
    """
    try:
        if ours:
            _check_depth(text)
        return yaml.load(text, Loader=_QUICK if ours else _Loader)  # noqa: S506 - both are safe
    except RecursionError:
        problem = "is nested too deeply; take the inner brackets out"
    except _GivenTwiceError as error:
        problem = f"{error}; keep one of the two"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = f"is not YAML{at}: {_unquoted(error.problem or error.context or 'it cannot be read')}"
    # A SafeLoader raises all of these at a value that is not what its tag says, such as 2024-99-99 or !!int "".
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, OverflowError):
        problem = "is not YAML: it holds a character, a number or a date that cannot be"
    raise ValueError(problem)


def _unquoted(problem: str) -> str:
    """A message of the parser without what it quotes of the file, but for single characters.

    >>> _unquoted("found ',' and undefined alias 'secret'")
    "found ',' and undefined alias '...'"
    """
    quoted = r"""(['"]).\1|(['"]).*\2"""
    return re.sub(quoted, lambda match: match[0] if match[1] else f"{match[2]}...{match[2]}", problem)


class _GivenTwiceError(Exception):
    """A key of a mapping that is given twice."""


_CORE = {
    "null": r"null|Null|NULL|~|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "merge": r"<<",
}
"""Unquoted values that are no text: the core schema of YAML 1.2 (section 10.3.2), and the key that merges mappings."""

_RESOLVERS = [(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z")) for tag, pattern in _CORE.items()]


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes what either schema, of YAML 1.1 or 1.2, would read as something else than text."""

    yaml_implicit_resolvers: Any = yaml.SafeDumper.yaml_implicit_resolvers | {None: _RESOLVERS}


def to_yaml(content: Any, **style: Any) -> str:
    """A YAML text that `parse_yaml` and readers of YAML 1.1 read alike.

    >>> to_yaml(["1e5", "no", "0o7", "a", 1e-5, 7], default_flow_style=True)
    "['1e5', 'no', '0o7', a, 1.0e-05, 7]\\n"
    """
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False, **style)
    return text


_QUICK: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""For what `to_yaml` wrote: several times as fast, where PyYAML came with libyaml."""
_DEEPEST = 100


def _check_depth(text: str) -> None:
    """Raise RecursionError where libyaml, which builds what is nested by recursion, would end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_QUICK):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise RecursionError


class _Loader(yaml.SafeLoader):
    """YAML loader of the core schema that refuses a key given twice, and aliases (`*name`) that hold themselves or make
    of a short file more than a long one could hold."""

    yaml_implicit_resolvers: Any = dict.fromkeys([None], _RESOLVERS)  # in place of SafeLoader's, of YAML 1.1

    def get_single_node(self) -> yaml.Node | None:
        """The root node; refused if its aliases expand to too much."""
        node = super().get_single_node()
        if node is not None and _nodes(node, {}) > MOST_NODES:
            raise yaml.constructor.ConstructorError(
                None, None, "its aliases (*name) make too much of it; write values out", node.start_mark
            )
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """A mapping; refused if two keys are one when they are read, as 1 and 0x1 are."""
        mapping = super().compose_mapping_node(anchor)
        seen: dict[Any, str] = {}
        for key, _ in mapping.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            value = self.construct_object(key)
            if not isinstance(value, Hashable):
                continue
            if (earlier := seen.get(value)) is not None:
                same = "given twice, once more" if earlier == key.value else f"the same key as {earlier!r}"
                raise _GivenTwiceError(f"{key.value!r} is {same} in line {key.start_mark.line + 1}")
            seen[value] = key.value
        return mapping

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """A whole number; one with a leading 0 is decimal."""
        text = self.construct_scalar(node)
        return int(text, 0 if text[:2] in ("0o", "0x") else 10)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def _nodes(node: yaml.Node, sizes: dict[int, float]) -> float:
    """Values that a node stands for, each alias for all that it names; infinite for one that holds itself."""
    if id(node) not in sizes:
        sizes[id(node)] = math.inf
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        inner = [part for pair in parts for part in pair] if isinstance(node, yaml.MappingNode) else parts
        sizes[id(node)] = 1 + sum(_nodes(part, sizes) for part in inner)
    return sizes[id(node)]


def recipe_from(content: Recipe | Mapping[str, Any] | str | Path, *, where: str = "recipe") -> Recipe:
    """A `Recipe` from what the caller has: a recipe, a mapping, or the path of a YAML file."""
    if isinstance(content, Recipe):
        return content
    if isinstance(content, str | Path):
        return load_recipe(content)
    with suppress(ValidationError):
        return Recipe.model_validate(dict(content))
    raise RecipeError(where, _all_problems(content))


_STAND_INS: dict[tuple[str, ...], Any] = {("labels",): "infer", ("base_model",): "stand-in"}
"""Takes the place of a wrong field, where leaving it out would be a problem of its own."""


def _all_problems(content: Mapping[str, Any]) -> list[str]:
    """Every problem. Checks across fields wait until each field is right, so wrong ones are left out, and again."""
    problems: dict[str, None] = {}
    wrong: set[tuple[str, ...]] = set()
    left = copy.deepcopy(dict(content))
    while True:
        try:
            Recipe.model_validate(left)
            return list(problems)
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False)
        # What is inside of a part's field is left out with it: the rest of it would be a problem of its own.
        new = [detail for detail in details if _field(detail)[:2] not in wrong]
        problems |= dict.fromkeys(itertools.chain.from_iterable(map(_sentences, new)))
        fields = {_field(detail)[:2] for detail in new}
        wrong |= fields
        left_out = [_leave_out(left, field) for field in fields]
        if not any(left_out):
            return list(problems)


def _leave_out(content: dict[str, Any], field: tuple[str, ...]) -> bool:
    """Take a field out of a recipe or of a part of it, or put its stand-in there; True if it was there."""
    part: Any = content if len(field) < 2 else content.get(field[0])
    if not field or not isinstance(part, dict) or field[-1] not in part:
        return False
    del part[field[-1]]
    if field in _STAND_INS:
        part[field[-1]] = _STAND_INS[field]
    return True


def _field(detail: Any) -> tuple[str, ...]:
    """The path of a problem's field, down to the last mapping: an item of a list has its list's."""
    # Unions (labels, target_modules, threads) add the type that was tried to the location; tagged ones, the tag.
    tried = ("list[", "literal[", "constrained-", "int", "str", "bool")
    named = itertools.takewhile(lambda part: isinstance(part, str) and not part.startswith(tried), detail["loc"])
    return tuple(part for part in named if not part.startswith(TAGGED))


def _sentences(detail: Any) -> list[str]:
    """One of pydantic's errors in our words: field, problem, remedy."""
    field = ".".join(map(str, _field(detail)))
    if detail["type"] == "extra_forbidden":
        return [f"{field}: no such field{_meant(_field(detail)) or '; see docs/recipe.md for the names'}"]
    return problem_lines(field, detail["msg"])


def _meant(wrong: tuple[str, ...]) -> str:
    """The field that is like one that does not exist: beside it, else anywhere in a recipe."""
    for fields in ([field for field in _FIELDS if field[:-1] == wrong[:-1]], _FIELDS):
        names = {field[-1]: ".".join(field) for field in fields}
        if close := closest(str(wrong[-1]), names):
            return f"; did you mean {names[close]}?"
    return ""


def _fields(part: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every field of a recipe, those of its parts behind their part."""
    for name, field in part.model_fields.items():
        path = (*above, field.alias or name)
        yield path
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _fields(kind, path)


_FIELDS = (*_fields(Recipe), *_fields(MethodSettings, ("method",)))
