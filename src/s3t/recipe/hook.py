"""The command that withdraws exports, as a recipe declares it."""

from __future__ import annotations

import re
from collections.abc import Sequence

PLACEHOLDERS = ("name", "path", "host")


def hook_problem(arguments: Sequence[str]) -> str | None:
    """The reason to refuse a command; None where it is one.

    >>> hook_problem(["/srv/unload", "{name}"]), hook_problem(["unload {nam}"])
    (None, 'there is no {nam}: use {name}, {path} or {host}')
    """
    if not arguments or not arguments[0].strip():
        return "a command begins with a program; name one, or take the field out"
    if re.search(r"\{\w+\}", arguments[0]) and not _strange(arguments[:1]):
        return "the program may not depend on the export; put {name}, {path} or {host} into its arguments"
    if strange := _strange(arguments):
        return f"there is no {strange[0]}: use {{name}}, {{path}} or {{host}}"
    if any("\0" in argument for argument in arguments):
        return "an argument holds a null byte; take it out"
    if not any("{name}" in argument or "{path}" in argument for argument in arguments[1:]):
        return "no argument holds {name} or {path}, so the command could not tell which export to unload"
    return None


def _strange(arguments: Sequence[str]) -> list[str]:
    found = [name for argument in arguments for name in re.findall(r"\{(\w+)\}", argument)]
    return [f"{{{name}}}" for name in found if name not in PLACEHOLDERS]
