"""Recipes: what to train, on which columns, split how. Parsing and validation; no torch."""

from s3t.recipe.group import Group
from s3t.recipe.loading import load_recipe, recipe_from
from s3t.recipe.parts import Adapter, Columns, Deletion, Image, Partition, Prediction, Sequences, Text, Training
from s3t.recipe.schema import Recipe, Task

__all__ = [
    "Adapter",
    "Columns",
    "Deletion",
    "Group",
    "Image",
    "Partition",
    "Prediction",
    "Recipe",
    "Sequences",
    "Task",
    "Text",
    "Training",
    "load_recipe",
    "recipe_from",
]
