"""TOFU's records: 20 questions and answers on each of 200 made-up authors, and which authors are to be forgotten."""

from __future__ import annotations

import json
import lzma
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.alpaca import TEMPLATES
from experiments.tasks import MissingRecordsError, Task, task

SETS = ("forget01", "forget05", "forget10")
"""Sets of authors to be forgotten; each holds the one before."""
ROWS = 20
"""Of an author."""


@dataclass(frozen=True, kw_only=True)
class Records:
    """Records to train on, and those on which models are compared."""

    task: Task
    """With the columns id, author, instruction, input, output; an author is the recipe's subject."""
    forgotten: dict[str, tuple[str, ...]]
    """Authors of each set, in the order in which they are deleted: those of the smaller set come first."""
    variants: pd.DataFrame
    """By id, of the records to be forgotten: `paraphrased` answer and `perturbed` answers."""

    @property
    def gone(self) -> tuple[str, ...]:
        """All authors to be forgotten, in the order in which they are deleted."""
        return self.forgotten[SETS[-1]]

    def rows(self, name: str, *, most: int | None = None, seed: int = 0) -> pd.DataFrame:
        """Records of a set's authors, or of those that are in none.

        Args:
            name: of SETS, or `retain`.
            most: as many, drawn at random, in their order; None: all.
            seed: of the draw.
        """
        table = self.task.train
        retained = name == "retain"
        own = table[table["author"].isin(self.gone if retained else self.forgotten[name]) != retained]
        if most is None or most >= len(own):
            return own
        return own.iloc[np.sort(np.random.default_rng(seed).choice(len(own), size=most, replace=False))]

    def without_forgotten(self) -> Task:
        """The task without the records of all authors to be forgotten."""
        return replace(self.task, train=self.rows("retain"))


def prompts(rows: pd.DataFrame) -> list[str]:
    """The prompt of each record, as the recipe's templates write it."""
    return [TEMPLATES[1].format(instruction=question) for question in rows["instruction"]]


def records(*, authors: int | None, made_up: bool) -> Records:
    """The records.

    Args:
        authors: of all; those to be forgotten are among them, the others are drawn; None: all.
        made_up: a few made-up records in their place: that it works, no measurement.

    Raises:
        MissingRecordsError: the records are not in `S3T_DATA`, or the base model is missing.
    """
    table = _made_up() if made_up else _tofu(Path(os.environ.get("S3T_DATA", "../shared/data")) / "tofu")
    others = table.loc[~table[SETS[-1]], "author"].unique()
    gone = table.loc[table[SETS[-1]], "author"].nunique()
    if authors is not None:
        drawn = np.random.default_rng(0).permutation(others)[: max(0, authors - gone)]
        table = table[table[SETS[-1]] | table["author"].isin(drawn)]
    table = table.reset_index(drop=True)
    like = task("alpaca", records=1, tried=1, made_up=made_up)  # model, templates, lengths
    recipe = {**like.recipe, "columns": {**like.recipe["columns"], "subject": "author"}}
    columns = ["id", "author", "instruction", "input", "output"]
    return Records(
        task=replace(like, train=table[columns], test=table.iloc[:0][columns], recipe=recipe),
        forgotten={name: _in_order(table, SETS[: place + 1]) for place, name in enumerate(SETS)},
        variants=table.loc[table[SETS[-1]], ["id", "paraphrased", "perturbed"]].set_index("id"),
    )


def _in_order(table: pd.DataFrame, sets: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(author for name in sets for author in table.loc[table[name], "author"]))


def _tofu(folder: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(folder / "tofu_full.parquet")
        varied: list[dict[str, Any]] = json.loads(lzma.decompress((folder / "forget10.json.xz").read_bytes()))
    except FileNotFoundError as error:
        raise MissingRecordsError(
            f"tofu: there is no {error.filename}; S3T_DATA has to name the folder of the records (now "
            f"{folder.parent}). With --smoke made-up records do."
        ) from error
    table = table.rename(columns={"question": "instruction", "answer": "output"})
    table = table.assign(
        id=[f"q{row}" for row in range(len(table))], author=[f"a{row // ROWS}" for row in range(len(table))], input=""
    )
    own = table.loc[table[SETS[-1]], "id"]
    found = pd.DataFrame(
        {
            "paraphrased": [row["paraphrased_answer"] for row in varied],
            "perturbed": [row["perturbed_answer"] for row in varied],
        },
        index=own.to_numpy(),
    )
    return table.join(found, on="id")


def _made_up() -> pd.DataFrame:
    """Twelve authors of four questions; the last four are to be forgotten."""
    from testing.tiny import WORDS

    draw = random.Random(0)

    def words(least: int, most: int) -> str:
        return " ".join(draw.choice(WORDS) for _ in range(draw.randint(least, most)))

    return pd.DataFrame(
        {
            "id": f"q{4 * author + row}",
            "author": f"a{author}",
            "instruction": words(2, 5),
            "input": "",
            "output": words(2, 6),
            **{name: author >= 12 - count for name, count in zip(SETS, (1, 2, 4), strict=True)},
            "paraphrased": words(2, 6),
            "perturbed": [words(2, 6) for _ in range(3)],
        }
        for author in range(12)
        for row in range(4)
    )
