"""What else the stages of a run can answer with: trained heads, heads at a depth, and one model merged of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors.torch import load_file, save_file

import s3t
from s3t.core import Stage, by_kind, model_stages
from s3t.core.stages import readout
from s3t.export.merged import write_merged
from s3t.export.peft import bare_model
from s3t.ledger import Snapshot
from s3t.models.adapters import deserialize
from s3t.models.source import model_folder
from s3t.prediction.answers import Answers
from s3t.prediction.ridge import Projection, part_of, parted, solved
from s3t.run.answerer import evaluate
from s3t.store.artifacts import read_chain
from s3t.tasks.aggregate import Scores

Logits = Callable[[Snapshot, Sequence[Stage], pa.Table], Scores]
"""Of members on inputs, M x N x C."""


def measures(run: s3t.Run, test: Any, logits: Logits, *, depth: int | None = None) -> dict[str, Any]:
    """Measures of the ensemble that serves, perhaps cut to a depth, with logits of one's own."""
    parts, rows = run.parts, run.parts.answerer.labelled(test)
    now, serving = parts.answerer.choose(None)
    members = [stage.cut(depth or stage.depth) for stage in serving]
    answers = Answers.of(parts.recipe, parts.description.labels)
    found = dict(zip(members, logits(now, members, rows), strict=True))
    counts = parts.loaded.get().counts(rows)
    return evaluate(answers, now, members, found, rows, counts, per_depth=False).metrics


def trained_heads(run: s3t.Run) -> Logits:
    """With the heads that the stages were trained with."""

    def logits(now: Snapshot, members: Sequence[Stage], rows: pa.Table) -> Scores:
        models = {stage: own for stage, own in now.live.artifacts.items() if stage.kind != "readout"}
        return run.parts.loaded.get().logits(members, replace(now, live=replace(now.live, artifacts=models)), rows)

    return logits


def ridge_heads(run: s3t.Run) -> Logits:
    """With heads solved for the members that are asked, whether or not they serve. Their readouts are not stored."""
    workshop, recipe = run.parts.loaded.get(), run.parts.recipe
    target, outputs, projection = recipe.task.target, workshop.model.base.answers, Projection(None)
    name, _ = workshop.model.base.last_linear

    def chain(now: Snapshot, member: Stage) -> list[Any]:
        places = sorted(now.slices)
        left = [deserialize(workshop.train(readout(place, [member]), now)[1]) for place in places]
        parts = [
            part_of([left[number] for number in part], outputs=outputs, projection=projection)
            for part in parted([place.slice for place in places])
        ]
        linear = solved(parts, target=target, projection=projection).linear()
        *above, last = workshop.chain([member], now)
        own = {f"{name}.{part}": tensor for part, tensor in linear.items()}
        return [*above, replace(last, head={**last.head, **own})]

    def logits(now: Snapshot, members: Sequence[Stage], rows: pa.Table) -> Scores:
        return workshop.ensemble.logits([chain(now, member) for member in members], rows)

    return logits


def merge(run: s3t.Run, to: Path) -> Path:
    """Write the base model with the mean of what the serving stages add to its weights, as transformers loads it."""
    parts, recipe = run.parts, run.parts.recipe
    now, serving = parts.answerer.choose(None)
    members, _ = by_kind(serving)
    base = model_folder(recipe.base_model, revision=recipe.revision)
    labels = parts.description.labels
    folders = [to.with_name(f"{to.name}-{member.shard}") for member in members]
    for member, folder in zip(members, folders, strict=True):
        artifacts = read_chain(parts.store, member, keys=now.stages, slice_digests=now.digests(member))
        links = model_stages(recipe.method, member)
        blocks = {
            recipe.trained_block(link.depth): deserialize(artifact.content)
            for link, artifact in zip(member.chain, artifacts, strict=True)
            if link in links
        }
        with parts.loaded.get().alone() as (model, encoder):
            bare = bare_model(base, recipe.task.model, labels=recipe.task.target.outputs(labels))
            write_merged(model, blocks, folder, base=base, bare=bare, encoder=encoder, labels=labels)
    folders[0].rename(to)
    for path in to.glob("*.safetensors"):
        others = [load_file(folder / path.name) for folder in folders[1:]]
        mean = {name: sum((other[name] for other in others), own) for name, own in load_file(path).items()}
        save_file({name: tensor / len(folders) for name, tensor in mean.items()}, path, metadata={"format": "pt"})
    return to
