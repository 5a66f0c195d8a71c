"""Exports as other programs load them, and what they answer."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from peft import PeftModel
from sentence_transformers import SentenceTransformer

import s3t
from s3t.models.encoders import encoder_for
from s3t.records.ingest import ingest_inputs

TOLERANCE = 1e-5
SMALL: dict[str, Any] = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 1}, "training": {"epochs": 1}}
"""Changes of a recipe: two stages, of which one is exported."""


def described(folder: Path) -> dict[str, Any]:
    """What s3t says of an export, beside it."""
    document: dict[str, Any] = json.loads((folder / "s3t.json").read_text())
    return document


@contextmanager
def quietly() -> Iterator[None]:
    """Without transformers' bar and report of a new head, and without its warning of a name that PEFT reads."""
    transformers.utils.logging.disable_progress_bar()
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)


def load(folder: Path) -> Any:
    """A model by PEFT's loading of an adapter, transformers' of a merged model, or sentence-transformers' of either."""
    said = described(folder)
    auto = getattr(transformers, said["auto_class"])
    with quietly():
        if said["auto_class"] == "AutoModel":
            whole = SentenceTransformer(str(folder), device="cpu", local_files_only=True).eval()
            return lambda **batch: SimpleNamespace(logits=whole(batch)["sentence_embedding"])
        if said["merged"]:
            return auto.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
        head = {"num_labels": said["outputs"], "pad_token_id": said["pad_token_id"], "ignore_mismatched_sizes": True}
        given = {name: value for name, value in head.items() if value is not None and said["outputs"] is not None}
        return PeftModel.from_pretrained(auto.from_pretrained(said["base_model"], **given), folder).eval()


def answers(folder: Path, run: s3t.Run, inputs: Any) -> NDArray[Any]:
    """Logits of an export, N x C; inputs are encoded one by one, as s3t encodes them."""
    recipe = run.recipe
    encoder = encoder_for(Path(recipe.base_model), recipe)
    model, rows = load(folder), []
    for record in encoder.encode(ingest_inputs(inputs, recipe).features):
        batch = encoder.collate([record])
        answered = batch.pop("answered", None)
        with torch.no_grad():
            logits = model(**batch).logits[0]
        rows.append(logits[answered[0]] if answered is not None else logits[None])
    return torch.cat(rows).numpy()


def assert_equal_logits(folder: Path, run: s3t.Run, inputs: Any) -> None:
    """An export answers as the member that it was made of, or as the mean of several."""
    said = described(folder)
    models = [(said["shard"], said["prefix"]), *said["merged_with"]]
    members = [(shard, tuple(prefix)) for shard, prefix in models]
    expected = run.predict(inputs, prefixes=members).logits[0]
    np.testing.assert_allclose(answers(folder, run, inputs), expected, atol=TOLERANCE, rtol=TOLERANCE)
