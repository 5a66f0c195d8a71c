"""Check that data declared public holds no private record, before any trial."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from s3t.errors import DataError, InputError
from s3t.recipe import Recipe
from s3t.records.canonical import contents
from s3t.records.ingest import Records, ingest
from s3t.records.names import normal_form
from s3t.records.public import features_of
from s3t.run import Run


def refuse_private(public: Sequence[tuple[str, Records]], private: Sequence[str | Path], recipe: Recipe) -> None:
    """Compare records that are said to be public with private ones.

    Args:
        public: name of each public data set, and its records from `ingest`.
        private: files of records, compared by content; or folders of runs, which are asked by id for what they hold or
            have held.
    """
    problems: list[str] = []
    for where in map(Path, private):
        if where.is_dir():
            problems += _known_to(where, public)
        else:
            private_rows = set(contents(ingest(where, recipe).rows, features_of(public[0][1].rows)))
            for name, records in public:
                own = contents(records.rows, features_of(records.rows))
                shared = [row for row, content in enumerate(own) if content in private_rows]
                problems += _problem(name, records, shared, f"are in {where}")
    if problems:
        raise DataError("the public data", problems)


def _known_to(run: Path, public: Sequence[tuple[str, Records]]) -> list[str]:
    problems: list[str] = []
    with Run.open(run) as opened:
        for name, records in public:
            ids = records.rows["record"].to_pylist()
            private_ids = {normal_form(place.name) for place in opened.locate(records=ids) if place.state != "unknown"}
            shared = [row for row, record in enumerate(ids) if record in private_ids]
            problems += _problem(name, records, shared, f"are or were in the run {run}")
    return problems


def _problem(name: str, records: Records, rows: list[int], where: str) -> list[str]:
    if not rows:
        return []
    lines = records.positions.named(rows)
    return [f"{len(rows)} records of {name} {where} ({lines}); a choice by them would reveal them: take them out"]


def check_declared(private: Sequence[str | Path], *, declared: bool) -> None:
    """Checks that private records are named, or all data declared public."""
    if not private and not declared:
        raise InputError(
            "the public data",
            "nothing says that no private record is among them: name the private data or its runs, to compare "
            "with, or declare that there are none",
        )
