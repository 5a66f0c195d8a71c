"""JSON that can be read in one way only. Python's reader takes the last of two equal keys, and NaN, and reads 1e999 as
infinite."""

from __future__ import annotations

import json
import math
from typing import Any


class JsonError(ValueError):
    """Text is not JSON; the message says what is wrong and quotes nothing of it."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise JsonError("gives a key of an object twice; keep one of the two")
    return found


def _no_number(_: str) -> Any:
    raise JsonError("holds NaN or Infinity, which are no JSON; write null or text")


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise JsonError("holds a number that is too large; write it as text")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_number, parse_float=_float)


def read_json(content: bytes | str, *, remedy: str = "") -> Any:
    """The value of a JSON text, in UTF-8 if it is bytes. `remedy` is for text that is no JSON at all.

    >>> read_json(b'{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> read_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    s3t.json_text.JsonError: gives a key of an object twice; keep one of the two
    """
    then = f"; {remedy}" if remedy else ""
    try:
        return _DECODER.decode(content if isinstance(content, str) else content.decode("utf-8-sig"))
    except JsonError:
        raise
    except UnicodeDecodeError:
        problem = "is not UTF-8 text; save it as UTF-8"
    except json.JSONDecodeError as error:
        problem = f"is not JSON, from character {error.pos + 1} on{then}"
    except RecursionError:
        problem = f"is not JSON: it is nested too deeply{then}"
    except ValueError:
        problem = "holds a number of too many digits; write it as text"
    raise JsonError(problem)  # here, where no error is handled that quotes what it could not read
