"""Requests: the names of records and subjects, as text that the run can look up."""

from __future__ import annotations

from collections.abc import Sequence

from s3t.errors import InputError
from s3t.records.names import normal_form, space_problem, text_of

_SHOWN = 10


def requested(field: str, names: Sequence[str | int]) -> list[str]:
    """Names in a request as the run has them, each once."""
    if isinstance(names, str | bytes):
        raise InputError(field, "is one string, which would be taken letter by letter; put it into a list")
    names_seen: dict[str, None] = {}
    problems: list[str] = []
    for number, given in enumerate(names, start=1):
        name, problem = _name(given)
        if problem is not None:
            problems.append(f"name {number} {problem}" if len(names) > 1 else f"the name {problem}")
        elif name is not None:
            names_seen[name] = None
    if problems:
        more = [f"and {len(problems) - _SHOWN} more names"] if len(problems) > _SHOWN else []
        raise InputError(field, [*problems[:_SHOWN], *more])
    return list(names_seen)


def requested_names(records: Sequence[str | int], subjects: Sequence[str | int]) -> dict[str, list[str]]:
    """Ids and subjects of a request, as `requested` has them.

    Raises:
        InputError: as `requested`; or nothing is named, for an empty list is a mistake of the program that made it.
    """
    names = {"records": requested("records", records), "subjects": requested("subjects", subjects)}
    if not any(names.values()):
        raise InputError("the request", "names nothing; give at least one of records or subjects")
    return names


def _name(given: object) -> tuple[str | None, str | None]:
    """A name, or what is wrong with it."""
    try:
        name = text_of(given)
    except ValueError as error:
        return None, str(error)
    if name is None:
        return None, "is empty; leave it out"
    return normal_form(name), space_problem(name)
