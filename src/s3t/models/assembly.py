"""A base model and its encoder put together, and tried out before a run is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from s3t.errors import IsolationError, RecipeError
from s3t.models.base import ALONE, PooledModel, check_model, load_base
from s3t.models.blocks import Model
from s3t.models.encoders import Encoder, encoder_for
from s3t.models.language import ROUNDING, WAYS, Way, writes_as_whole_passes
from s3t.models.passes import (
    Packing,
    Passes,
    Start,
    cut_modules,
    pack,
    pack_states,
    padded_states,
    run_model,
)
from s3t.models.source import unfit
from s3t.recipe import Recipe, Shortcut
from s3t.tasks.task import ANSWERED
from s3t.wording import reason

# What libraries raise when a model does not fit: an architecture without a head for the task, another kind of input,
# a missing package.
_UNFIT = (ValueError, TypeError, KeyError, AttributeError, IndexError, RuntimeError, OSError, ImportError)

_LAST_BITS = 1e-5
"""Largest change of a logit by rounding, as a share of it: texts that a tokenizer does not know may all look alike."""

_TRIED_LENGTH = 4096
"""Tokens up to which a text of the greatest length is tried: attention takes memory with their square."""


def assemble(folder: Path, recipe: Recipe, *, labels: int) -> tuple[Model, Encoder]:
    """The model without blocks, and the encoder of its inputs."""
    encoder = encoder_for(folder, recipe)
    base = load_base(folder, recipe, labels=labels)
    config: Any = base.model.config
    if getattr(config, "pad_token_id", None) is None and not base.over_vocabulary:
        config.pad_token_id = encoder.pad_token_id  # decoders find a text's end by it
    return Model(base, recipe.block_adapter(len(base.layers)) if recipe.method.has_adapters else None), encoder


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Abilities of a model, tested with public inputs alone, and its size."""

    sdpa: bool
    """Attention by torch's scaled_dot_product_attention is available."""
    trunk: bool
    """A pass can start at any block's border: the layers below are the base model's in every stage, without a part of
    the head. From cached states of single records it gives the same logits as a whole pass."""
    shortcuts: list[Shortcut]
    """packing: texts that share a row, masked from each other, have the same logits as in rows of their own.
    first-token: the head reads that token alone, and the last layer can be passed for it alone."""
    width: int
    """Features of a hidden state, which a layer passes to the next."""
    writing: Literal["auto", Way]
    """Way in which a language model writes texts; `auto` for models that write none."""


def check_assembly(folder: Path, recipe: Recipe) -> Abilities:
    """Check that the recipe fits the model: layers, modules, encoder; then a trial of all blocks on a few inputs."""
    problems: list[str] = []
    for check in (check_model, encoder_for):
        with _noted(problems, folder, recipe):
            check(folder, recipe)
    if not problems:
        with _noted(problems, folder, recipe):
            return _try_out(folder, recipe)
    raise unfit(*dict.fromkeys(problems))


@contextmanager
def _noted(problems: list[str], folder: Path, recipe: Recipe) -> Iterator[None]:
    """Note what is wrong with the recipe or the model, instead of stopping at it."""
    try:
        yield
    except RecipeError as error:
        problems += error.problems
    except IsolationError as error:
        problems.append(
            f"adapter.target_modules: {error}; name modules of the attention alone: PEFT takes names of a mixture's "
            "other ones for its experts"
        )
    except _UNFIT as error:
        problem = f"base_model: the model in {folder} cannot be used for {recipe.task}: {reason(error)[:300]}"
        problems.append(f"{problem}; name another model")


