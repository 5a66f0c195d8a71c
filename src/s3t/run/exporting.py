"""Exports of an open run: live chains written where other programs load them, each known to the ledger beforehand.

announce    the ledger has the export, and so has every deletion that comes from here on
write       beside its final place
name        by its content; the state folder remembers it
publish     renamed, if its stages are still alive
commit      one transaction: its stages are alive still, so it may be used; else it is taken away again
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from s3t.aftermath import NOTHING_CHANGED, after_refusal
from s3t.core import Stage
from s3t.errors import InputError, NoLiveShardError, StorageError
from s3t.events import Progress, WorkStep, telling
from s3t.export.description import description_files
from s3t.export.engines import ENGINES, Engine, engine_options, engine_problems
from s3t.export.folders import files_in, folder_name, new_mark, output_problems, part_folder, publish
from s3t.export.merged import copy_beside, write_merged
from s3t.export.peft import PeftAdapter, bare_model, peft_adapter, with_plain_scale
from s3t.export.pooled import head_for_transformers, linear_of, sentence_files
from s3t.ledger import ExportRow, Snapshot, Transaction
from s3t.ledger.presence import Overtaken, Work
from s3t.models.adapters import StageTensors, adapter_of_mean, mean_of
from s3t.models.base import pooling_of
from s3t.models.encoders import Encoder, encoder_for
from s3t.models.language import LanguageEncoder
from s3t.models.source import PACKAGE_PREFIX, check_unchanged, model_folder
from s3t.recipe import Recipe
from s3t.results.changes import Exported, Exports
from s3t.run.answerer import uses_of
from s3t.run.parts import Parts
from s3t.run.workshop import blocks_of
from s3t.store.artifacts import read_chain
from s3t.store.disk import make_folder, remove_folder_durably, storage_errors
from s3t.training.numerics import exact_numerics
from s3t.wording import counted


@dataclass(frozen=True, kw_only=True)
class _Form:
    """A chain as a class of transformers takes it."""

    auto_class: str
    bare: Any
    """The architecture of the run's class, without values."""
    adapter: PeftAdapter | None
    """None of a whole model."""
    head: Mapping[str, Tensor] | None = None
    """Head of a pooled model, if the class can compute the same logits."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files of sentence-transformers by path, where the class cannot."""


