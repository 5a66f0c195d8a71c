"""The dictionary of encoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from s3t.models.encode import Encoder, ImageEncoder, TextEncoder, WordEncoder
from s3t.models.language import LanguageEncoder
from s3t.recipe import Recipe
from s3t.tasks import Kind

_ENCODERS: Mapping[Kind, Callable[[Path, Recipe], Encoder]] = {
    "text": lambda folder, recipe: TextEncoder(folder, recipe.text),
    "words": lambda folder, recipe: WordEncoder(folder, recipe.text),
    "language": lambda folder, recipe: LanguageEncoder(folder, recipe.language, roles=recipe.columns.named()),
    "image": lambda folder, recipe: ImageEncoder(folder, recipe.image),
}


def encoder_for(folder: Path, recipe: Recipe) -> Encoder:
    """The encoder of what a recipe's task takes."""
    return _ENCODERS[recipe.task.inputs.kind](folder, recipe)
