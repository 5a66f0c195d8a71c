"""Answers to a file: CSV, JSON lines or Parquet, by its suffix; whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from s3t.disk import storage_errors, write_durably, writing_problems
from s3t.errors import InputError

SUFFIXES = (".csv", ".jsonl", ".parquet")


def check_output(path: Path) -> None:
    """Check, before any work is done, that answers can be written to a path."""
    problems = writing_problems(path, SUFFIXES)
    if problems:
        raise InputError(str(path), problems)


def write_predictions(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one row an answer. In CSV and Parquet each label's probability is a column, `probability:LABEL`; in CSV a
    list is written as JSON.
    """
    suffix = path.suffix.lower()

    def write(part: Path) -> None:
        if suffix == ".jsonl":
            part.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
            return
        flat = [_flat(row) for row in rows]
        if suffix == ".csv":
            flat = [
                {name: json.dumps(value) if isinstance(value, list) else value for name, value in row.items()}
                for row in flat
            ]
        table = pa.Table.from_pylist(flat)
        if suffix == ".csv":
            pa.csv.write_csv(table, part)
        else:
            pa.parquet.write_table(table, part)

    with storage_errors(f"writing {path}"):
        write_durably(path, write, tmp=path.parent, mode=None)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    probabilities = row.get("probabilities", {})
    if isinstance(probabilities, list):
        return row
    plain = {name: value for name, value in row.items() if name != "probabilities"}
    return plain | {f"probability:{label}": value for label, value in probabilities.items()}
