"""A base model and its encoder put together, and tried out before a run is made of them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from PIL import Image

from s3t.errors import RecipeError
from s3t.models.base import check_model, load_base
from s3t.models.blocks import BlockModel
from s3t.models.encode import Encoder, TextEncoder, encoder_for
from s3t.recipe import Recipe

# What libraries raise when a model does not fit: an architecture without a head for the task, another kind of input,
# a missing package.
_UNFIT = (ValueError, TypeError, KeyError, AttributeError, IndexError, RuntimeError, OSError, ImportError)


def assemble(folder: Path, recipe: Recipe, *, labels: int) -> tuple[BlockModel, Encoder]:
    """The model, bare, and what encodes its inputs.

    Raises:
        RecipeError: they cannot be loaded, or do not fit the recipe.
    """
    encoder = encoder_for(folder, recipe)
    base = load_base(folder, recipe, labels=labels)
    config: Any = base.model.config
    if isinstance(encoder, TextEncoder) and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = encoder.pad_token_id  # decoders find a text's end by it
    return BlockModel(base, recipe.adapter), encoder


def check_assembly(folder: Path, recipe: Recipe) -> None:
    """Whether the model can be trained by the recipe: layers, modules, encoder; then all blocks on, and two inputs.

    Raises:
        RecipeError: with every problem found.
    """
    problems: list[str] = []
    for check in (check_model, encoder_for):
        try:
            check(folder, recipe)
        except RecipeError as error:
            problems += [problem for problem in error.problems if problem not in problems]
        except _UNFIT as error:
            problems.append(_unfit(folder, recipe, error))
    if not problems:
        try:
            _try_out(folder, recipe)
        except RecipeError as error:
            problems += error.problems
        except _UNFIT as error:
            problems.append(_unfit(folder, recipe, error))
    if problems:
        raise RecipeError("the recipe", list(dict.fromkeys(problems)))


def _try_out(folder: Path, recipe: Recipe) -> None:
    """Draw the head, mount every block at its initial values, and pass two inputs of different length."""
    model, encoder = assemble(folder, recipe, labels=1 if recipe.task.is_regression else 2)
    model.reset_head(seed=0)
    batch = encoder.collate(encoder.encode(_two_inputs(recipe)))
    with model.mounted([]) as mount, torch.no_grad(), torch.random.fork_rng(devices=[]):
        for _ in range(recipe.partition.slices):
            mount.add_block()
        mount.base.model(**batch)


def _two_inputs(recipe: Recipe) -> pa.Table:
    if recipe.task.is_text:
        names = [role for role in ("text", "text_pair") if getattr(recipe.columns, role) is not None]
        return pa.table({name: ["one", "one two three"] for name in names})
    content = io.BytesIO()
    Image.new("RGB", (32, 32)).save(content, format="png")
    return pa.table({"image": pa.array([content.getvalue()] * 2, pa.binary())})


def _unfit(folder: Path, recipe: Recipe, error: Exception) -> str:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    return f"base_model: the model in {folder} cannot be used for {recipe.task.value}: {reason}; name another model"
