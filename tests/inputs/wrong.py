# ruff: noqa: E501 - tables of odd values
"""Wrong inputs, drawn by a generator: what was right, changed in one to three places."""

from __future__ import annotations

import copy
import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import yaml

CANARY = "kanarienvogel"
"""In every cell of wrong data that is a person's; no refusal may repeat it."""
WORDS = (
    "", " ", "-", "--", "x", "x" * 300, "x" * 10_000, "\ud800", "\udcff", "é", "\u0301", "\r\n", "..", "/", "~", "/dev/null",
)  # fmt: skip
NUMBERS = (0, -1, 1, 7, 10**9, 2**63, 10**18, 10**40, -(2**70), 0.5, -0.0, 1e308, 1e-320)
ODD: tuple[Any, ...] = (
    None, True, False, *NUMBERS, float("inf"), float("-inf"), float("nan"), *WORDS, [], {}, [[]], [None], [1, "a", [2]],
    {"a": {"b": 1}}, ["a"] * 50, list(range(2000)), {"": ""}, "\0", "2024-99-99", "!!binary x", {1: 2}, [[0.5, 0.5]] * 3,
)  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def recipe(rng: random.Random, right: dict[str, Any]) -> bytes:
    """A recipe file."""
    content = copy.deepcopy(right)
    for _ in range(rng.randint(1, 3)):
        _change(rng, content)
    try:
        text = yaml.safe_dump(content, allow_unicode=rng.random() < 0.5, sort_keys=False).encode("utf-8", "replace")
    except (yaml.YAMLError, ValueError):
        text = yaml.safe_dump(right).encode()
    if rng.random() < 0.4:
        text = _spoilt(rng, text)
    return text


def _change(rng: random.Random, content: dict[str, Any]) -> None:
    """Replace, remove or add one field, at any depth."""
    place = content
    while (inner := [value for value in place.values() if isinstance(value, dict)]) and rng.random() < 0.6:
        place = rng.choice(inner)
    names = [*place, *_FIELDS]
    name = rng.choice(names)
    if name in place and rng.random() < 0.15:
        del place[name]
    else:
        place[name] = copy.deepcopy(rng.choice(ODD)) if rng.random() < 0.95 else nested(60)


_FIELDS = ("shards", "slices", "prior", "horizon", "values", "selector", "seed", "validation", "group", "erase_within",
           "repair", "layers_per_slice", "target_modules", "epochs", "learning_rate", "max_length", "method", "ledger",
           "text_pair", "mean", "revision", "nonsense", "device", "threads", "aggregate", "budget")  # fmt: skip


def _spoilt(rng: random.Random, content: bytes) -> bytes:
    """Bytes, some of which are others, too many or too few."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        piece = rng.choice(
            (b"\0", b"\xff", b'"', b",", b"\n", b"\t", b"\xef\xbb\xbf", b"{", b"[", b"\r", rng.randbytes(8))
        )
        if rng.random() < 0.25:
            del changed[at:]
        elif rng.random() < 0.5:
            changed[at:at] = piece
        else:
            changed[at : at + len(piece)] = piece
    return bytes(changed)


def _rows(rng: random.Random, names: dict[str, str]) -> list[dict[str, Any]]:
    """Rows of records, some cells of which are odd; `names` gives each column its right value."""
    rows: list[dict[str, Any]] = [
        {name: value.format(number=number, canary=CANARY) for name, value in names.items()} for number in range(8)
    ]
    for _ in range(rng.randint(1, 3)):
        row = rng.choice(rows)
        name = rng.choice([*names, *names, "other", "\ud800"])
        if rng.random() < 0.15:
            row.pop(name, None)
        else:
            row[name] = rng.choice([*ODD, nested(2000), CANARY, b"bytes", "a"])
    return rows


def table(rng: random.Random, folder: Path, name: str, names: dict[str, str]) -> Path:
    """A file of records or requests in one of the three forms."""
    form = rng.choice(("csv", "jsonl", "parquet"))
    path = folder / f"{name}.{form}"
    rows = _rows(rng, names)
    if form == "csv":
        lines = [",".join(names), *(",".join(_cell(rng, row.get(key, "")) for key in names) for row in rows)]
        if rng.random() < 0.3:
            lines.insert(rng.randrange(len(lines) + 1), f"{CANARY}, unquoted,{CANARY},b,c,d,e,f")
        content = rng.choice(("\n", "\r\n", "\n\n")).join(lines).encode("utf-8", "surrogatepass")
    elif form == "jsonl":
        content = "\n".join(map(_line, rows)).encode()
        if rng.random() < 0.15:
            content += b'\n{"id": ' + b"7" * 5000 + b"}"
    else:
        content = _parquet(rng, rows, names)
    if rng.random() < 0.4:
        content = _spoilt(rng, content)
    if rng.random() < 0.05:
        content = content.decode("utf-8", "replace").encode("utf-16")
    path.write_bytes(content)
    return path


def _line(row: dict[str, Any]) -> str:
    try:
        return json.dumps(row, default=repr, skipkeys=True)
    except (RecursionError, ValueError):
        return "[" * 3000


def _cell(rng: random.Random, value: Any) -> str:
    try:
        text = str(value)
    except (RecursionError, ValueError):
        text = CANARY
    return '"' + text.replace('"', '""') + '"' if rng.random() < 0.7 else text


def _parquet(rng: random.Random, rows: list[dict[str, Any]], names: dict[str, str]) -> bytes:
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, RecursionError):
            columns[name] = pa.array([CANARY] * len(rows)) if rng.random() < 0.5 else pa.array([[1]] * len(rows))
    found = pa.table(columns)
    if rng.random() < 0.2:
        found = found.slice(0, 0)
    if rng.random() < 0.2:
        found = found.append_column(
            rng.choice([*names, "other"]), pa.array([{"a": CANARY}] * found.num_rows, pa.struct([("a", pa.string())]))
        )
    target = io.BytesIO()
    pa.parquet.write_table(found, target)
    return target.getvalue()


def words(rng: random.Random, right: list[str]) -> list[str]:
    """The words of a command, changed in one to three places; never `--yes`."""
    found = list(right)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(found)) if found else 0
        word = rng.choice(
            (*WORDS, *map(str, NUMBERS), "--json", "--no", "--record", "--seed", "nan", "inf", "1,2", "--help", "a\0b")
        )
        change = rng.random()
        if change < 0.2 and len(found) > 1:
            del found[at]
        elif change < 0.4:
            found.insert(at, word)
        else:
            found[at : at + 1] = [word]
    return found