def _try_out(folder: Path, recipe: Recipe) -> Abilities:
    """Mount every block at its initial values; draw the head, and pass inputs of different length."""
    # Trials compare logits closely, to see how the model is made. Quantised weights round more; they are tried last.
    quantized = recipe.model_copy(update={"training": recipe.training.model_copy(update={"precision": "float32"})})
    exact = quantized.model_copy(update={"training": quantized.training.model_copy(update={"quantization": "none"})})
    asked, wanted = recipe.training, recipe.prediction.writing
    trial = _Trial(folder, exact)
    writing: Literal["auto", Way] = wanted
    tried = ("packing", "first-token") if asked.shortcuts == "auto" else asked.shortcuts
    shortcuts: list[Shortcut] = []
    with ALONE, torch.no_grad(), torch.random.fork_rng(devices=[]):
        trial.pass_blocks()
        trial.model.reset_head(seed=0)
        problems = [*trial.own_logits(), *trial.neighbours(), *trial.length()]
        trunk = trial.starts_at_borders()
        if "packing" in tried and trial.packs():
            shortcuts.append("packing")
        if "first-token" in tried and trial.reads_first(packed="packing" in shortcuts):
            shortcuts.append("first-token")
        if trial.model.base.over_vocabulary:
            ways = WAYS if wanted == "auto" else (wanted,)
            writing = next((way for way in ways if trial.writes(way)), "auto")
            if writing == "auto":
                problems.append(
                    f"prediction.writing: {wanted}: this model then writes otherwise than in passes of a whole text; "
                    + ("name another model" if wanted == "auto" else "set it to auto")
                )
    if recipe.head == "ridge" and not recipe.ridge.layers and trial.model.base.last_linear[1].bias is None:
        problems.append(
            "head: the last module of this model's head has no bias, which ridge.layers: 0 needs; leave that out"
        )
    if asked.trunk_cache is True and not trunk:
        what = "this model gives something else when a pass starts at a block's border"
        problems.append(f"training.trunk_cache: {what}; set it to auto")
    if asked.shortcuts != "auto" and (beyond := set(asked.shortcuts) - set(shortcuts)):
        what = f"this model's logits would change with {', '.join(sorted(beyond))}"
        problems.append(f"training.shortcuts: {what}; set it to auto")
    if problems:
        raise unfit(*problems)
    sdpa, width = trial.has_sdpa, trial.model.base.width
    del trial  # two of a large model may not fit into memory
    if asked.quantization != "none":
        with ALONE, torch.no_grad(), torch.random.fork_rng(devices=[]):
            if not all(bool(logits.isfinite().all()) for logits in _Trial(folder, quantized).pass_blocks()):
                raise ValueError(f"with {asked.quantization} weights its outputs are not finite")
    return Abilities(sdpa=sdpa, trunk=trunk, shortcuts=shortcuts, width=width, writing=writing)


