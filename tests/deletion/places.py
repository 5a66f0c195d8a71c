"""Every place that can hold a record's bytes or influence: the table of docs/guarantees.md, in the order of erasure.

A test watches a whole run and fails on a file that no row names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "guarantees.md"


@dataclass(frozen=True, kw_only=True)
class StoragePlace:
    """A kind of file, or another place where bytes lie."""

    folder: Literal["run", "state", "elsewhere"]
    """The run folder, the state folder (`witness.py`), or neither."""
    pattern: str
    """Shell pattern of paths relative to that folder; "" elsewhere."""
    where: str
    """Description for readers."""
    holds: str
    """Parts of a record that can be in it."""
    erased: str | None
    """The way in which they leave it when the record is deleted; None if there is nothing to erase."""

    @property
    def name(self) -> str:
        return self.pattern or self.where


def _places() -> Iterator[StoragePlace]:
    text = DOCUMENT.read_text().partition("\n## Where it can be: the places\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", text, flags=re.MULTILINE)[1:]
    for where, holds, erased in rows:
        file = re.match(r"`(.+?)`", where)
        yield StoragePlace(
            folder="elsewhere" if file is None else "state" if "S3T_STATE" in where else "run",
            pattern="" if file is None else file[1],
            where=where.replace("`", ""),
            holds=holds.replace("`", ""),
            erased=None if erased == "not at all" else erased.replace("`", ""),
        )
    (nothing,) = re.findall(r"^(.*) hold nothing of a record\.", text, flags=re.MULTILINE)
    for file in re.findall(r"`(.+?)`", nothing):
        yield StoragePlace(folder="run", pattern=file, where=file, holds="nothing", erased=None)


PLACES = tuple(_places())
