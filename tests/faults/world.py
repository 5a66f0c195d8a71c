"""The records that the trials work on: every one has words of its own, so that a byte search finds it anywhere."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tests import tiny

BUDGET = 2
MORE = 3
"""The budget after orders were added."""


def table() -> pd.DataFrame:
    """16 records; those from 8 on belong to four persons, two each."""
    rows = tiny.text_table(16)
    rows["id"] = [f"id{number:02d}w" for number in range(16)]
    rows["text"] = [f"{text} qz{number:02d}zq" for number, text in enumerate(rows["text"])]
    rows["person"] = [None if number < 8 else f"person{number % 4}w" for number in range(16)]
    return rows


def recipe(model: Path) -> dict[str, Any]:
    """12 stages in 2 shards; a stage trains in hundredths of a second."""
    return tiny.recipe(
        model,
        columns={"subject": "person"},
        sequences={"budget": BUDGET},
        text={"max_length": 24},
        training={"epochs": 1},
    )


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for deletion."""

    name: str
    records: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()

    @property
    def gone(self) -> frozenset[str]:
        """The ids that leave."""
        rows = table()
        return frozenset(rows[rows.id.isin(self.records) | rows.person.isin(self.subjects)].id)


ONE = Request(name="one", records=("id03w",))
SEVERAL = Request(name="several", records=("id05w", "id07w"), subjects=("person1w",))


def words_of(gone: Collection[str]) -> list[bytes]:
    """What no file may hold any more: ids, the words of the texts, and persons of whom nothing is left."""
    rows = table()
    left = set(rows[~rows.id.isin(gone)].person.dropna())
    lost = rows[rows.id.isin(gone)]
    persons = set(lost.person.dropna()) - left
    return [word.encode() for word in sorted({*lost.id, *lost.text.str.split().str[-1], *persons})]
