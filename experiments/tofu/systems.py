"""Systems of the experiment: runs that are trained, copied and exported as models that transformers holds."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import transformers
from peft import PeftModel
from pydantic import TypeAdapter

import s3t
from experiments.runs import untrained
from experiments.tasks import Task
from s3t.events import Event, StageStart
from s3t.recipe import RepairPolicy

Model = Any
"""A causal language model of transformers, or with PEFT's adapter."""


def policy_of(text: str) -> RepairPolicy:
    """A recipe's `deletion.repair`, from words.

    Raises:
        pydantic.ValidationError: the recipe knows no such policy.

    >>> policy_of("manual"), policy_of("below-depth 2")
    ('manual', BelowDepth(below_depth=2))
    """
    name, _, depth = text.partition(" ")
    adapter: TypeAdapter[RepairPolicy] = TypeAdapter(RepairPolicy)
    return adapter.validate_python({name: depth} if depth else name)


@contextmanager
def copied(run: s3t.Run) -> Iterator[s3t.Run]:
    """A clone to delete from, gone afterwards."""
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".experiment-") as folder,
        s3t.Run.clone(run.path, Path(folder) / "run") as copy,
    ):
        yield copy


@contextmanager
def adapters(run: s3t.Run) -> Iterator[list[Path]]:
    """PEFT adapters of the shards that answer, by shard; withdrawn and removed afterwards. A dead run has none."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".experiment-") as folder:
        exports: tuple[Any, ...] = ()
        with suppress(s3t.NoLiveShardError):
            exports = run.export(folder).exports
        yield [export.path for export in exports]
        for export in exports:
            shutil.rmtree(export.path)
            run.withdraw(export.name)


def with_adapter(base: Path, adapter: Path) -> Model:
    """The base model with an adapter that trains on, in float32 and eval mode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of a name in transformers that PEFT reads
        return PeftModel.from_pretrained(_base(base), adapter, is_trainable=True).eval()


def loaded(run: s3t.Run) -> list[Model]:
    """The model of each shard that answers, with its adapter in the weights, in float32; none if the run is dead."""
    base = Path(run.recipe.base_model)
    with adapters(run) as found:
        return [with_adapter(base, path).merge_and_unload().eval() for path in found]


class EnoughError(Exception):
    """Stages as deep as asked for are trained."""


@contextmanager
def trained_to(depth: int, recipe: Mapping[str, Any], task: Task) -> Iterator[s3t.Run]:
    """A run with its stages of at most `depth` slices, gone afterwards. Shallow stages of all shards come first."""

    def hear(event: Event) -> None:
        if isinstance(event, StageStart) and len(event.stage.prefix) > depth:
            raise EnoughError

    with untrained(recipe, task) as run:
        with suppress(EnoughError):
            run.train(progress=hear)
        yield run


def compared(run: s3t.Run, other: s3t.Run) -> dict[str, int]:
    """Stages that are alive in both runs, byte for byte.

    Args:
        run: the one of which stages are looked at.
        other: one with the same secret, which may have fewer stages.

    Returns:
        `live`: stages of the run; `compared`: those that the other has, too; `different`: of those, how many have
        another key, or an artifact with other bytes.
    """
    here, there = (each.inventory().alive for each in (run, other))
    both = [stage for stage in here if stage in there]

    def content(own: s3t.Run, shard: int, key: str) -> bytes:
        return (own.path / "artifacts" / f"shard-{shard:03d}" / f"{key}.safetensors").read_bytes()

    different = sum(
        here[stage] != there[stage]
        or content(run, stage.shard, here[stage]) != content(other, stage.shard, there[stage])
        for stage in both
    )
    return {"live": len(here), "compared": len(both), "different": different}


def _base(folder: Path) -> Model:
    transformers.utils.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, dtype="float32", attn_implementation="sdpa"
    )
