"""The way through the code of what is called: which rooms of s3t it enters, and where a call climbs.

A room is a folder of `src/s3t`, or a module beside them. Its floor is one above the highest room that it imports, so
a call from a room to one on a higher floor runs against the imports: a callback, or a protocol.
"""

from __future__ import annotations

import ast
import functools
import io
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any
from unittest import mock

import typer
from sqlalchemy import Engine, event

SOURCE = Path(__file__).parent.parent / "src"
TARGETS = {
    "s3t delete --record": {"functions": 200, "files": 35, "reads": 8, "writes": 5, "cursors": 60},
    "POST /v1/classify": {"functions": 120, "files": 30},
    "Run.train to the first step": {"functions": 120, "files": 30},
}
"""Of the plan: functions and files that a way enters, its transactions and SQL statements, at most."""


class Walk:
    """Records the calls between functions of a package while its context is entered."""

    def __init__(self, source: Path) -> None:
        self._root = str(source) + "/"
        self._floors = floors(source)
        self._calls: set[tuple[str, str, str, str]] = set()
        self._entered: set[tuple[str, str]] = set()
        self.asleep = False  # True: it records nothing for the moment, of no thread

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
            "functions": len(self._entered),
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
        if self.asleep or event != "call" or (callee := self._file(frame)) is None:
            return
        if not frame.f_code.co_name.startswith("<"):  # a comprehension, or a lambda
            self._entered.add((callee, frame.f_code.co_qualname))
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


class _FirstStep(Exception):  # noqa: N818
    """The training has come to its first step."""


def _until_first_step(event: object) -> None:
    """Progress that ends a training at its first step."""
    if type(event).__name__ == "WorkStep":
        raise _FirstStep


def ways() -> dict[str, dict[str, int]]:
    """What each way enters, of a run of two shards of three slices with a model of random weights."""
    import s3t  # here: `checkout_worker` takes `Walk` to other commits, which may lack some of this
    from s3t.cli.app import run as run_command
    from testing import tiny
    from testing.served import serving

    found = {}
    with tempfile.TemporaryDirectory(prefix="s3t-walk-") as folder:
        model = tiny.make_text_model(Path(folder) / "model")
        path = Path(folder) / "run"
        with s3t.Run.create(path, recipe=tiny.recipe(model), data=tiny.text_table()) as run:
            with _counted() as walk, suppress(_FirstStep):
                run.train(progress=_until_first_step)
            found["Run.train to the first step"] = walk.told()
            run.train()
        with _counted() as walk:
            walk.asleep = True
            with serving(path, open_scopes=("predict",)) as client:
                client.post("/v1/classify", json={"input": "w1 w2"}).raise_for_status()  # the first one imports
                walk.asleep = False
                client.post("/v1/classify", json={"input": "w1 w2"}).raise_for_status()
                walk.asleep = True
        found["POST /v1/classify"] = walk.told()
        with _counted() as walk, redirect_stdout(io.StringIO()), suppress(SystemExit):
            run_command(["delete", str(path), "--record", "r3"])
        found["s3t delete --record"] = walk.told()
    return found


class _Counted(Walk):
    """A walk that also counts transactions and SQL statements."""

    def __init__(self) -> None:
        super().__init__(SOURCE)
        self.seen: Counter[str] = Counter()

    def count(self, what: str) -> None:
        self.seen[what] += not self.asleep

    def told(self) -> dict[str, int]:
        """All counts."""
        counts = self.counts()
        return {name: counts[name] for name in ("functions", "files")} | self.seen


@contextmanager
def _counted() -> Iterator[_Counted]:
    """Counts what this thread, and those that it starts, enter and ask of the ledger."""
    from s3t.ledger import Ledger

    walk, begin = _Counted(), Ledger._transaction

    def transaction(ledger: Ledger, **options: Any) -> Any:
        walk.count("writes" if options["writing"] else "reads")
        return begin(ledger, **options)

    def statement(*_arguments: Any) -> None:
        walk.count("cursors")

    event.listen(Engine, "before_cursor_execute", statement)
    try:
        with mock.patch.object(Ledger, "_transaction", transaction), walk.recorded():
            yield walk
    finally:
        event.remove(Engine, "before_cursor_execute", statement)


def main(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Count what the ways of the plan enter, beside its targets."""
    found = {way: {"found": counts, "target": TARGETS[way]} for way, counts in ways().items()}
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for way, each in found.items():
        told = (
            f"{name} {count}" + (f" of {each['target'][name]}" if name in each["target"] else "")
            for name, count in each["found"].items()
        )
        print(f"{way}: {', '.join(told)}")


if __name__ == "__main__":
    typer.run(main)