class _Trial:
    """A model with public inputs. Without gradients, and within the trial's own random generator."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.model, self._encoder = assemble(folder, recipe, labels=recipe.task.target.outputs(("a", "b")))
        self._whole: Any = self.model.base.model
        self._passes = self.model.passes
        self._recipe = recipe
        roles = [role for role in recipe.task.inputs.roles if getattr(recipe.columns, role) is not None]
        self._records = self._encoder.encode(self._encoder.trial(roles))
        self._batch = self._encoder.collate(self._records)
        self._alone = [self._encoder.collate([record]) for record in self._records]
        self.has_sdpa = bool(getattr(self._whole, "_supports_sdpa", False))
        backbone = self._whole.backbone if isinstance(self._whole, PooledModel) else self._whole
        self._name = type(backbone).__name__

    def pass_blocks(self) -> list[Tensor]:
        """Logits of an input with each block."""
        found = []
        for block in range(1, self._recipe.blocks + 1):
            with self.model.mounted({}) as mount:
                mount.add_block(block)
                found.append(self._passes.logits(self._alone[0]))
        return found

    def neighbours(self) -> Iterator[str]:
        """Yields what is wrong with answers to inputs in one batch: that they hang on each other, say by padding."""
        for _ in self._attentions():
            beside = self._passes.logits(self._batch)
            alone = torch.cat([self._passes.logits(one) for one in self._alone])
            moved, spread = (beside - alone).abs().max(), (alone - alone.mean(dim=0)).abs().max()
            if not moved <= ROUNDING * spread + _LAST_BITS * alone.abs().max():
                yield (
                    f"base_model: {self._name} gives an input other logits beside a longer one in its "
                    f"batch (by {moved:.2g}, where inputs differ by {spread:.2g}), so its answers would hang on their "
                    "neighbours; name a model that leaves padding out"
                )
                return

    def own_logits(self) -> Iterator[str]:
        """Yields why a language model's layers and head, passed apart, do not give what the whole model gives."""
        if not self.model.base.over_vocabulary:
            return
        whole = run_model(self._whole, self._batch).logits[self._batch[ANSWERED]]
        apart = self._passes.logits(self._batch)
        if not torch.allclose(apart, whole, rtol=1e-3, atol=1e-4 * float(whole.abs().max())):
            yield (
                f"base_model: {self._name} gives other logits where its head gets the last layer's states by "
                "themselves, as s3t passes them; name another model"
            )

    def length(self) -> Iterator[str]:
        """Yields why a text of the greatest length does not pass the first layer."""
        if self._recipe.max_length is None:
            return
        most, record = min(self._recipe.max_length, _TRIED_LENGTH), self._records[-1]
        long = {name: value.repeat(most)[:most] if torch.is_tensor(value) else value for name, value in record.items()}
        try:
            self._passes.states(self._encoder.collate([long]), [min(1, self._passes.top)])
        except _UNFIT as error:
            yield (
                f"{self._recipe.task.inputs.section}.max_length: the model fails at a text of {most:,} tokens "
                f"({type(error).__name__}); lower it to the number of its positions"
            )

    def writes(self, way: Way) -> bool:
        """True if a language model writes in this way as whole passes do, tried with arbitrary tokens."""
        words = self._whole.get_input_embeddings().num_embeddings
        with suppress(*_UNFIT):
            return writes_as_whole_passes(self._whole, [number * words // 11 for number in range(1, 11)], way)
        return False

    def starts_at_borders(self) -> bool:
        """True if the layers below each block are the base model's in every stage, and a pass can start there."""
        recipe, passes = self._recipe, self._passes
        borders = [self.model.border(block) for block in range(1, recipe.blocks + 1)]
        changes = recipe.image.is_augmented or not recipe.method.top_down
        if changes or max(borders) == 0:
            return False
        with suppress(*_UNFIT):
            whole = passes.logits(self._batch)
            for border in borders:
                packed = [pack_states(one, passes.states(one, [border])[border])[0] for one in self._alone]
                entered = passes.logits(self._batch, Start(border, padded_states(self._batch, packed)))
                if not torch.allclose(entered, whole, rtol=1e-3, atol=1e-4):
                    return False
            return True
        return False

    def packs(self) -> bool:
        """True if packing changes logits by rounding alone, under every attention.

        Rounding is told from mistakes by comparison with texts that do see each other. A pooled model reads every token
        meanwhile: what changes others alone shows in one of them too little.
        """
        packing = pack(self._batch["attention_mask"]) if "attention_mask" in self._batch else None
        pooling = getattr(self._whole, "pooling", None)
        if packing is None:
            return False
        try:
            self._whole.pooling = "mean"
            return all(self._packs_so(packing) for _ in self._attentions())
        except _UNFIT:
            return False
        finally:
            self._whole.pooling = pooling

    def _packs_so(self, packing: Packing) -> bool:
        passes, batch, seeing = self._passes, self._batch, packing._replace(text=torch.ones_like(packing.text))
        whole = passes.logits(batch)
        error = (passes.logits(batch, packing=packing) - whole).abs().max()
        leak = (passes.logits(batch, packing=seeing) - whole).abs().max()
        return bool(error < ROUNDING * leak) and (not self.model.base.over_vocabulary or self._is_blind(packing))

    def _is_blind(self, packing: Packing) -> bool:
        """True if no text of a language model changes with the tokens of other texts in its row.

        The errors that `_packs_so` compares do not show it: wrong positions change logits more than other texts do.
        """
        passes, batch, ids = self._passes, self._batch, self._batch["input_ids"]
        own = passes.logits(batch, packing=packing)
        others = (ids + 1) % self._whole.get_input_embeddings().num_embeddings
        for parity in (0, 1):
            kept = (torch.arange(len(ids)) % 2 == parity)[:, None].expand(ids.shape)
            found = passes.logits({**batch, "input_ids": torch.where(kept, ids, others)}, packing=packing)
            moved = (found - own)[kept[batch[ANSWERED]]]
            if not moved.abs().max() <= _LAST_BITS * own.abs().max():
                return False
        return True

    def reads_first(self, *, packed: bool) -> bool:
        """True if the head reads first tokens alone, and a last layer that is passed for them changes logits by
        rounding alone, under every attention; where texts may share rows, there, too.
        """
        base, batch = self.model.base, self._batch
        if base.over_vocabulary or ANSWERED in batch or not cut_modules(base.layers[-1]):
            return False
        packing = pack(batch["attention_mask"]) if packed and cut_modules(base.layers[-1], packed=True) else None
        all_tokens, first = (Passes(replace(base, first_token=cut)) for cut in (False, True))
        with suppress(*_UNFIT):
            for _ in self._attentions():
                whole, states = all_tokens.logits(batch), all_tokens.states(batch, [all_tokens.top])[all_tokens.top]
                states[:, 1:] = torch.nan
                if not torch.equal(all_tokens.logits(batch, Start(all_tokens.top, states)), whole):
                    return False  # it reads other tokens, or at least computes with them
                spread = (whole - whole.mean(dim=0)).abs().max()  # a mistake would be as large as texts differ
                for way in (None,) if packing is None else (None, packing):
                    if not (first.logits(batch, packing=way) - whole).abs().max() < ROUNDING * spread:
                        return False
            return True
        return False

    def _attentions(self) -> Iterator[str]:
        """Yields every attention that the recipe allows, under which the model then computes."""
        automatic = ["eager", *(["sdpa"] if self.has_sdpa else [])]
        asked = self._recipe.training.attention
        for kind in automatic if asked == "auto" else [asked]:
            if kind != "model":
                self._whole.set_attn_implementation(kind)
            yield kind
