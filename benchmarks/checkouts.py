"""Size of the code and cost of its commands, of two checkouts of s3t side by side.

    OMP_NUM_THREADS=1 python -m benchmarks.checkouts OLD_CHECKOUT NEW_CHECKOUT [--json] [--rounds N]

Counts lines, callbacks and branches in `src`; for a warm `predict` and for a `delete` of one record, counts system
calls (where strace is installed) and ledger transactions, and times both checkouts in turn, as well as `s3t status` as
a whole process. Three ways through the code are recorded (`walk.py`); where they climb is in the JSON. The model is
tiny: what is measured is everything but the model.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import yaml

from benchmarks.machine import describe
from testing import tiny

WORKER = Path(__file__).with_name("checkout_worker.py")
RECORDS, INPUTS = 2_000, 8
MARK = "/s3t-benchmark-mark"
"""A path that is looked at before and after what is counted: it shows in a trace of system calls."""
WALKS = {
    "s3t delete": "walk of a record, command line to erasure",
    "predict": "walk of a batch, predict to logits",
    "repair": "walk of a slice, repair to artifact",
}
"""Actions whose way through the code is recorded, and their names."""
ASKED = {
    "task": {
        *(f"task.is_{kind}" for kind in ("text", "image", "pair", "regression", "classification")),
        *(
            "over_vocabulary",
            "has_labels",
            "one_label",
            "softmax_over_labels",
            "has_threshold",
            "ordered",
            "has_tokens",
            "target.verbs",
        ),
        *("inputs.in_words", "inputs.kind", "inputs.section", "target.column", "task.name", "task.model"),
    },
    "method": {
        *(
            "blockwise",
            "has_prototypes",
            "of_slices",
            "trains",
            "has_adapters",
            "one_block",
            "one_order",
            "one_shard",
            "one_slice",
            "top_down",
            "trainable",
        ),
        *("method.name", "method.direction", "method.replay", "options.direction", "options.replay", "blocks.width"),
    },
    "kind of a stage": {"stage.kind", "link.kind", "member.kind"},
}
"""Names that tell one task, method or kind of stage from another: of attributes and variables; with a dot, of an
attribute of that object alone. Those of both checkouts."""
WHOLE = {"task", "method"}
"""Objects that are compared as a whole."""
HOMES = {"task": "tasks", "method": "core", "kind of a stage": "core"}
OWN = {"Inputs", "Target", "Task", "Method", "Options", "Stage"}
"""Rooms and classes that may look at themselves."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=30, help="timings of each kind and checkout")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    checkouts = {"old": options.old.resolve(), "new": options.new.resolve()}
    result = {name: {"code": code_of(path / "src" / "s3t")} for name, path in checkouts.items()}
    with tempfile.TemporaryDirectory() as folder:
        costs = costs_of(checkouts, Path(folder), rounds=options.rounds)
    for name in checkouts:
        result[name]["cost"] = costs[name]
    if options.json:
        print(json.dumps(result | {"rounds": options.rounds, "records": RECORDS, "machine": describe()}))
        return
    for part in ("code", "cost"):
        for row in result["old"][part]:
            old, new = (result[name][part].get(row, "") for name in checkouts)
            if not isinstance(old, list):
                print(f"{row:66} {_shown(old):>12} {_shown(new):>12}")


def code_of(source: Path) -> dict[str, int]:
    """Counts over all Python files below a folder."""
    found: Counter[str] = Counter()
    longest = 0
    for path in sorted(source.rglob("*.py")):
        text = path.read_text()
        found["files"] += 1
        found["lines"] += text.count("\n")
        tree = ast.parse(text)
        branches = branches_in(tree)
        found.update({subject: count for subject, count in branches.items() if path.parent.name != HOMES[subject]})
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                longest = max(longest, (node.end_lineno or 0) - node.lineno + 1)
                arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                found["callback parameters"] += sum(_is_callable(argument.annotation) for argument in arguments)
            elif isinstance(node, ast.ClassDef):
                found["callback fields"] += sum(
                    _is_callable(field.annotation) for field in node.body if isinstance(field, ast.AnnAssign)
                )
    names = ("lines", "files", "callback parameters", "callback fields")
    return (
        {name: found[name] for name in names}
        | {
            "longest function, lines": longest,
        }
        | {f"branches on the {subject}": found[subject] for subject in ASKED}
    )


def branches_in(tree: ast.AST) -> Counter[str]:
    """Conditions that ask a task, a method or a stage which one it is, by what they ask.

    A condition within another is a part of it. The name of a function that is called asks nothing.

    >>> branches_in(ast.parse("size = 1 if recipe.task.is_text and not is_text(column) else task.window"))
    Counter({'task': 1})
    """
    found: Counter[str] = Counter()
    deciding = _deciding_in(tree)
    for child in ast.iter_child_nodes(tree):
        if child in deciding:
            found.update(_asked_in(child))
        elif not (isinstance(child, ast.ClassDef) and child.name in OWN):
            found.update(branches_in(child))
    return found


