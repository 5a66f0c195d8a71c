"""How large the house is: lines, files, classes and grain of each room, beside the budgets of the plan.

A room is a folder of a package under `src`, or its modules outside any folder. All lines of `*.py` count.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

SOURCE = Path(__file__).parent.parent / "src"
BUDGETS = {"s3t": {"lines": 25_000, "files": 200}, "s3t_server": {"lines": 5_000}}
COLUMNS = ("lines", "files", "classes", "functions", "one statement", "docstring lines", "one importer")
Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


def house(source: Path) -> dict[str, Any]:
    """Of each package under `source`: its rooms' counts, their sums, and the class names that stand twice in it."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(source.rglob("*.py"))}
    importers = Counter(name for path, tree in trees.items() for name in _imported(_module(source, path), tree))
    packages: dict[str, Any] = {}
    for package in sorted({path.relative_to(source).parts[0] for path in trees}):
        rooms: dict[str, Counter[str]] = {}
        classes: Counter[str] = Counter()
        for path, tree in trees.items():
            parts = path.relative_to(source).parts
            if parts[0] != package:
                continue
            counts = _counts(path.read_text(), tree)
            counts["one importer"] = int(importers[_module(source, path)] == 1)
            room = parts[1] if len(parts) > 2 else "."
            rooms.setdefault(room, Counter()).update(counts)
            classes.update(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
        packages[package] = {
            "rooms": {room: {name: counts[name] for name in COLUMNS} for room, counts in sorted(rooms.items())},
            "sum": {name: sum(counts[name] for counts in rooms.values()) for name in COLUMNS},
            "budget": BUDGETS.get(package, {}),
            "class names used twice": sorted(name for name, times in classes.items() if times > 1),
        }
    return packages


def _counts(text: str, tree: ast.Module) -> Counter[str]:
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, Functions)]
    documented = [node for node in nodes if isinstance(node, (*Functions, ast.ClassDef, ast.Module))]
    docstrings = [node.body[0] for node in documented if ast.get_docstring(node, clean=False) is not None]
    return Counter(
        {
            "lines": len(text.splitlines()),
            "files": 1,
            "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
            "functions": len(functions),
            "one statement": sum(len(node.body) - (node.body[0] in docstrings) == 1 for node in functions),
            "docstring lines": sum((found.end_lineno or 0) - found.lineno + 1 for found in docstrings),
        }
    )


def _module(source: Path, path: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def _imported(module: str, tree: ast.Module) -> Iterator[str]:
    """The modules that one file names in its imports, each once; a name may be a module or what stands in one."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    yield from found - {module}


def main(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False) -> None:
    """Count the lines, files, classes and functions of each room, beside the budgets."""
    found = house(SOURCE)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for package, counts in found.items():
        table = Table("room", *COLUMNS, title=package)
        for room, row in {**counts["rooms"], "sum": counts["sum"], "budget": counts["budget"]}.items():
            table.add_row(room, *(f"{row.get(name, ''):,}" if name in row else "" for name in COLUMNS))
        Console().print(table)
        print("class names used twice:", ", ".join(counts["class names used twice"]) or "none")


if __name__ == "__main__":
    typer.run(main)
