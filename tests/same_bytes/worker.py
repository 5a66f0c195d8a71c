"""Runs the jobs of a folder with whatever s3t is on the path, and writes digests of all tensors and answers as JSON.

It uses the public API alone, since it runs with the code of other commits; and the files of artifacts, whose names are
keys that may differ.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.torch import load_file

import s3t

FORGOTTEN = ["r3", "r11"]
"""Records that are deleted before stages and answers are looked at again."""


def main(jobs: Path, out: Path) -> None:
    """Run every job; `out` gets digests by job, moment and stage."""
    found = {}
    for job in sorted(jobs.glob("job-*")):
        os.chdir(job)  # a recipe names its public records by a relative path
        found[job.name] = _digests(job, out.with_suffix("") / job.name)
    out.write_text(json.dumps(found))


def _digests(job: Path, folder: Path) -> dict[str, dict[str, str]]:
    recipe = yaml.safe_load((job / "recipe.yaml").read_text())
    found: dict[str, dict[str, str]] = {"stages": {}, "answers": {}}
    try:
        made = s3t.Run.create(folder, recipe=recipe, data=job / "data.parquet")
    except s3t.RecipeError:
        return found  # of a task, perhaps, that this checkout does not have
    with made as run:
        run.train()
        _look(run, job, "trained", found)
        run.delete(records=FORGOTTEN)
        _look(run, job, "deleted", found)
        run.repair()
        _look(run, job, "repaired", found)
    return found


def _look(run: Any, job: Path, moment: str, found: dict[str, dict[str, str]]) -> None:
    for path in run.path.rglob("*.safetensors"):
        manifest = json.loads(path.with_suffix(".json").read_text())
        for name, tensor in load_file(path).items():
            stage = f"{moment}: shard {manifest['shard']}, prefix {manifest['prefix']}, {name}"
            content = tensor.contiguous().reshape(-1).numpy().tobytes()
            found["stages"][stage] = hashlib.sha256(f"{tensor.shape} {tensor.dtype}".encode() + content).hexdigest()
    try:
        language = str(run.recipe.task) == "causal-lm"
        answers = (run.score if language else run.predict)(job / "probe.parquet")
    except s3t.NoLiveShardError:
        found["answers"][moment] = "none"
        return
    for name in ("logits", "probabilities"):
        value = getattr(answers, name, None)
        content = b"" if value is None else np.ascontiguousarray(value).tobytes()
        found["answers"][f"{moment}: {name}"] = hashlib.sha256(content).hexdigest()
    rows = [{name: row[name] for name in row if name not in ("generation", "probabilities")} for row in answers.rows()]
    found["answers"][f"{moment}: answers"] = repr(rows)
    found["answers"][f"{moment}: metrics"] = repr(sorted(run.evaluate(job / "probe.parquet").metrics.items()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
