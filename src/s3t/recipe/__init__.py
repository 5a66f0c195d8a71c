"""Recipes: what to train, on which columns, split how. Parsing and validation; no torch."""

from s3t.recipe.loading import load_recipe, recipe_from
from s3t.recipe.schema import (
    Adapter,
    BelowDepth,
    EngineSettings,
    Group,
    Image,
    Language,
    Prediction,
    Recipe,
    RepairAsNeeded,
    RepairPolicy,
    Shortcut,
    Text,
    TrainingSettings,
    repair_due,
    training_part,
    unresolved,
)
