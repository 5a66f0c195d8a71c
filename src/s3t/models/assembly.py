"""A base model and its encoder put together, and tried out before a run is made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from s3t.errors import IsolationError, RecipeError
from s3t.models.base import ALONE, check_model, load_base
from s3t.models.blocks import BlockModel, Model, WholeModel
from s3t.models.encoders import Encoded, Encoder, encoder_for
from s3t.models.language import ROUNDING, WAYS, Way, writes_as_whole_passes
from s3t.models.passes import (
    Batch,
    Packing,
    Passes,
    cut_modules,
    find_sharing,
    pack,
    pack_states,
    packable,
    padded_states,
    run_model,
)
from s3t.models.pooling import PooledModel
from s3t.recipe import Recipe, Shortcut
from s3t.tasks.task import ANSWERED

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
    made = BlockModel if recipe.method.has_adapters else WholeModel
    return made(base, recipe.block_adapter(base.layers.count)), encoder


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
    raise RecipeError("the recipe", dict.fromkeys(problems))


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
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        problems.append(
            f"base_model: the model in {folder} cannot be used for {recipe.task}: {reason}; name another model"
        )


def _try_out(folder: Path, recipe: Recipe) -> Abilities:
    """Mount every block at its initial values; draw the head, and pass inputs of different length."""
    # Trials compare logits closely, to see how the model is made. Quantised weights round more; they are tried last.
    in_float32, quantized = (
        recipe.model_copy(update={"training": recipe.training.model_copy(update={"precision": "float32", **more})})
        for more in ({"quantization": "none"}, {})
    )
    model, encoder = assemble(folder, in_float32, labels=recipe.task.target.outputs(("a", "b")))
    roles = [role for role in recipe.task.inputs.roles if getattr(recipe.columns, role) is not None]
    records = encoder.encode(encoder.trial(roles))
    batch = encoder.collate(records)
    frozen = find_sharing(model.base, encoder.collate(records[:1])).trunk
    asked, wanted = recipe.training, recipe.prediction.writing
    tried = ("packing", "first-token") if asked.shortcuts == "auto" else asked.shortcuts
    shortcuts: list[Shortcut] = []
    writing: Literal["auto", Way] | None = wanted
    with ALONE, torch.no_grad(), torch.random.fork_rng(devices=[]):
        for block in range(1, recipe.blocks + 1):
            with model.mounted({}) as mount:
                mount.add_block(block)
                model.passes.logits(encoder.collate(records[:1]))
        model.reset_head(seed=0)
        problems = [
            *_own_logits(model, batch),
            *_neighbours(model, encoder, records, recipe),
            *_length(model, encoder, records, recipe),
        ]
        borders = [model.border(block) for block in range(1, recipe.blocks + 1)]
        changes = recipe.image.is_augmented or not recipe.method.top_down
        trunk = frozen and not changes and max(borders) > 0 and _can_start_at(borders, model.passes, encoder, records)
        if "packing" in tried and _can_pack(model, batch, asked.attention):
            shortcuts.append("packing")
        if "first-token" in tried and _reads_first(model, batch, asked.attention, packed="packing" in shortcuts):
            shortcuts.append("first-token")
        if model.base.over_vocabulary:
            ways = WAYS if wanted == "auto" else (wanted,)
            writing = next((way for way in ways if _writes(model, way)), None)
    if writing is None:
        problems.append(
            f"prediction.writing: {wanted}: this model then writes otherwise than in passes of a whole text; "
            + ("name another model" if wanted == "auto" else "set it to auto")
        )
    if asked.trunk_cache is True and not trunk:
        what = "this model gives something else when a pass starts at a block's border"
        problems.append(f"training.trunk_cache: {what}; set it to auto")
    if asked.shortcuts != "auto" and (beyond := set(asked.shortcuts) - set(shortcuts)):
        what = f"this model's logits would change with {', '.join(sorted(beyond))}"
        problems.append(f"training.shortcuts: {what}; set it to auto")
    if problems:
        raise RecipeError("the recipe", problems)
    sdpa, width = _has_sdpa(model), model.base.width
    del model  # two of a large one may not fit into memory
    if asked.quantization != "none":
        _try_quantized(folder, quantized, encoder.collate(records[:1]))
    return Abilities(sdpa=sdpa, trunk=trunk, shortcuts=shortcuts, width=width, writing=writing or "auto")


def _neighbours(model: Model, encoder: Encoder, records: Sequence[Encoded], recipe: Recipe) -> Iterator[str]:
    """Yields what is wrong with answers to inputs in one batch: that they hang on each other, say by padding."""
    for each in _attending(model, recipe.training.attention):
        beside = each.passes.logits(encoder.collate(records))
        alone = torch.cat([each.passes.logits(encoder.collate([record])) for record in records])
        moved, spread = (beside - alone).abs().max(), (alone - alone.mean(dim=0)).abs().max()
        if not moved <= ROUNDING * spread + _LAST_BITS * alone.abs().max():
            yield (
                f"base_model: {_name(model)} gives an input other logits beside a longer one in its "
                f"batch (by {moved:.2g}, where inputs differ by {spread:.2g}), so its answers would hang on their "
                "neighbours; name a model that leaves padding out"
            )
            return


def _own_logits(model: Model, batch: Batch) -> Iterator[str]:
    """Yields why a language model's layers and head, passed apart, do not give what the whole model gives."""
    if not model.base.over_vocabulary:
        return
    whole = run_model(model.base.model, batch).logits[batch[ANSWERED]]
    apart = model.passes.logits(batch)
    if not torch.allclose(apart, whole, rtol=1e-3, atol=1e-4 * float(whole.abs().max())):
        yield (
            f"base_model: {_name(model)} gives other logits where its head gets the last layer's states by themselves, "
            "as s3t passes them; name another model"
        )