@dataclass(frozen=True, kw_only=True)
class Exporter:
    """Writes the model of each shard that answers, or of one; or the mean that answers for all."""

    parts: Parts
    output: Path
    shard: int | None
    merge: bool
    engine: Engine
    folder: Path
    """Folder of the base model."""

    @classmethod
    def of(cls, parts: Parts, output: Path, *, shard: int | None, merge: bool, engine: Engine) -> Exporter:
        """An exporter whose arguments have no problem, and whose base model is the run's."""
        with after_refusal(NOTHING_CHANGED):
            parts.check_changeable()
            parts.check_trainable()  # without the secret no deletion could ever name an export
            problems = output_problems(output, run=parts.layout.root)
            if problems := [*problems, *_problems(parts.recipe, shard=shard, merge=merge, engine=engine)]:
                raise InputError("the export", problems)
            folder = model_folder(parts.recipe.base_model, revision=parts.recipe.revision)
            check_unchanged(folder, parts.key_inputs.base_digest)
            output = Path(os.path.realpath(output))
            return cls(parts=parts, output=output, shard=shard, merge=merge, engine=engine, folder=folder)

    def export(self, progress: Progress) -> Exports:
        parts = self.parts
        with after_refusal(NOTHING_CHANGED):
            parts.latest.snapshot()  # refuses an older ledger
            parts.check_changeable()
            parts.check_trainable()
        while True:
            now = parts.upkeep.erase_due()
            groups = self._serving(now)
            uses = uses_of(now, [stage for group in groups for stage in group])
            with (
                suppress(Overtaken),
                telling(progress, f"exporting {counted(len(groups), 'model')}", len(groups)),
                parts.presence.working(now, uses) as work,
            ):
                made = []
                for group in groups:
                    made.append(self._export(group, now, work))
                    progress(WorkStep(count=1))
                notices = tuple(self._notices(made))
                return Exports(exports=tuple(made), merged=self.merge, engine=self.engine, notices=notices)

    def _serving(self, now: Snapshot) -> list[tuple[Stage, ...]]:
        """Models to export, each one's or a mean's."""
        run, inventory = self.parts.layout.root, self.parts.latest.answering(now)
        serving = inventory.members()
        wanted = list(serving) if self.shard is None else [self.shard]
        if not wanted or any(number not in serving for number in wanted):
            what = f"no shard of {run} has a" if self.shard is None else f"shard {self.shard} of {run} has no"
            raise NoLiveShardError(
                f"{what} live chain that holds a record, so there is nothing to export; run `s3t "
                f"{inventory.training_command} {run}`"
            )
        groups = dict.fromkeys(now.readers([serving[number] for number in wanted]).values())
        if self.parts.recipe.readouts and not now.readouts.keys() >= groups.keys():
            raise InputError("the export", f"heads are not solved yet; run `s3t repair {run} --hours 0`")
        return list(groups)

    def _export(self, models: tuple[Stage, ...], now: Snapshot, work: Work) -> Exported:
        """Write a model, or the mean of several. If a deletion takes a stage of it meanwhile (Overtaken), nothing is
        left of the export.
        """
        ledger, withdrawer = self.parts.ledger, self.parts.withdrawer
        blocks, (stage, *others) = self._blocks(models, now), models
        form = self._form(blocks, len(models))
        with new_mark() as mark:
            export = ExportRow(
                mark=mark,
                host=platform.node(),
                output=self.output,
                stage=stage,
                others=(*others, *now.heads.get(models, ())),
                announced_at=time.time(),
            )
            keys = tuple(now.stages[link] for link in export.links)
            export = replace(export, keys=keys, digests=now.digests(export))
            with ledger.writing() as transaction:
                if not transaction.exports.announce(export, transaction.snapshot()):
                    raise Overtaken
            part, final = part_folder(self.output, mark), None
            try:
                with storage_errors(f"writing the export of shard {stage.shard} to {self.output}"):
                    make_folder(self.output, mode=0o777)  # the user's, not the run's
                    part.mkdir()
                    self._write(part, models, keys, blocks, form)
                    files = files_in(part)
                    named = replace(export, name=folder_name(stage.shard, files), files=json.dumps(files))
                    with ledger.writing() as transaction:
                        transaction.exports.name(named)
                    withdrawer.memory.note([named])
                    work.check()
                    if not ledger.snapshot().still_has(named.stages):
                        raise Overtaken
                    with ledger.reading() as transaction:  # the same content, made before, answers for the folder
                        covered = any(each.mark != mark for each in _same_place(transaction, named))
                    final = None if covered else named.path
                    try:
                        new = publish(part, named.path, files)
                    except InputError:  # what is there is another's
                        final = None
                        raise
                made = self._committed(named, new=new)
            except BaseException:
                with suppress(StorageError, OSError):  # what is left is known to the ledger, and every deletion asks
                    self._discard(export, part, final)
                raise
        options = () if form.adapter is None else tuple(engine_options(self.engine, form.adapter.config))
        told = {"new": new, "options": options, "merged_with": tuple(others)}
        return Exported(name=made.name, path=made.path, **stage._asdict(), **told)

    def _committed(self, named: ExportRow, *, new: bool) -> ExportRow:
        """The export, which may be used. The same content, made before at the same place, has one row alone."""
        with self.parts.ledger.writing() as transaction:
            same = [each for each in _same_place(transaction, named) if each.made_at is not None]
            if not transaction.exports.commit(named, transaction.snapshot()):
                raise Overtaken
            found = transaction.rows.find(ExportRow, mark=named.mark)
        if same and not new:
            self.parts.withdrawer.discard(named)
            return same[0]
        if found is None:
            raise Overtaken
        self.parts.withdrawer.memory.note([found])
        return found

    def _discard(self, export: ExportRow, part: Path, final: Path | None) -> None:
        """Take away what was written, and then forget the export; the ledger keeps it where something is left."""
        remove_folder_durably(part)
        if final is not None:
            remove_folder_durably(final)
        self.parts.withdrawer.discard(export)

    def _blocks(self, models: Sequence[Stage], now: Snapshot) -> dict[int, StageTensors]:
        """Blocks by number, in the order of training, with the head that answers; each artifact was checked."""
        recipe, store = self.parts.recipe, self.parts.store
        chains = [
            blocks_of(recipe, stage, read_chain(store, stage, keys=now.stages, slice_digests=now.digests(stage)))
            for stage in models
        ]
        blocks = mean_of(chains, recipe.adapter if recipe.method.has_adapters else None)
        if recipe.readouts:
            own = self.parts.loaded.get().chain(models, now)[-1].head
            deepest, last = [*blocks.items()][-1]
            blocks[deepest] = replace(last, head={name: tensor.cpu() for name, tensor in own.items()})
        return blocks

    def _form(self, blocks: Mapping[int, StageTensors], members: int) -> _Form:
        """The chain by the names of the class that loads it."""
        recipe, auto_class = self.parts.recipe, self.parts.recipe.task.model
        loaded = bare = bare_model(self.folder, auto_class, labels=self._outputs)
        head, files = None, dict[str, bytes]()
        if recipe.task.pools:
            pooling, (*_, (deepest, last)) = pooling_of(self.folder, recipe), blocks.items()
            head = head_for_transformers(bare, last.head, pooling)
            if head is not None:
                blocks = {**blocks, deepest: replace(last, head=head)}
            elif self.engine != "peft":
                raise InputError(
                    "the export",
                    f"{self.engine} loads no adapter of {type(bare).__name__} that pools like this run "
                    f"(text.pooling: {pooling}) and has a linear head; export it for PEFT, or merged",
                )
            else:
                auto_class, loaded, prefix = "AutoModel", bare.base_model, f"{bare.base_model_prefix}."
                files = sentence_files(linear_of(last.head), pooling, max_length=recipe.text.max_length)
                blocks = {
                    number: StageTensors(
                        block={name.removeprefix(prefix): value for name, value in tensors.block.items()}, head={}
                    )
                    for number, tensors in blocks.items()
                }
        adapter = None if self.merge else self._adapter(loaded, blocks, auto_class, members)
        return _Form(auto_class=auto_class, bare=bare, adapter=adapter, head=head, files=files)

    def _adapter(self, bare: Any, blocks: Mapping[int, StageTensors], auto_class: str, members: int) -> PeftAdapter:
        recipe, engine = self.parts.recipe, self.engine
        adapter = peft_adapter(
            bare,
            adapter_of_mean(recipe.adapter, members),
            blocks,
            auto_class=auto_class,
            base=self._base,
            revision=recipe.revision,
        )
        if engine == "sglang":
            adapter = replace(adapter, config=with_plain_scale(adapter.config))
        if problems := engine_problems(engine, adapter.config, adapter.tensors.keys()):
            raise InputError("the export", [*problems, "export it merged (--merge), or for PEFT"])
        return adapter

    @cached_property
    def _encoder(self) -> Encoder:
        return encoder_for(self.folder, self.parts.recipe)

    @property
    def _outputs(self) -> int | None:
        """Outputs of the head; None: those of the base's configuration."""
        target = self.parts.recipe.task.target
        return None if target.over_vocabulary else target.outputs(self.parts.description.labels)

    @property
    def _base(self) -> str:
        """The base model as who loads the adapter names it."""
        name = self.parts.recipe.base_model
        local = name.startswith(PACKAGE_PREFIX) or Path(name).is_dir()
        return str(self.folder.absolute()) if local else name

    def _write(
        self, part: Path, models: Sequence[Stage], keys: Sequence[str], blocks: Mapping[int, StageTensors], form: _Form
    ) -> None:
        parts, recipe, (stage, *others) = self.parts, self.parts.recipe, models
        files = dict(form.files)
        if form.adapter is None:
            workshop = parts.loaded.get()
            with exact_numerics(workshop.device, recipe.training):  # and no other thread uses the model
                write_merged(
                    workshop.model,
                    blocks,
                    part,
                    base=self.folder,
                    bare=form.bare,
                    encoder=workshop.encoder,
                    labels=parts.description.labels,
                    head=form.head,
                )
        else:
            if form.files:
                copy_beside(self.folder, part, but=("config.json",))  # its tokenizer
            files |= form.adapter.files()
            if isinstance(self._encoder, LanguageEncoder) and self._encoder.date is not None:
                files["chat_template.jinja"] = self._encoder.tokenizer.get_chat_template().encode()
        files |= description_files(
            {
                "run": parts.description.run,
                "shard": stage.shard,
                "prefix": stage.prefix,
                "merged_with": [(other.shard, other.prefix) for other in others],
                "keys": keys,
                "merged": self.merge,
                "task": recipe.task.name,
                "auto_class": form.auto_class,
                "base_model": self._base,
                "base_digest": parts.key_inputs.base_digest,
                "revision": recipe.revision,
                "labels": parts.description.labels,
                "outputs": self._outputs,
                "pad_token_id": self._encoder.pad_token_id,
                "quantization": recipe.training.quantization,
            }
        )
        for name, content in files.items():
            (part / name).parent.mkdir(exist_ok=True)
            (part / name).write_bytes(content)

    def _notices(self, made: Sequence[Exported]) -> Iterator[str]:
        recipe = self.parts.recipe
        models = [model for export in made for model in (export.stage, *export.merged_with)]
        dead = sorted({*range(recipe.partition.shards)} - {model.shard for model in models})
        if dead and self.shard is None:
            yield f"without a live chain, and not exported: shards {', '.join(map(str, dead))}"
        if recipe.method.of_slices:
            yield "the prototypes of slices, which answer beside the model, are not exported"
        if recipe.prediction.ensemble == "sequences":
            yield "of a shard with several live prefixes, the deepest is exported, and the others are not"
        if recipe.training.precision == "bfloat16":
            yield "the run computes in bfloat16; in float32 logits differ by rounding"
        if recipe.training.quantization != "none":
            kind = recipe.training.quantization.removesuffix("bit")
            yield f"the run's base has weights of {kind} bits; load it so, or logits differ (docs/export.md)"
        encoder = None if self.merge else self._encoder
        if isinstance(encoder, LanguageEncoder):  # an engine with the base model's tokenizer differs from the run
            if encoder.turn_end not in (None, encoder.end):
                yield f"a turn of the assistant ends with token {encoder.turn_end}; let engines stop there, too"
            if encoder.date is not None:
                yield (
                    f"the chat template writes the run's date, {encoder.date}; give engines the chat_template.jinja "
                    "beside it"
                )
        if options := made[0].options:
            yield f"start {self.engine} with {' '.join(options)}"


