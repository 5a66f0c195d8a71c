"""Options of `sequences`, `simulate` and `plan`: sizes, a prior, a selector; all problems at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from s3t.cli.options import seed_problems
from s3t.errors import DataError, InputError, SettingError

if TYPE_CHECKING:
    from s3t.orders import Setting

MOST_NUMBERS = 20_000_000
"""Largest count of numbers in all orders together."""
MOST_SHARDS = 100_000
MOST_DELETIONS = 10_000
"""Largest number of deletions after which a score or a depth is computed; as in a recipe."""

SlicesOption = Annotated[int, Option(metavar="L", help="Slices in a shard.", show_default=False)]
PriorOption = Annotated[
    str | None,
    Option(
        metavar="P0,P1,...",
        help="L probabilities that a deletion in a shard falls on each slice; without, all slices are alike.",
    ),
]
SelectorOption = Annotated[str, Option(metavar="NAME", help="Selector of the orders; names in docs/recipe.md.")]
DeletionsOption = Annotated[int, Option(metavar="T", help="The t of the paper's score, which bms maximises.")]
SeedOption = Annotated[int, Option(metavar="S", help="Seed of random draws; the same seed, the same result.")]
PlotOption = Annotated[
    Path | None, Option(metavar="FILE", help="Draw it, into a .png, .svg or .pdf file. Needs the extra plots.")
]
StageSecondsOption = Annotated[
    str | None, Option(metavar="S1,S2,...", help="Measured seconds of a stage of each depth, 1 to L.")
]

# What `s3t.orders` has as defaults; importing it here would slow down every --help.
SELECTOR, DELETIONS, HORIZON = "survival", 8, "1,2,4,8"


def setting_of(
    problems: list[str],
    *,
    shards: int = 1,
    slices: int,
    budget: int,
    prior: str | None,
    selector: str,
    deletions: int,
    horizon: str = HORIZON,
    values: str | None = None,
    seed: int,
    plot: Path | None,
) -> Setting:
    """The setting of every shard's orders. Raises an InputError if there are problems, also earlier ones."""
    from s3t.drawing import check_picture
    from s3t.orders import SELECTORS, Setting, no_selector, selector_problem

    problems += [problem for problem in seed_problems(seed) if seed > 0]
    if deletions > MOST_DELETIONS:
        problems.append(f"--deletions {deletions}: at most {MOST_DELETIONS:,}")
    if not 1 <= shards <= MOST_SHARDS:
        problems.append(f"{shards} shards: a system has 1 to {MOST_SHARDS:,}")
    if selector not in SELECTORS:
        problems.append(no_selector(selector))
    numbers: dict[str, Any] = {}
    with noted(problems):
        numbers["horizon"] = tuple(map(_whole, numbers_in(horizon, where="--horizon")))
    for name, text in (("prior", prior), ("values", values)):
        with noted(problems):
            numbers[name] = None if text is None else tuple(numbers_in(text, where=f"--{name}"))
    setting = None
    with noted(problems):
        setting = Setting(slices=slices, budget=budget, deletions=deletions, seed=seed, **numbers)
        if budget * slices > MOST_NUMBERS:
            problems.append(
                f"{budget:,} orders of {slices:,} slices: at most {MOST_NUMBERS:,} numbers; lower the budget"
            )
        elif selector in SELECTORS:
            problems += filter(None, [selector_problem(selector, setting)])
    if plot is not None:
        with noted(problems):
            check_picture(plot)
    if problems or setting is None:
        raise InputError("the command", dict.fromkeys(problems))
    return setting


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
