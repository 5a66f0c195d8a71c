"""Stages: which there are, what they are called, and which seed they have. Pure."""

from s3t.stages.key import KeyInputs, stage_key, stage_seed, training_part, unresolved
from s3t.stages.trie import Kind, Stage, by_kind, model_stages, prototypes_of, stages_of

__all__ = [
    "KeyInputs",
    "Kind",
    "Stage",
    "by_kind",
    "model_stages",
    "prototypes_of",
    "stage_key",
    "stage_seed",
    "stages_of",
    "training_part",
    "unresolved",
]
