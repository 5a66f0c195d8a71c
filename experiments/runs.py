"""Runs that experiments train: their recipes, where they are kept, and what all their prefixes answer."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from safetensors.torch import load_file

import s3t
from experiments.noted import note
from experiments.tasks import Task
from s3t.core import AsNeeded, Kind
from s3t.results.answers import Member
from s3t.training.numerics import environment, resolve_device

Logits = NDArray[np.float32]
"""Inputs x labels."""
Prefix = tuple[int, ...]


def recipe_of(
    task: Task,
    training: Mapping[str, Any],
    *,
    slices: int,
    shards: int = 1,
    layers_per_slice: int | None = None,
    budget: int = 1,
    selector: str = "survival",
    method: Mapping[str, Any] | str | None = None,
    rank: int = 16,
    salt: str = "experiments",
    chains: AsNeeded | None = None,
) -> dict[str, Any]:
    """A recipe.

    Args:
        task: what the data and the model are.
        training: of the recipe.
        slices: L.
        shards: m.
        layers_per_slice: layers of a block; None: L blocks are all layers.
        budget: B, of s3t.
        selector: of its orders.
        method: as in a recipe; None: s3t. One not trained block by block adapts as many layers as L blocks have.
        rank: of LoRA; alpha is twice as much.
        salt: of the partition.
        chains: that shards of s3t have in the place of orders, and are repaired to.
    """
    name = method["name"] if isinstance(method, Mapping) else method or "s3t"
    each = layers_per_slice or task.layers // slices
    size = {"layers_per_slice": each} if name == "s3t" else {"layers": each * slices}
    return {
        **task.recipe,
        "partition": {"shards": shards, "slices": slices, "salt": salt},
        "adapter": {"rank": rank, "alpha": 2 * rank, "target_modules": list(task.modules), **size},
        "training": {"threads": 1, **training},
        **({"method": method} if method is not None else {}),
        **_chosen(name, budget, selector, chains),
    }


def _chosen(method: str, budget: int, selector: str, chains: AsNeeded | None) -> dict[str, Any]:
    """The part of a recipe that says which stages a shard has. Repairs are counted, so no deletion causes one."""
    if chains is not None:
        return {"deletion": {"repair": {"policy": "as-needed", **chains.model_dump()}}}
    sequences = {"sequences": {"budget": budget, "selector": selector}} if method == "s3t" else {}
    return {"deletion": {"repair": "manual"}, **sequences}


@contextmanager
def untrained(recipe: Mapping[str, Any], task: Task) -> Iterator[s3t.Run]:
    """A run that is gone afterwards."""
    note(recipe)
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".experiment-") as folder,
        remembering_in(Path(folder)),
        s3t.Run.create(Path(folder) / "run", recipe=recipe, data=task.train, public_data=True) as run,
    ):
        yield run


@contextmanager
def trained(recipe: Mapping[str, Any], task: Task) -> Iterator[s3t.Run]:
    """A run, trained, that is gone afterwards."""
    with untrained(recipe, task) as run:
        run.train(progress=s3t.ProgressBar())
        yield run


@contextmanager
def kept(recipe: Mapping[str, Any], task: Task) -> Iterator[s3t.Run]:
    """A run, trained, which is there for the next experiment. After a stop, training goes on where it was; several
    processes that want it train it together.

    It lies in the folder that S3T_EXPERIMENTS names (.experiments where it names none), and nobody deletes from it.
    """
    note(recipe)
    records = task.train.drop(columns="image", errors="ignore").to_csv()
    about = json.dumps([recipe, records, environment(resolve_device("auto"))], sort_keys=True)
    digest = hashlib.sha256(about.encode() + _code_that_decides_bits())
    folder = Path(os.environ.get("S3T_EXPERIMENTS", ".experiments")) / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with remembering_in(folder):
        with FileLock(folder / "lock"):
            if not (folder / "run").exists():
                s3t.Run.create(folder / "run", recipe=recipe, data=task.train, public_data=True).close()
        with s3t.Run.open(folder / "run") as run:
            run.train(progress=s3t.ProgressBar())
            yield run


def _code_that_decides_bits() -> bytes:
    package = Path(s3t.__file__).parent
    files = sorted(path for room in ("models", "training", "stages") for path in (package / room).glob("*.py"))
    return b"".join(path.read_bytes() for path in files)


def answers_of(
    run: s3t.Run, task: Task, prefixes: Iterable[Prefix], *, kind: Kind = "model"
) -> dict[tuple[int, Prefix], Logits]:
    """The logits of some prefixes of every shard on the test records; kept beside the run.

    Args:
        run: trained, nothing deleted.
        task: its test records.
        prefixes: which; each is trained in every shard. Of prototypes: of which slices, in rising order.
        kind: model or prototypes.
    """
    folder = run.path.parent / "answers"
    folder.mkdir(exist_ok=True)
    files = {
        prefix: folder / f"{kind}-{'-'.join(map(str, prefix))}-of-{len(task.test)}.npy"
        for prefix in sorted(set(prefixes))
    }
    for patience in (0, -1):  # first what no other process is at, so that several share the work; then wait for theirs
        for prefix, file in files.items():
            with suppress(Timeout), FileLock(file.with_suffix(".lock"), timeout=patience):
                if not file.exists():
                    _answer(run, task, prefix, kind, file)
    shards = range(run.recipe.partition.shards)
    return {
        (shard, prefix): own for prefix, file in files.items() for shard, own in zip(shards, np.load(file), strict=True)
    }


def _answer(run: s3t.Run, task: Task, prefix: Prefix, kind: Kind, file: Path) -> None:
    """Write the logits of a prefix of every shard, whole or not at all."""
    asked = [Member(shard, prefix, "", kind) for shard in range(run.recipe.partition.shards)]
    logits = run.predict(task.test, prefixes=asked, progress=s3t.ProgressBar()).logits
    part = file.with_suffix(".part.npy")
    np.save(part, logits.astype(np.float32), allow_pickle=False)
    part.replace(file)


def parameters_of(run: s3t.Run) -> int:
    """Numbers in an artifact, the head among them; all have as many."""
    (count,) = {
        sum(tensor.numel() for tensor in load_file(path).values())
        for path in (run.path / "artifacts").rglob("*.safetensors")
    }
    return count


def expected_of(task: Task) -> NDArray[np.int64]:
    """Label indices of the test records."""
    number = {label: index for index, label in enumerate(task.recipe["labels"])}
    return task.test["label"].map(number).to_numpy(dtype=np.int64)


@contextmanager
def remembering_in(folder: Path) -> Iterator[None]:
    """Within, runs remember what was deleted from them in that folder, not in the user's."""
    before = os.environ.get("S3T_STATE")
    os.environ["S3T_STATE"] = str(folder / "state")
    try:
        yield
    finally:
        if before is None:
            del os.environ["S3T_STATE"]
        else:
            os.environ["S3T_STATE"] = before
