"""What a process asked of the disk through Python, in order, and what of it a power cut could undo.

SQLite's own calls are not among them; `tests/faults` sees those, too, and tries out what a loss of power leaves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Call(NamedTuple):
    """One that succeeded."""

    what: str
    """Its name in `os`; an open is noted only if it made the file."""
    path: Path
    """Of a rename, the new one."""
    old: Path | None = None


@contextmanager
def disk_calls() -> Iterator[list[Call]]:
    """The calls made while within."""
    calls: list[Call] = []

    def noting(what: str) -> Any:
        call = getattr(os, what)

        def note(target: Any, *others: Any, **options: Any) -> Any:
            path = Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else Path(target)
            if (folder := options.get("dir_fd")) is not None:
                path = Path(f"/proc/self/fd/{folder}").readlink() / path
            if what == "open" and (path.exists() or not others or not others[0] & os.O_CREAT):
                return call(target, *others, **options)
            found = call(target, *others, **options)
            renamed = what in ("replace", "rename")
            calls.append(Call("rename", Path(others[0]), path) if renamed else Call(what, path))
            return found

        return note

    with pytest.MonkeyPatch.context() as patch:
        for what in ("open", "fsync", "write", "replace", "rename", "unlink", "mkdir"):
            patch.setattr(os, what, noting(what))
        yield calls


def lost_by_a_power_cut(calls: list[Call], *, tmp: str = "tmp") -> list[str]:
    """Names and contents that are not on the disk after some calls, and files that were renamed before they were.

    Args:
        calls: the calls.
        tmp: the folder of temporary files, whose names may come back.
    """
    problems: list[str] = []
    synced: set[Path] = set()
    names: set[Path] = set()
    made: set[Path] = set()
    for call in calls:
        if call.what == "open":
            made.add(call.path)
        elif call.what == "write":
            synced.discard(call.path)
            if call.path in made:  # what holds nothing, as a lock, may go
                made.remove(call.path)
                names.add(call.path)
        elif call.what == "fsync":
            synced.add(call.path)
            names = {name for name in names if name.parent != call.path}
        elif call.what == "rename" and call.old is not None:
            if not call.path.is_dir() and call.old not in synced:
                problems.append(f"{call.path.name} was renamed before its content was synchronised")
            names = {name for name in names if name != call.old} | {call.path}
        elif call.path.parent.name != tmp:
            names.add(call.path)
    written = {call.path for call in calls if call.what == "write"}
    problems += [f"the content of {path.name} was not synchronised" for path in sorted(written - synced)]
    return problems + [f"the name {name} is not durable" for name in sorted(names)]
