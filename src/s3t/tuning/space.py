"""The search space: fields of a recipe, each with its possible values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from s3t.errors import InputError
from s3t.recipe.loading import read_yaml

FIXED = (
    "task",
    "columns",
    "labels",
    "label_names",
    "partition.salt",
    "partition.group",
    "prediction.validation",
    "ledger",
)
"""Fields that say what the data are and where they go: there is nothing to choose."""
_HOW = "give a list of values, {between: [LOW, HIGH]} or {log: [LOW, HIGH]}"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A field and its values."""

    field: str
    """Path of the field, as training.learning_rate."""
    kind: Literal["one of", "between", "log"]
    values: tuple[Any, ...]
    """All values; or the lowest and the highest. If both are whole numbers, so are the values between."""

    def drawn(self, trial: Any) -> Any:
        if self.kind == "one of":
            return trial.suggest_categorical(self.field, self.values)
        low, high = self.values
        whole = isinstance(low, int) and isinstance(high, int)
        suggest = trial.suggest_int if whole else trial.suggest_float
        return suggest(self.field, low, high, log=self.kind == "log")


def read_space(content: Mapping[str, Any] | str | Path) -> tuple[Choice, ...]:
    """The choices of a YAML file, or of a mapping of fields to values.

    >>> read_space({"training.epochs": [2, 4]})[0].values
    (2, 4)
    """
    where = "the space"
    if isinstance(content, str | Path):
        where = str(content)
        try:
            content = read_yaml(Path(content))
        except ValueError as error:
            raise InputError(where, str(error)) from error
    if not isinstance(content, Mapping) or not content:
        raise InputError(where, f"names no field; for each field that may vary, {_HOW}")
    problems: list[str] = []
    choices = []
    for field, given in content.items():
        try:
            choices.append(_choice(str(field), given))
        except ValueError as error:
            problems.append(f"{field}: {error}")
    if problems:
        raise InputError(where, problems)
    return tuple(choices)


def with_values(fields: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's fields with some of them set.

    >>> with_values({"training": {"epochs": 2}}, {"training.seed": 1, "method": "sisa"})
    {'training': {'epochs': 2, 'seed': 1}, 'method': 'sisa'}
    """
    content = dict(fields)
    for name, value in values.items():
        first, _, rest = name.partition(".")
        inner = content.get(first, {})
        content[first] = (
            with_values(inner if isinstance(inner, Mapping) else {"name": inner}, {rest: value}) if rest else value
        )
    return content


def _choice(field: str, given: Any) -> Choice:
    if any(field == fixed or field.startswith(f"{fixed}.") for fixed in FIXED):
        raise ValueError("says what the data are, and cannot be chosen; take it out")
    if isinstance(given, list):
        if not given:
            raise ValueError(f"has no values; {_HOW}")
        return Choice(field=field, kind="one of", values=tuple(given))
    if not isinstance(given, Mapping) or len(given) != 1 or next(iter(given)) not in ("between", "log"):
        raise ValueError(f"{given!r} is no choice; {_HOW}")
    ((kind, bounds),) = given.items()
    numbers = isinstance(bounds, list) and all(
        isinstance(bound, int | float) and not isinstance(bound, bool) for bound in bounds
    )
    if not numbers or len(bounds) != 2 or not bounds[0] < bounds[1]:
        raise ValueError(f"{kind} takes two numbers, the lower one first")
    if kind == "log" and bounds[0] <= 0:
        raise ValueError("on a log scale, the lower number must be above 0")
    return Choice(field=field, kind=kind, values=tuple(bounds))
