"""Words that messages are put together from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


def counted(count: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "record"), counted(1200, "record")
    ('1 record', '1200 records')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def numbers(values: Iterable[int]) -> str:
    """A sequence of numbers, such as a prefix.

    >>> numbers((0, 1, 2))
    '0 1 2'
    """
    return " ".join(map(str, values))


def duration(seconds: float) -> str:
    """A duration, in its two largest units.

    >>> duration(3.14), duration(125), duration(4200), duration(3600), duration(604800)
    ('3.1 s', '2 min 5 s', '1 h 10 min', '1 h', '7 d')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    parts, left = [], round(seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        number, left = divmod(left, size)
        parts += [f"{number} {unit}"] if number else []
    return " ".join(parts[:2])


def hours_in_words(hours: float) -> str:
    """A time of training.

    >>> hours_in_words(2.34), hours_in_words(0.05)
    ('about 2.3 hours', 'about 3 min')
    """
    return f"about {hours:.1f} hours" if hours >= 0.1 else f"about {duration(3600 * hours)}"


def reason(error: BaseException) -> str:
    """The first line of an error's message, or its kind if it has none.

    >>> reason(ValueError("no such")), reason(ValueError())
    ('no such', 'ValueError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def problem_lines(field: str, message: str) -> list[str]:
    """The problems in one of pydantic's errors, each with its field; a `ValueError` may hold several, one a line.

    >>> problem_lines("labels", "Value error, one is empty"), problem_lines("", "should be 1 or instance of A")
    (['labels: one is empty'], ['should be 1'])
    """
    lines = re.sub(r" or instance of \w+$", "", message.removeprefix("Value error, ")).splitlines()
    return [f"{field}: {line}" if field else line for line in lines]


def closest(name: str, names: Iterable[str]) -> str | None:
    """The name that is most like the one given; None where none is.

    >>> closest("Epoch", ["epochs", "seed"]), closest("x", ["epochs"])
    ('epochs', None)
    """
    by_folded = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), by_folded, n=1)
    return by_folded[close[0]] if close else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A question for the end of a message, or nothing where no name is like the one given.

    >>> did_you_mean("epoch", ["epochs", "seed"]), did_you_mean("x", ["epochs"])
    ('; did you mean epochs?', '')
    """
    close = closest(name, names)
    return "" if close is None else f"; did you mean {close}?"