def _same_place(transaction: Transaction, export: ExportRow) -> list[ExportRow]:
    """Exports of the same content to the same place that are not withdrawn."""
    standing = transaction.exports.standing()
    return [each for each in standing if (each.host, each.path) == (export.host, export.path)]


def _problems(recipe: Recipe, *, shard: int | None, merge: bool, engine: Engine) -> Iterator[str]:
    shards = recipe.partition.shards
    if engine not in ENGINES:
        yield f"there is no engine {engine!r}; use {', '.join(ENGINES)}"
    if shard is not None and not 0 <= shard < shards:
        yield f"shard {shard} is none of the run's; they are 0 to {shards - 1}"
    if not recipe.method.trains:
        yield (
            f"method {recipe.method} solves a head for the run's own features, which no other program computes; serve "
            "the run"
        )
    if recipe.readouts and recipe.ridge.layers:
        yield (
            "head: ridge reads states of layers, which no other program hands to a head; make a run with ridge: "
            "{layers: 0}, or serve this one"
        )
    if recipe.readouts == "mean" and shard is not None:
        yield "the shards answer as one model (prediction.ensemble: merged); leave the shard out"
    if not recipe.method.has_adapters and not merge:
        yield (
            f"method {recipe.method.described()} trains the model itself, so there is no adapter; export it merged "
            "(--merge)"
        )
    if merge and recipe.training.quantization != "none":
        yield (
            f"the run was trained on weights of {recipe.training.quantization.removesuffix('bit')} bits, which take no "
            "adapter in, and in the checkpoint's own weights its answers would be others; export the adapter"
        )
