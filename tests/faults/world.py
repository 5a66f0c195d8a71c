"""The records that the trials work on: every one has words of its own, so that a byte search finds it anywhere.

A world is a folder: the run is in `run`, the memory of its deletions (S3T_STATE) in `state`. Both are watched.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd

import s3t
from s3t.core import Secret
from s3t.deletion import acceptance, protocol
from testing import tiny

BUDGET = 2
MORE = 3
"""The budget after orders were added."""
LATER = 3600.0
"""Seconds for which a record may wait to be erased, where it may wait: longer than any trial takes."""


def table() -> pd.DataFrame:
    """16 records; those from 8 on belong to four persons, two each."""
    rows = tiny.text_table(16)
    rows["id"] = [f"id{number:02d}w" for number in range(16)]
    rows["text"] = [f"{text} qz{number:02d}zq" for number, text in enumerate(rows["text"])]
    rows["person"] = [None if number < 8 else f"person{number % 4}w" for number in range(16)]
    return rows


def next_table() -> pd.DataFrame:
    """The table a day later: id03w is gone, the text of id05w has changed, id16w is new."""
    rows = table()
    rows.loc[5, "text"] = "w5 qz55zq"
    new = {"id": "id16w", "text": "w1 w2 qz16zq", "label": rows.label[0], "person": None}
    return pd.concat([rows.drop(index=3), pd.DataFrame([new])], ignore_index=True)


OLD_WORDS, NEW_WORDS = (b"id03w", b"qz03zq", b"qz05zq"), (b"id16w", b"qz16zq", b"qz55zq")
"""What is of the first table alone, and of the second."""


def recipe(model: Path, **changes: Any) -> dict[str, Any]:
    """12 stages in 2 shards; a stage trains in hundredths of a second."""
    return tiny.recipe(
        model,
        columns={"subject": "person"},
        sequences={"budget": BUDGET},
        text={"max_length": 24},
        training={"epochs": 1} | tiny.PLAIN,
        **changes,
    )


def enter(world: Path) -> None:
    """From here on this process remembers deletions in a world."""
    os.environ["S3T_STATE"] = str(world / "state")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for deletion."""

    name: str
    records: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    key: str | None = None
    batch: int = protocol.BATCH_NAMES
    """Names that are accepted at a time."""

    def ask(self, run: s3t.Run, *, with_key: bool = True) -> s3t.Deletion:
        """Make the request."""
        with mock.patch.object(protocol, "BATCH_NAMES", self.batch):
            return run.delete(records=self.records, subjects=self.subjects, key=self.key if with_key else None)

    @property
    def gone(self) -> frozenset[str]:
        """The ids that leave."""
        return _owned(self.records, self.subjects)

    @property
    def steps(self) -> tuple[frozenset[str], ...]:
        """The ids that have left after each batch."""
        asked = acceptance.Request.of(
            Secret(salt=tiny.SALT), records=self.records, subjects=self.subjects, key=self.key
        )
        left: list[frozenset[str]] = [frozenset()]
        for batch in asked.batches(self.batch):
            records = [asked.names[token] for token in batch.records]
            left.append(left[-1] | _owned(records, [asked.names[token] for token in batch.subjects]))
        return tuple(left[1:])


def _owned(records: Collection[str], subjects: Collection[str]) -> frozenset[str]:
    rows = table()
    return frozenset(rows[rows.id.isin(records) | rows.person.isin(subjects)].id)


ONE = Request(name="one", records=("id03w",))
SEVERAL = Request(name="several", records=("id05w", "id07w"), subjects=("person1w",))
KEYED = Request(
    name="keyed", records=("id03w", "id05w", "id07w"), subjects=("person1w", "person2w"), key="ticket 1", batch=2
)


def words_of(gone: Collection[str]) -> list[bytes]:
    """What no file may hold any more: ids, the words of the texts, and persons of whom nothing is left."""
    rows = table()
    left = set(rows[~rows.id.isin(gone)].person.dropna())
    lost = rows[rows.id.isin(gone)]
    persons = set(lost.person.dropna()) - left
    return [word.encode() for word in sorted({*lost.id, *lost.text.str.split().str[-1], *persons})]