def _name(model: Model) -> str:
    whole: Any = model.base.model
    return type(whole.backbone if isinstance(whole, PooledModel) else whole).__name__


def _length(model: Model, encoder: Encoder, records: Sequence[Encoded], recipe: Recipe) -> Iterator[str]:
    """Yields why a text of the greatest length does not pass the first layer."""
    if recipe.max_length is None:
        return
    most, record = min(recipe.max_length, _TRIED_LENGTH), records[-1]
    long = {name: value.repeat(most)[:most] if torch.is_tensor(value) else value for name, value in record.items()}
    try:
        model.passes.states(encoder.collate([long]), [min(1, model.passes.top)])
    except _UNFIT as error:
        yield (
            f"{recipe.task.inputs.section}.max_length: the model fails at a text of {most:,} tokens "
            f"({type(error).__name__}); lower it to the number of its positions"
        )


def _writes(model: Model, way: Way) -> bool:
    """True if a language model writes in this way as whole passes do, tried with arbitrary tokens."""
    whole: Any = model.base.model
    words = whole.get_input_embeddings().num_embeddings
    try:
        return writes_as_whole_passes(whole, [number * words // 11 for number in range(1, 11)], way)
    except _UNFIT:
        return False


def _try_quantized(folder: Path, recipe: Recipe, batch: Batch) -> None:
    """Pass an input through the quantised model with each block."""
    model, _ = assemble(folder, recipe, labels=recipe.task.target.outputs(("a", "b")))
    with ALONE, torch.no_grad(), torch.random.fork_rng(devices=[]):
        for block in range(1, recipe.blocks + 1):
            with model.mounted({}) as mount:
                mount.add_block(block)
                if not bool(model.passes.logits(batch).isfinite().all()):
                    raise ValueError(f"with {recipe.training.quantization} weights its outputs are not finite")


def _can_start_at(borders: Sequence[int], passes: Passes, encoder: Encoder, records: Sequence[Encoded]) -> bool:
    batch = encoder.collate(records)
    try:
        whole = passes.logits(batch)
        for border in borders:
            alone = (encoder.collate([record]) for record in records)
            packed = [pack_states(one, passes.states(one, [border])[border]) for one in alone]
            entered = passes.logits(batch, border=border, states=padded_states(batch, packed))
            if not torch.allclose(entered, whole, rtol=1e-3, atol=1e-4):
                return False
    except _UNFIT:
        return False
    return True


def _can_pack(model: Model, batch: Batch, attention: str) -> bool:
    """True if packing changes logits by rounding alone, under every attention.

    Rounding is told from mistakes by comparison with texts that do see each other.
    """
    packing = pack(batch["attention_mask"]) if "attention_mask" in batch else None
    if packing is None:
        return False
    try:
        with _reading_all(model.base.model):
            return all(_packs(each, batch, packing) for each in _attending(model, attention))
    except _UNFIT:
        return False


@contextmanager
def _reading_all(whole: Any) -> Iterator[None]:
    """While within, a pooled model reads every token: what changes others alone shows in one of them too little."""
    own = whole.pooling if isinstance(whole, PooledModel) else None
    try:
        if own is not None:
            whole.pooling = "mean"
        yield
    finally:
        if own is not None:
            whole.pooling = own


def _attending(model: Model, attention: str) -> Iterator[Model]:
    """The model under every attention that the recipe allows, one after another."""
    automatic = ["eager", *(["sdpa"] if _has_sdpa(model) else [])]
    for kind in automatic if attention == "auto" else [attention]:
        if kind != "model":
            changed: Any = model.base.model
            changed.set_attn_implementation(kind)
        yield model


def _packs(model: Model, batch: Batch, packing: Packing) -> bool:
    passes, seeing = model.passes, packing._replace(text=torch.ones_like(packing.text))
    whole = passes.logits(batch)
    error = (passes.logits(batch, packing=packing) - whole).abs().max()
    leak = (passes.logits(batch, packing=seeing) - whole).abs().max()
    return bool(error < ROUNDING * leak) and (not model.base.over_vocabulary or _blind(model, batch, packing))


def _blind(model: Model, batch: Batch, packing: Packing) -> bool:
    """True if no text of a language model changes with the tokens of other texts in its row.

    The errors that `_packs` compares do not show it: wrong positions change logits more than other texts do.
    """
    whole: Any = model.base.model
    passes, ids = model.passes, batch["input_ids"]
    own, others = passes.logits(batch, packing=packing), (ids + 1) % whole.get_input_embeddings().num_embeddings
    for parity in (0, 1):
        kept = (torch.arange(len(ids)) % 2 == parity)[:, None].expand(ids.shape)
        found = passes.logits({**batch, "input_ids": torch.where(kept, ids, others)}, packing=packing)
        moved = (found - own)[kept[batch[ANSWERED]]]
        if not moved.abs().max() <= _LAST_BITS * own.abs().max():
            return False
    return True


def _reads_first(model: Model, batch: Batch, attention: str, *, packed: bool) -> bool:
    """True if the head reads first tokens alone, and a last layer that is passed for them changes logits by rounding
    alone, under every attention; where texts may share rows, there, too.
    """
    base = model.base
    modules = cut_modules(list(base.model.get_submodule(base.layers.path).children())[-1])
    if base.over_vocabulary or ANSWERED in batch or not modules:
        return False
    packing = pack(batch["attention_mask"]) if packed and packable(modules) else None
    ways = (None,) if packing is None else (None, packing)
    try:
        return all(_cuts(each, batch, ways) for each in _attending(model, attention))
    except _UNFIT:
        return False


def _cuts(model: Model, batch: Batch, ways: Sequence[Packing | None]) -> bool:
    all_tokens, first = (Passes(replace(model.base, first_token=cut)) for cut in (False, True))
    whole, states = all_tokens.logits(batch), all_tokens.states(batch, [all_tokens.top])[all_tokens.top]
    states[:, 1:] = torch.nan
    if not torch.equal(all_tokens.logits(batch, border=all_tokens.top, states=states), whole):
        return False  # it reads other tokens, or at least computes with them
    spread = (whole - whole.mean(dim=0)).abs().max()  # texts differ by as much, and a mistake would be as large
    return all(bool((first.logits(batch, packing=way) - whole).abs().max() < ROUNDING * spread) for way in ways)


def _has_sdpa(model: Model) -> bool:
    return bool(getattr(model.base.model, "_supports_sdpa", False))
