"""Seeds of stages: from declared numbers, never from data or global state."""

from __future__ import annotations

import hashlib

from s3t.stages.trie import Stage


def stage_seed(run_seed: int, stage: Stage, purpose: str) -> int:
    """A seed below 2^63 for one purpose ("head", "block", "dropout", "batches 0", ...) of one stage.

    >>> stage_seed(0, Stage(0, (1,)), "head") == stage_seed(0, Stage(0, (1,)), "head")
    True
    """
    text = f"s3t seed {run_seed} shard {stage.shard} prefix {list(stage.prefix)} {purpose}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
