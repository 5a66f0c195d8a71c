"""The loaded base model of a run: trains stages, and computes the logits of prefixes.

Imports torch; `Run` makes a workshop when it first needs one.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import torch

from s3t.core import KeyInputs, Kind, Stage, by_kind, model_stages, stage_key, stage_seed
from s3t.events import Progress, WorkStep, silent
from s3t.ledger import Snapshot
from s3t.models.adapters import Link, StageTensors, deserialize, mean_of, serialize
from s3t.models.assembly import assemble
from s3t.models.base import Pooling
from s3t.models.blocks import BlockTensors
from s3t.models.language import LanguageEncoder
from s3t.models.source import check_unchanged, model_folder
from s3t.prediction.answers import Answers
from s3t.prediction.ensemble import Kept, Resident, Windows, ensemble_of
from s3t.prediction.generation import TextBatch
from s3t.prediction.prototypes import Nearest, prototypes
from s3t.prediction.ridge import PARTS, LinearHead, Part, Projection, part_of, parted, solved, statistics
from s3t.recipe import Recipe
from s3t.records.public import Public
from s3t.run.material import Material
from s3t.store.artifacts import Artifact, Artifacts, Manifest, parent_of, read_chain, read_link
from s3t.store.slices import Slices
from s3t.tasks import Target
from s3t.tasks.aggregate import Scores
from s3t.training.examples import Examples
from s3t.training.features import FeatureMap, HeadInputs, slice_features
from s3t.training.numerics import environment, exact_numerics, resolve_device, slow_precision
from s3t.training.stage import Keeper, train_stage
from s3t.waiting import warn_if_threads_spin

T = TypeVar("T")


class Workshop:
    """The base model in memory, with the training data and the links that have answered."""

    def __init__(
        self,
        *,
        slices: Slices,
        tmp: Path,
        recipe: Recipe,
        labels: Sequence[str],
        inputs: KeyInputs,
        store: Artifacts,
        public: Public | None = None,
    ) -> None:
        folder = model_folder(recipe.base_model, revision=recipe.revision)
        check_unchanged(folder, inputs.base_digest)
        if recipe.training.threads != 1:
            warn_if_threads_spin()
        if slow := slow_precision(resolve_device(recipe.training.device), recipe.training):
            logging.getLogger("s3t").warning(slow)
        self._recipe, self._labels, self._inputs = recipe, labels, inputs
        self._store, self._public = store, public
        self.model, self.encoder = assemble(folder, recipe, labels=recipe.task.target.outputs(labels))
        self.model.base.model.to(resolve_device(recipe.training.device))
        self._turn = threading.Lock()
        self.material = Material(
            slices=slices,
            tmp=tmp,
            recipe=recipe,
            labels=labels,
            secret=inputs.secret,
            model=self.model,
            encoder=self.encoder,
        )
        self.resident = Resident(recipe.prediction.adapter_memory)
        self._windows = Windows(
            self.encoder,
            batch_size=recipe.prediction.batch_size,
            window_batches=recipe.task.inputs.window_batches,
        )
        self.ensemble = ensemble_of(self.model, self._windows, recipe)
        self._heads = Kept[Any](2 * recipe.partition.shards)  # of a shard's model, and of its prototypes
        self._parts = Kept[Part](2 * PARTS if recipe.readouts else PARTS)  # of a model, and of the base model

    @property
    def device(self) -> torch.device:
        return self.model.base.device

    def forget_stale(self, snapshot: Snapshot) -> None:
        """Drop what is in memory of slices that have lost a record, or are losing one, and of stages that are not alive
        any more, by whosever hand.
        """
        alive = frozenset(snapshot.stages.values())
        self.resident.keep(alive)
        self._heads.keep(alive)
        self._parts.keep(alive)
        self.material.forget_stale(snapshot)

    def train(
        self,
        stage: Stage,
        snapshot: Snapshot,
        progress: Progress = silent,
        checkpoints: Callable[[str], Keeper] | None = None,
    ) -> tuple[str, bytes, Manifest]:
        """Train a stage from the slices and the parents of a snapshot; its key, tensor file and manifest.

        `progress` hears of every step, and of the losses; no loss goes into what is returned. `checkpoints` are those
        of a stage with a key.
        """
        digests = snapshot.digests(stage)
        chains = [self._artifacts(parent, snapshot) for parent in stage.parents]
        above = [chain[-1].manifest for chain in chains]
        labels, parents = snapshot.labels_of(stage), [manifest.key for manifest in above]
        key = stage_key(self._inputs, stage, slice_digests=digests, parents=parents, labels=labels)
        blocks = [blocks_of(self._recipe, parent, chain) for parent, chain in zip(stage.parents, chains, strict=True)]
        training, steps, score = self._recipe.training, 0, None
        if stage.kind != "model":
            tensors = self._of_slice(stage, digests, blocks, labels, progress)
        else:
            models = {**blocks[0]} if blocks else {}
            block = self._recipe.trained_block(stage.depth)
            start = models.pop(block, None)
            with self._turn:  # one stage's states at a time
                examples = self.material.examples(stage, digests, progress=progress)
                tensors, steps = train_stage(
                    self.model,
                    block,
                    frozen=models,
                    start=start,
                    examples=examples,
                    target=self._training_target(examples),
                    training=training,
                    seed=partial(stage_seed, training.seed, stage),
                    progress=progress,
                    checkpoints=None if checkpoints is None else checkpoints(self._resumable(key)),
                )
            if self._public:
                score = self._score(self._public.rows, [*models.items(), (block, tensors)])
        content = serialize(tensors)
        manifest = Manifest(
            key=key,
            shard=stage.shard,
            prefix=stage.prefix,
            slice_digests=digests,
            base_digest=self._inputs.base_digest,
            seed=training.seed,
            precision=training.precision,
            threads=training.threads,
            steps=steps,
            environment=environment(self.device, quantized=self.model.base.quantized),
            sha256=hashlib.sha256(content).hexdigest(),
            parents=tuple(map(parent_of, above)),
            validation=score,
        )
        return key, content, manifest

    def _resumable(self, key: str) -> str:
        """A digest of a stage's key and of all that decides bits here: another machine goes on with other ones."""
        here = environment(self.device, quantized=self.model.base.quantized)
        return hashlib.sha256(json.dumps([key, self.device.type, here], sort_keys=True).encode()).hexdigest()

    def _training_target(self, examples: Examples) -> Target:
        """The target, with weights of labels that follow from the stage's own records alone."""
        target, declared = self._recipe.task.target, self._recipe.training.class_weight
        if declared is None or not len(examples):
            return target
        return target.weighted(declared, self._labels, examples.targets(range(len(examples))))

    def _score(self, rows: pa.Table, blocks: Iterable[tuple[int, StageTensors]]) -> float:
        """The target's score of a model on labelled records. It is in the manifest, so no setting of prediction may
        change its bits."""
        recipe = self._recipe
        answers = Answers(target=recipe.task.target, labels=tuple(self._labels), settings=recipe.prediction)
        with exact_numerics(self.device, self._recipe.training):
            chain = [self.model.prepare(block, tensors) for block, tensors in blocks]
        logits = self.ensemble.logits([chain], rows)[0]
        return answers.score(logits, answers.target.expected(rows), self.counts(rows))

    def counts(self, rows: pa.Table) -> list[int] | None:
        """Number of answers to each input; None: one each."""
        return self._windows.counts(rows)

    def cut(self, rows: pa.Table) -> list[bool]:
        """For each input, True if it has more tokens than max_length."""
        return self.encoder.cut(rows).longer

    def _of_slice(
        self,
        stage: Stage,
        digests: Sequence[str],
        models: Sequence[BlockTensors],
        new_labels: Sequence[str],
        progress: Progress,
    ) -> StageTensors:
        """Class means, statistics or a readout of one slice; a readout's models have the given blocks."""
        training, features_of = self._recipe.training, self._features_of(stage.kind)
        with self._turn, exact_numerics(self.device, training), self.model.mounted(mean_of(models, self.model.adapter)):
            (contents,) = self.material.parts(stage, digests, new_labels)
            features, targets = slice_features(
                self.model, contents, self.encoder, features_of, batch_size=training.batch_size, progress=progress
            )
            if not self._recipe.method.trains:
                self.material.forget([contents.place])  # no other stage reads it, and all slices may not fit in memory
            if stage.kind == "prototypes":
                return prototypes(features, targets, labels=len(self._labels))
            outputs = self.model.base.answers + len(new_labels)
            return statistics(features, targets, outputs=outputs, projection=self._projection)

    def chain(self, models: Sequence[Stage], snapshot: Snapshot, progress: Progress = silent) -> list[Any]:
        """The links of a live prefix, ready to answer, or of the mean of several, which has no head but a solved one;
        of no prefix none. Each artifact was checked against its manifest and parent.
        """
        if not models:
            return []
        recipe, keys = self._recipe, snapshot.stages

        def prepared(block: int, tensors: StageTensors) -> Link:
            with exact_numerics(self.device, recipe.training):  # and no thread has blocks on the model meanwhile
                return self.ensemble.prepared(block, tensors)

        def prepared_mean() -> list[Link]:
            each = [blocks_of(recipe, stage, self._artifacts(stage, snapshot)) for stage in models]
            return [prepared(block, tensors) for block, tensors in mean_of(each, self.model.adapter).items()]

        if len(models) == 1:
            (stage,) = models
            links = self.resident.chain(
                [keys[link] for link in model_stages(recipe.method, stage)],
                read=lambda: artifacts_of(recipe, stage, self._artifacts(stage, snapshot)),
                prepare=lambda each: prepared(
                    recipe.trained_block(len(each.manifest.prefix)), deserialize(each.content)
                ),
            )
        else:
            links = self._heads.of(tuple(keys[link] for stage in models for link in stage.chain), prepared_mean)
        return [*links[:-1], self._read_out(models, links[-1], snapshot, progress)]

    def logits(
        self, stages: Sequence[Stage], snapshot: Snapshot, inputs: pa.Table, progress: Progress = silent
    ) -> Scores:
        """The logits of live prefixes, M x N x C; those of a mean for each of its models."""
        models, heads = by_kind(stages)
        readers = snapshot.readers(models)
        passes = dict.fromkeys(readers[stage] for stage in models)
        apart = [each for each in passes if each in snapshot.readouts and (self._recipe.ridge.layers or not each)]
        within = [each for each in passes if each not in apart]
        scores: dict[tuple[Any, ...], Scores] = {}
        if within:
            chains = [self.chain(each, snapshot, progress) for each in within]
            scores |= zip(within, self.ensemble.logits(chains, inputs, progress=progress), strict=True)
        if apart:
            scores |= zip(apart, self._answers_of_solved(apart, snapshot, inputs, progress), strict=True)
        if heads:
            scores |= zip(heads, self._answers_of_heads(heads, snapshot, inputs, progress), strict=True)
        return np.stack([scores[readers.get(stage, stage)] for stage in stages])

    def _answers_of_heads(
        self, stages: Sequence[Stage], snapshot: Snapshot, inputs: pa.Table, progress: Progress
    ) -> Scores:
        # Not mounted: no other thread has blocks on the model meanwhile, and to leave costs a tenth of a single answer.
        with exact_numerics(self.device, self._recipe.training), torch.inference_mode():
            heads = [self._head(stage, snapshot, progress) for stage in stages]
            return self._read(self._features_of(stages[0].kind), [(nullcontext, heads)], snapshot, inputs, progress)

    def _answers_of_solved(
        self, groups: Sequence[tuple[Stage, ...]], snapshot: Snapshot, inputs: pa.Table, progress: Progress
    ) -> Scores:
        """Logits of models, of means, or of the base model, whose solved heads read features."""
        chains = [self.chain(models, snapshot, progress) for models in groups]
        heads = [[self._of_readouts(models, snapshot, progress, lambda head: head)] for models in groups]
        ons = [partial(self.ensemble.side_by_side, [chain], [0]) for chain in chains]
        return self._read(self._features_of("readout"), list(zip(ons, heads, strict=True)), snapshot, inputs, progress)

    def _read(
        self,
        features: FeatureMap | HeadInputs,
        passes: Sequence[tuple[Callable[[], AbstractContextManager[Any]], Sequence[Nearest | LinearHead]]],
        snapshot: Snapshot,
        inputs: pa.Table,
        progress: Progress,
    ) -> Scores:
        """Logits of heads: within each context a pass, whose features all of its heads read."""
        count = sum(len(heads) for _, heads in passes)
        outputs = self.model.base.answers + len(snapshot.new_labels)
        logits: Scores = np.full((count, self._windows.answers(inputs), outputs), np.nan)
        for window in self._windows.of(inputs, self.device):
            places = itertools.count()
            for on, heads in passes:
                numbered = [(next(places), head) for head in heads]
                with on():
                    for rows, batch in window:
                        found = features.of(self.model.passes, batch).cpu()
                        for number, head in numbered:
                            own = head.logits(found).numpy()
                            logits[number, rows, : own.shape[1]] = own
                            logits[number, rows, own.shape[1] :] = -np.inf  # labels of which nothing was learned yet
                        progress(WorkStep(count=len(rows) * len(heads)))
        return logits

    def _head(self, stage: Stage, snapshot: Snapshot, progress: Progress) -> Nearest | LinearHead:
        """The head of what is made of some slices."""

        def solve() -> Nearest | LinearHead:
            if stage.kind == "prototypes":
                return Nearest.of(list(self._left(stage.chain, snapshot)))
            return self._solved(stage.chain, snapshot, progress)

        head: Nearest | LinearHead = self._heads.of(tuple(snapshot.stages[link] for link in stage.chain), solve)
        return head

    def _read_out(self, models: Sequence[Stage], last: Link, snapshot: Snapshot, progress: Progress) -> Link:
        """The last link of a model, with the head that is solved from its readouts, if there are any."""
        if self._recipe.ridge.layers or tuple(models) not in snapshot.readouts:
            return last
        name, _ = self.model.base.last_linear

        def read_out(head: LinearHead) -> Link:
            own = {f"{name}.{part}": tensor.to(self.device) for part, tensor in head.linear().items()}
            return replace(last, head={**last.head, **own})

        return self._of_readouts(models, snapshot, progress, read_out)

    def _of_readouts(
        self, models: Sequence[Stage], snapshot: Snapshot, progress: Progress, made_of: Callable[[LinearHead], T]
    ) -> T:
        """Something made of the head that is solved from the readouts of a model, or of a mean; kept in memory."""
        readouts = snapshot.readouts[tuple(models)]

        def solve() -> T:
            with exact_numerics(self.device, self._recipe.training):
                return made_of(self._solved(readouts, snapshot, progress))

        links = (*(link for stage in models for link in stage.chain), *snapshot.heads[tuple(models)])
        made: T = self._heads.of(tuple(snapshot.stages[link] for link in links), solve)
        return made

    def _solved(self, stages: Sequence[Stage], snapshot: Snapshot, progress: Progress) -> LinearHead:
        parts = self._parted(stages, snapshot, progress, tune=snapshot.tunes(stages))
        base = snapshot.calibration(stages)
        calibration = self._parted(base, snapshot, progress, tune=[True] * len(base))
        target, projection = self._recipe.task.target, self._projection
        return solved(parts, calibration=calibration, target=target, projection=projection, progress=progress)

    def _parted(
        self, stages: Sequence[Stage], snapshot: Snapshot, progress: Progress, *, tune: Sequence[bool]
    ) -> list[Part]:
        """What some slices left, in parts, each with samples of the slices that tune the head."""
        projection, parts = self._projection, []

        def outputs(some: Iterable[Stage]) -> int:
            return self.model.base.answers + max((len(snapshot.labels_of(stage)) for stage in some), default=0)

        for places in parted([stage.prefix[0] for stage in stages]):
            links = [stages[place] for place in places]
            part = partial(
                part_of, self._left(links, snapshot), outputs=outputs(links), projection=projection, progress=progress
            )
            made = self._parts.of(tuple(snapshot.stages[link] for link in links), part)
            parts.append(made.with_outputs(outputs(stages)).sampled_from([tune[place] for place in places]))
        return parts

    def _left(self, stages: Iterable[Stage], snapshot: Snapshot) -> Iterator[StageTensors]:
        """Stored tensors of slices, read one at a time; their models' manifests once."""
        manifests: dict[Stage, Manifest] = {}
        for stage in stages:
            for parent in stage.parents:
                if parent not in manifests:
                    manifests[parent] = self._artifacts(parent, snapshot)[-1].manifest
            above, key = [manifests[parent] for parent in stage.parents], snapshot.stages[stage]
            own = read_link(self._store, stage, key=key, slice_digests=snapshot.digests(stage), parents=above)
            yield deserialize(own.content)

    def _features_of(self, kind: Kind) -> FeatureMap | HeadInputs:
        """The features of what is made of single slices: token means, and of a solved head what the base model's own
        head reads, too, where that is something else.
        """
        top, recipe = self.model.passes.top, self._recipe
        if kind == "prototypes":
            return FeatureMap((top,))
        if not recipe.ridge.layers:
            return HeadInputs()
        layers, task = min(recipe.ridge.layers, top), recipe.task
        own = "mean" if task.inputs.kind == "words" else cast(Pooling, recipe.text.pooling) if task.pools else "first"
        borders = tuple(round(top * number / layers) for number in range(layers, 0, -1))
        return FeatureMap(borders, ("mean",) if own == "mean" else ("mean", own))

    @cached_property
    def _projection(self) -> Projection:
        kind: Kind = "readout" if self._recipe.readouts else "statistics"
        width, length = self.model.base.width, math.sqrt(self._features_of(kind).parts)
        seed, size = self._recipe.training.seed, self._recipe.ridge.projection
        return Projection.draw(seed, width=width, size=size, length=length)

    def text_batch(self, stages: Sequence[Stage], snapshot: Snapshot) -> TextBatch:
        """A batch that the members write. Members of a shard share its weight."""
        settings = self._recipe.prediction
        return TextBatch(
            self.ensemble,
            [self.chain([stage], snapshot) for stage in stages],
            shards=[stage.shard for stage in stages],
            encoder=cast(LanguageEncoder, self.encoder),
            size=max(1, settings.batch_size // len(stages)),
            way="batched" if settings.writing == "auto" else settings.writing,  # of a run made before
        )

    def _artifacts(self, stage: Stage, snapshot: Snapshot) -> list[Artifact]:
        return read_chain(self._store, stage, keys=snapshot.stages, slice_digests=snapshot.digests(stage))


def artifacts_of(recipe: Recipe, stage: Stage, chain: Sequence[Artifact]) -> list[Artifact]:
    """The artifacts of a stage's chain that make up its model."""
    links = model_stages(recipe.method, stage)
    return [artifact for link, artifact in zip(stage.chain, chain, strict=True) if link in links]


def blocks_of(recipe: Recipe, stage: Stage, chain: Sequence[Artifact]) -> dict[int, StageTensors]:
    """A model's blocks by number, in the order of training, of the artifacts of its chain."""
    return {
        recipe.trained_block(len(artifact.manifest.prefix)): deserialize(artifact.content)
        for artifact in artifacts_of(recipe, stage, chain)
    }
