"""Options of `sequences`, `simulate` and `plan`: sizes, a prior, a selector; all problems at once."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from s3t.cli.options import seed_problems
from s3t.disk import reading_problem
from s3t.errors import DataError, InputError, SettingError

if TYPE_CHECKING:
    from s3t.sequences import Setting

MOST_NUMBERS = 20_000_000
"""Largest count of numbers in all orders together."""
MOST_SHARDS = 100_000
MOST_DELETIONS = 10_000
"""Largest number of deletions after which a score or a depth is computed; as in a recipe."""
MOST_BYTES = 64 * 10**6
"""Largest file with a prior."""

SlicesOption = Annotated[int, Option(metavar="L", help="Slices in a shard.", show_default=False)]
PriorOption = Annotated[
    str | None,
    Option(
        metavar="P0,P1,...",
        help="L probabilities that a deletion in a shard falls on each slice; without, all slices are alike.",
    ),
]
PriorFileOption = Annotated[
    Path | None,
    Option(metavar="FILE", help="The same from a file: a JSON list of numbers, or of a row a shard."),
]
SelectorOption = Annotated[str, Option(metavar="NAME", help="Selector of the orders; names in docs/recipe.md.")]
DeletionsOption = Annotated[int, Option(metavar="T", help="The t of the paper's score, which bms maximises.")]
SeedOption = Annotated[int, Option(metavar="S", help="Seed of random draws; the same seed, the same result.")]
PlotOption = Annotated[
    Path | None, Option(metavar="FILE", help="Draw it, into a .png, .svg or .pdf file. Needs the extra plots.")
]
StageSecondsOption = Annotated[
    str | None,
    Option(
        metavar="S1,S2,...",
        help="Seconds of training a stage of each depth, 1 to L, as measured; without, costs are arithmetic.",
    ),
]

# What `s3t.sequences` has as defaults; importing it here would slow down every --help.
SELECTOR, DELETIONS, HORIZON = "survival", 8, "1,2,4,8"


def settings_of(
    problems: list[str],
    *,
    shards: int = 1,
    slices: int,
    budget: int,
    prior: str | None,
    prior_file: Path | None,
    selector: str,
    deletions: int,
    horizon: str = HORIZON,
    values: str | None = None,
    seed: int,
    plot: Path | None,
) -> tuple[Setting, ...]:
    """Settings of the shards' orders, one a shard. Raises an InputError if there are problems, also earlier ones."""
    from s3t.drawing import check_picture
    from s3t.sequences import Setting, prior_rows

    problems += [problem for problem in seed_problems(seed) if seed > 0]
    if deletions > MOST_DELETIONS:
        problems.append(f"--deletions {deletions}: at most {MOST_DELETIONS:,}")
    rows: tuple[tuple[float, ...] | None, ...] = (None,)
    if not 1 <= shards <= MOST_SHARDS:
        problems.append(f"{shards} shards: a system has 1 to {MOST_SHARDS:,}")
        shards = 1
    with noted(problems):
        rows = prior_rows(_given_prior(prior, prior_file), shards=shards)
    numbers: dict[str, Any] = {}
    with noted(problems):
        numbers["horizon"] = tuple(map(_whole, numbers_in(horizon, where="--horizon")))
    with noted(problems):
        numbers["values"] = None if values is None else tuple(numbers_in(values, where="--values"))
    known: dict[tuple[float, ...] | None, Setting] = {}
    for row in dict.fromkeys(rows):
        with noted(problems):
            known[row] = Setting(slices=slices, budget=budget, prior=row, deletions=deletions, seed=seed, **numbers)
    problems += _selector_problems(selector, list(known.values()))
    if plot is not None:
        with noted(problems):
            check_picture(plot)
    if problems:
        raise InputError("the command", dict.fromkeys(problems))
    return tuple(known[row] for row in rows)


def _selector_problems(selector: str, settings: Sequence[Setting]) -> list[str]:
    from s3t.sequences import SELECTORS, no_selector, selector_problem

    if selector not in SELECTORS:
        return [no_selector(selector)]
    if any(setting.budget * setting.slices > MOST_NUMBERS for setting in settings):
        slices, budget = settings[0].slices, settings[0].budget
        return [f"{budget:,} orders of {slices:,} slices are more than {MOST_NUMBERS:,} numbers; lower the budget"]
    return [problem for problem in (selector_problem(selector, setting) for setting in settings) if problem]


def numbers_in(text: str, *, where: str) -> list[float]:
    """Numbers separated by commas, blanks or line ends.

    >>> numbers_in("0.5, 0.25 0.25", where="--prior")
    [0.5, 0.25, 0.25]
    """
    parts = re.split(r"\s*,\s*|\s+", text.strip().removesuffix(",").rstrip())
    if parts == [""]:
        raise DataError(where, "holds no numbers; separate them by commas")
    numbers = []
    for place, part in enumerate(parts, start=1):
        try:
            numbers.append(float(part))
        except ValueError:
            wrong = "is missing" if not part else f"is {part[:40]!r}, not a number"
            raise DataError(where, f"number {place} {wrong}") from None
    return numbers


def _whole(number: float) -> int:
    if not number.is_integer():
        raise DataError("--horizon", f"{number:g} is not a whole number of deletions")
    if number > MOST_DELETIONS:
        raise DataError("--horizon", f"{number:g} is more than {MOST_DELETIONS:,} deletions")
    return int(number)


def _given_prior(text: str | None, path: Path | None) -> list[Any] | None:
    """The prior of the options: None, L numbers, or rows of numbers."""
    if text is not None and path is not None:
        raise DataError("--prior", "is given, and --prior-file as well; leave one of them out")
    if text is not None:
        return list(numbers_in(text, where="--prior"))
    return None if path is None else _prior_in(path)


def _prior_in(path: Path) -> list[Any]:
    from pydantic import TypeAdapter, ValidationError

    if (problem := reading_problem(path)) is not None:
        raise DataError(str(path), problem)
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise DataError(str(path), f"cannot be read: {error.strerror}; check the path") from None
    if len(content) > MOST_BYTES:
        raise DataError(str(path), f"is longer than {MOST_BYTES // 10**6} MB; it cannot be a prior")
    try:
        rows = TypeAdapter(list[float] | list[list[float]])
        return rows.validate_json(content.removeprefix(BOM_UTF8), strict=True)
    except ValidationError:
        problem = "expected a JSON list of numbers, or of rows that are lists of numbers"
        raise DataError(str(path), problem) from None


@contextmanager
def noted(problems: list[str]) -> Iterator[None]:
    """Append the problems of an InputError or of pydantic's error to a list, instead of raising it."""
    try:
        yield
    except SettingError as error:
        problems += error.problems
    except InputError as error:
        problems += [f"{error.where}: {problem}" for problem in error.problems]
    except ValueError as error:
        problems += _problems_of(error)


def _problems_of(error: ValueError) -> Iterator[str]:
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        raise error
    for detail in error.errors(include_url=False):
        message = detail["msg"].removeprefix("Value error, ")
        for line in message.splitlines():
            named = f"--{detail['loc'][0]} {detail['input']}: ".replace("_", "-") if detail["loc"] else ""
            yield named + line.replace("Input should be", "give a number") if named else line
