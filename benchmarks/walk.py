"""The way through the code of what is called: which rooms of s3t it enters, and where a call climbs.

A room is a folder of `src/s3t`, or a module beside them. Its floor is one above the highest room that it imports, so
a call from a room to one on a higher floor runs against the imports: a callback, or a protocol.
"""

from __future__ import annotations

import ast
import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any


class Walk:
    """Records the calls between functions of a package while its context is entered."""

    def __init__(self, source: Path) -> None:
        self._root = str(source) + "/"
        self._floors = floors(source)
        self._calls: set[tuple[str, str, str, str]] = set()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Records the calls of this thread, and of threads that start meanwhile."""
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def counts(self) -> dict[str, int]:
        """Rooms and files entered, distinct calls from room to room, and those of them that climb."""
        between = {call for call in self._calls if _room(call[0]) != _room(call[2])}
        return {
            "rooms": len({_room(call[2]) for call in self._calls}),
            "files": len({call[2] for call in self._calls}),
            "calls between rooms": len(between),
            "climbs": len(self.climbs()),
        }

    def climbs(self) -> list[str]:
        """The calls that run to a higher floor, as `caller -> callee`."""
        return sorted(
            f"{caller}:{name} -> {callee}:{called}"
            for caller, name, callee, called in self._calls
            if self._floors.get(_room(callee), 0) > self._floors.get(_room(caller), 0)
        )

    def _on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or (callee := self._file(frame)) is None:
            return
        caller = frame.f_back
        while caller is not None and self._file(caller) is None:  # a library may stand between the two
            caller = caller.f_back
        if caller is not None:
            place = str(self._file(caller)), caller.f_code.co_qualname
            self._calls.add((*place, callee, frame.f_code.co_qualname))

    def _file(self, frame: FrameType) -> str | None:
        """The file of a frame below the source folder; None for a library's, and for a module's own body."""
        name = frame.f_code.co_filename
        if not name.startswith(self._root) or frame.f_code.co_name == "<module>":
            return None
        return name.removeprefix(self._root)


def floors(source: Path) -> dict[str, int]:
    """The floor of each room, by its imports; the ground is 0. Imports for type checkers alone do not count."""
    imports: dict[str, set[str]] = {}
    for path in source.rglob("*.py"):
        room = _room(str(path.relative_to(source)))
        named = set(_imported(ast.parse(path.read_text()), source.name))
        imports.setdefault(room, set()).update(named - {room})

    @functools.cache
    def floor(room: str) -> int:
        return 1 + max(map(floor, imports.get(room, ())), default=-1)

    return {room: floor(room) for room in imports if room != "__init__"}


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{package}."):
        yield node.module.split(".")[1]
    for child in ast.iter_child_nodes(node):
        yield from _imported(child, package)


def _room(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")
