"""Stages by method: the block that each trains, and the stages that make up a model.

s3t trains one block after another, so a model is all stages of a prefix. The other methods have one block, the whole
adapter, which every stage takes over from the stage before and trains on: a model is its last stage alone.
"""

from __future__ import annotations

from s3t.recipe import Recipe
from s3t.stages.trie import Stage


def trained_block(recipe: Recipe, depth: int) -> int:
    """The block that a stage trains, 1 at the top of the model.

    Args:
        recipe: names the method.
        depth: of the stage.
    """
    if not recipe.method.blockwise:
        return 1
    return depth if recipe.method.direction == "top-down" else recipe.partition.slices + 1 - depth


def model_stages(recipe: Recipe, stage: Stage) -> tuple[Stage, ...]:
    """The stages whose artifacts together are the model of a prefix, the first one first."""
    return stage.chain if recipe.method.blockwise else (stage,)
