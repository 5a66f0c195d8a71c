"""How many inputs are encoded, and answered, at a time."""

from __future__ import annotations

from s3t.recipe import Recipe

TEXT_BATCHES = 64
"""Batches of a window of texts, which are sorted by length within it. Images are all of one size: one batch."""


def window_batches(recipe: Recipe) -> int:
    """Batches of a window."""
    return TEXT_BATCHES if recipe.task.is_text else 1


def window_size(recipe: Recipe) -> int:
    """Inputs of a window: a stream that is cut here has the batches that it has as a whole."""
    return window_batches(recipe) * recipe.prediction.batch_size
