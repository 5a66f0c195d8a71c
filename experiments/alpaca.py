"""Alpaca's records in two halves: a base is pre-trained on the public one, records of the private one are forgotten.

Where a record lies is decided by the SHA-256 of its instruction, of which letters and digits alone count. So no other
row and no order matters, and records that differ in input, output, case or punctuation alone lie together.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
from pathlib import Path

import pandas as pd

SHARES = {"public": 48, "public_held_out": 2, "private": 45, "private_held_out": 5}
"""Parts, in hundredths of all records."""
TEMPLATES = (
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n",
    "### Instruction:\n{instruction}\n\n### Response:\n",
)
"""Prompts with and without an input, without the sentence before them that Alpaca has: for a small model it is long."""
COLUMNS = {"prompt": list(TEMPLATES), "completion": "output"}
"""Of recipes."""


def part_of(instruction: str) -> str:
    """The part in which a record lies.

    >>> part_of("Name a fruit."), part_of("name a  FRUIT")
    ('public', 'public')
    """
    plain = "".join(char for char in instruction.casefold() if char.isalnum())
    number = int.from_bytes(hashlib.sha256(plain.encode()).digest()[:8], "big") % 100
    for part, share in SHARES.items():
        if number < share:
            return part
        number -= share
    raise AssertionError("the shares add up to 100")


def parts(data: Path) -> dict[str, pd.DataFrame]:
    """The records of each part, with the columns instruction, input and output; those without output are left out.

    Args:
        data: folder that `S3T_DATA` names.
    """
    return divided(pd.DataFrame(json.loads(lzma.decompress((data / "alpaca" / "alpaca_data.json.xz").read_bytes()))))


def divided(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The same of any records."""
    table = table[table["output"].str.strip() != ""]
    part = table["instruction"].map(part_of)
    return {name: table[part == name].reset_index(drop=True) for name in SHARES}


def base_folder() -> Path:
    """Where `experiments.small_llama` keeps its model: in the folder that `S3T_EXPERIMENTS` names, or .experiments."""
    return Path(os.environ.get("S3T_EXPERIMENTS", ".experiments")).resolve() / "small-llama" / "model"