def _deciding_in(node: ast.AST) -> list[ast.expr]:
    """Children of a node on which it depends what happens next, or which are true or false themselves."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        tests = [node.test]
    elif isinstance(node, ast.comprehension):
        tests = node.ifs
    else:
        tests = [node.subject] if isinstance(node, ast.Match) else []
    logical = [
        child
        for child in ast.iter_child_nodes(node)
        if isinstance(child, ast.BoolOp | ast.Compare)
        or (isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not))
    ]
    return tests + logical


def _asked_in(condition: ast.AST) -> set[str]:
    nodes = list(ast.walk(condition))
    functions = [node.func for node in nodes if isinstance(node, ast.Call)]
    compared = [
        side
        for node in nodes
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot)
        for side in (node.left, *node.comparators)
    ]
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and node not in functions:
            *above, name = (part.removeprefix("_") for part in ast.unparse(node).split("."))
            names |= {name, *(f"{owner}.{name}" for owner in above[-1:])} - (WHOLE if node not in compared else set())
    return {what for what, asked in ASKED.items() if names & {*asked, *(WHOLE & {what})}}


def _is_callable(annotation: ast.expr | None) -> bool:
    return annotation is not None and "Callable" in ast.unparse(annotation)


def costs_of(checkouts: Mapping[str, Path], folder: Path, *, rounds: int) -> dict[str, dict[str, Any]]:
    """Calls and seconds by checkout; each works on a run of its own, made from the same files."""
    _write_data(folder)
    costs: dict[str, dict[str, Any]] = {name: {} for name in checkouts}
    for name, path in checkouts.items():
        with _Worker(path, folder, name, traced=True) as worker:
            for action in ("predict", "delete"):
                reply = worker.ask(action)
                costs[name][f"{action}: ledger transactions"] = reply["transactions"]
            calls = worker.calls()
            for action, name_of_way in WALKS.items():
                worker.ask(action)  # once before, so that all is imported
                worker.ask("delete")
                costs[name] |= {f"{name_of_way}: {row}": count for row, count in worker.ask(f"walk {action}").items()}
        for action, counted in zip(("predict", "delete"), calls, strict=False):
            costs[name][f"{action}: system calls"] = sum(counted.values())
            costs[name][f"{action}: of them on files"] = sum(
                count for call, count in counted.items() if _FILE_CALL.fullmatch(call)
            )
    seconds: dict[tuple[str, str], list[float]] = {}
    with _Worker(checkouts["old"], folder, "old-timed") as old, _Worker(checkouts["new"], folder, "new-timed") as new:
        workers = {"old": old, "new": new}
        for number in range(rounds):
            for name in ("old", "new") if number % 2 else ("new", "old"):
                for action in ("predict", "delete"):
                    seconds.setdefault((name, action), []).append(workers[name].ask(action)["seconds"])
    for number in range(max(3, rounds // 3)):
        for name in ("old", "new") if number % 2 else ("new", "old"):
            began = time.perf_counter()
            command = [sys.executable, "-P", "-m", "s3t", "status", str(folder / f"{name}-timed" / "run"), "--json"]
            subprocess.run(command, env=_environment(checkouts[name], folder), check=True, stdout=subprocess.DEVNULL)
            seconds.setdefault((name, "status, whole process"), []).append(time.perf_counter() - began)
    for (name, action), times in seconds.items():
        costs[name][f"{action}: median ms"] = round(1000 * statistics.median(times), 2)
        costs[name][f"{action}: least ms"] = round(1000 * min(times), 2)
    return costs


_FILE_CALL = re.compile(
    r"open(at)?|.*stat.*|f?access.*|getdents64|rename.*|unlink.*|mkdir.*|p?read.*|p?write.*|f(data)?sync|ftruncate|"
    r"flock|fcntl"
)


class _Worker:
    """A process with one checkout's code and a trained run, which does what it is asked."""

    def __init__(self, checkout: Path, folder: Path, name: str, *, traced: bool = False) -> None:
        self._folder = folder / name
        self._folder.mkdir()
        self._trace = self._folder / "trace" if traced and shutil.which("strace") else None
        command = [sys.executable, "-P", str(WORKER), str(folder), str(self._folder), MARK]
        if self._trace is not None:
            command = ["strace", "-f", "-o", str(self._trace), *command]
        self._process = subprocess.Popen(
            command, env=_environment(checkout, folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def ask(self, action: str) -> dict[str, Any]:
        """The reply to one action."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(action, file=self._process.stdin, flush=True)
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        return reply

    def calls(self) -> list[Counter[str]]:
        """For each action so far, how often each system call was made; empty without strace."""
        if self._trace is None:
            return []
        return list(_between_marks(self._trace.read_text(errors="replace").splitlines()))


def _between_marks(lines: list[str]) -> Iterator[Counter[str]]:
    counted: Counter[str] | None = None
    for line in lines:
        if MARK in line and re.match(r"\d+\s+\w*stat\w*\(", line):  # and no list of arguments
            if counted is not None:
                yield counted
            counted = Counter() if counted is None else None
        elif counted is not None and (call := re.match(r"\d+\s+(\w+)\(", line)):
            counted[call[1]] += 1


def _environment(checkout: Path, folder: Path) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": f"{checkout / 'src'}:{Path(__file__).parents[1]}",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "S3T_STATE": str(folder / "state"),
    }


def _write_data(folder: Path) -> None:
    """Records, inputs and a recipe: five shards of four slices, a model of four small layers."""
    table = pd.DataFrame(
        {
            "id": [f"r{number}" for number in range(RECORDS)],
            "text": [f"w{number % 40} w{number % 17}" for number in range(RECORDS)],
            "label": ["abc"[number % 3] for number in range(RECORDS)],
        }
    )
    pa.parquet.write_table(pa.Table.from_pandas(table), folder / "data.parquet")
    pa.parquet.write_table(pa.Table.from_pandas(table.head(INPUTS)), folder / "inputs.parquet")
    recipe = tiny.recipe(
        tiny.make_text_model(folder / "model"),
        partition={"shards": 5, "slices": 3},
        sequences={"budget": 3},
        training={"epochs": 1, "batch_size": 64},
    )
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))


def _shown(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()
