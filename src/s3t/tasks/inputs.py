"""Kinds of inputs to a model."""

from __future__ import annotations

from s3t.tasks.task import Inputs

TEXT = Inputs(kind="text", roles=("text", "text_pair"), section="text", has_tokens=True, window_batches=64)
"""A text, or a pair of texts."""

WORDS = Inputs(kind="words", roles=("text",), section="text", has_tokens=True, window_batches=64)
"""A text that is cut into words, each of which is answered."""

IMAGE = Inputs(kind="image", roles=("image",), section="image", has_tokens=False, window_batches=1)
"""An image. All are of one size, and decoded ones are large: one batch at a time."""
