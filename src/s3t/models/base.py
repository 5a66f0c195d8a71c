"""Loading a base model with a task head, and checking a recipe against it before anything is written."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias

import torch
import transformers
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

from s3t.errors import RecipeError
from s3t.models.layers import Float32Linear, block_modules, find_layers, replace_conv1d
from s3t.models.quantized import missing_package, quantize_layers
from s3t.models.source import LOCAL, load_config, unfit
from s3t.recipe import Recipe
from s3t.wording import counted

Pooling: TypeAlias = Literal["mean", "first", "last"]

_MODES: dict[str, Pooling] = {"cls": "first", "lasttoken": "last", "mean": "mean"}
_OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
}


def made_for(folder: Path, config: Any) -> Pooling:
    """The pooling that a base model was made for: sentence-transformers' files or the configuration say so; else a
    causal model's last token, and any other's first. Raises RecipeError for kinds that s3t lacks.
    """
    declared = sorted(folder.glob("*_Pooling/config.json"))
    if declared:
        try:
            content = dict(json.loads(declared[0].read_text()))
        except (OSError, ValueError, TypeError):
            raise unfit(f"text.pooling: {declared[0]} cannot be read; mend it, or set mean, first or last") from None
        old = [name for name in content if name.startswith("pooling_mode_") and content[name] is True]
        said = content.get("pooling_mode") or [_OLD_MODES.get(name, name) for name in old]
        modes = [said] if isinstance(said, str) else said
        if len(modes) != 1 or modes[0] not in _MODES:
            kind = " and ".join(map(str, modes)) or "none"
            raise unfit(f"text.pooling: the base model was made for {kind}, which s3t lacks; set mean, first or last")
        return _MODES[modes[0]]
    if (folder / "config_sentence_transformers.json").is_file() or (folder / "sentence_bert_config.json").is_file():
        return "mean"  # sentence-transformers' own, where no module says another
    if getattr(config, "classifier_pooling", None) in ("cls", "mean"):
        return _MODES[config.classifier_pooling]
    own = type(config)
    causal = own in MODEL_FOR_CAUSAL_LM_MAPPING and own not in MODEL_FOR_MASKED_LM_MAPPING
    return "last" if causal or getattr(config, "is_decoder", False) else "first"


def pooled(states_NTD: Tensor, mask_NT: Tensor | None, pooling: Pooling) -> Tensor:
    """One vector a text, N x D; the mean in float32. The mask is 1 where there is a token; padding is on the right. For
    `first` the states of the first token suffice.
    """
    if pooling == "first":
        return states_NTD[:, 0]
    if mask_NT is None:
        return states_NTD.float().mean(dim=1) if pooling == "mean" else states_NTD[:, -1]
    held_NT = mask_NT.bool()
    if pooling == "mean":
        # Filled, not multiplied: what stands in padding is arbitrary.
        summed_ND = states_NTD.float().masked_fill(~held_NT[:, :, None], 0.0).sum(dim=1)
        return summed_ND / held_NT.sum(dim=1, keepdim=True)
    places_NT = torch.arange(held_NT.shape[1], device=held_NT.device) * held_NT
    return states_NTD[torch.arange(len(held_NT), device=held_NT.device), places_NT.argmax(dim=1)]


class PooledModel(nn.Module):
    """The backbone of a classifier of transformers, a pooling, and one linear module as its head.

    transformers' own classifiers read the first token, mostly through a dense layer, whatever the base was made for.
    The head here is named and has a bias as their last module, so a head that is one linear module is kept.
    """

    def __init__(self, classifier: Any, pooling: Pooling) -> None:
        super().__init__()
        self.base_model_prefix: str = classifier.base_model_prefix
        backbone = classifier.base_model
        if getattr(backbone, "pooler", None) is not None:
            backbone.pooler = nn.Identity()  # nothing reads what it makes
        self.config = backbone.config
        self._supports_sdpa = bool(getattr(type(classifier), "_supports_sdpa", False))
        self.pooling = pooling
        self._head = "score" if hasattr(classifier, "score") else "classifier"
        last = last_linear(classifier)
        self.add_module(self.base_model_prefix, backbone)
        head = Float32Linear(last.in_features, last.out_features, bias=last.bias is not None, dtype=last.weight.dtype)
        self.add_module(self._head, head)

    @property
    def backbone(self) -> Any:
        return self.get_submodule(self.base_model_prefix)

    def set_attn_implementation(self, kind: str) -> None:
        self.backbone.set_attn_implementation(kind)

    def forward(self, **batch: Tensor) -> SimpleNamespace:
        states_NTD = self.backbone(**batch).last_hidden_state
        vectors_ND = pooled(states_NTD, batch.get("attention_mask"), self.pooling)
        return SimpleNamespace(logits=self.get_submodule(self._head)(vectors_ND))


def last_linear(classifier: Any) -> nn.Linear:
    """The module that makes a classifier's logits."""
    backbone = {id(module) for module in classifier.base_model.modules()}
    found: Iterable[Any] = (module for module in classifier.modules() if id(module) not in backbone)
    linears = [module for module in found if isinstance(module, nn.Linear)]
    if not linears or linears[-1].out_features != classifier.config.num_labels:
        raise TypeError(f"the head of {type(classifier).__name__} does not end with a linear module")
    return linears[-1]


ALONE = threading.RLock()
"""Held by code that changes the settings or draws from the generators: a stage while it trains, a pass, the loading of
a model. (transformers sets default types, and draws weights that a checkpoint lacks.) Two at a time would change each
other's bits."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """A base model with an untrained head."""

    model: nn.Module
    """In eval mode: its own dropout and its buffers stay off in training too, so the trunk gives the same output in
    every epoch. In bfloat16 where stages are trained so and leave it as it is, else in float32, as the head is."""
    path: str
    """Full name of the list of its transformer layers."""
    head: tuple[str, ...]
    """Full names of the head's parameters: all that lies outside the backbone, and what of the backbone the checkpoint
    does not carry (a missing pooler). They are drawn anew at every first stage. None where the model's own output layer
    answers, which stays as it is."""
    over_vocabulary: bool = False
    """That layer answers, over the vocabulary, as a language model's."""
    first_token: bool = False
    """The last layer is passed for the first token alone."""
    dtype: torch.dtype = torch.float32
    """Type in which products are computed."""
    positions: int
    """Tokens of a text at most."""
    quantized: bool = False
    """The layers' weights have 4 or 8 bits, and frozen blocks are computed beside them; else merged into copies."""

    @property
    def answers(self) -> int:
        """Numbers that make up an answer: columns of its logits; of a language model, the right token's probability."""
        config: Any = self.model.config
        return int(config.num_labels)

    @property
    def layers(self) -> Any:
        """The transformer layers, counted from 0 at the input."""
        return self.model.get_submodule(self.path)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def width(self) -> int:
        """Width of the hidden states, not of a quantised base: the lesser side of the layers' largest matrix."""
        largest = max(self.layers.parameters(), key=lambda parameter: (parameter.dim() == 2, parameter.numel()))
        return int(min(largest.shape))

    @property
    def last_linear(self) -> tuple[str, nn.Linear]:
        """The linear module at the end of the head, and its full name."""
        owners = dict.fromkeys(name.rpartition(".")[0] for name in self.head)
        modules = [(name, self.model.get_submodule(name)) for name in owners]
        linear = [(name, module) for name, module in modules if isinstance(module, nn.Linear)]
        return [pair for pair in linear if pair[1].out_features == self.answers][-1]

    def head_parameters(self) -> dict[str, nn.Parameter]:
        return {name: self.model.get_parameter(name) for name in self.head}


def check_model(folder: Path, recipe: Recipe) -> None:
    """Check blocks, target modules and text length against the model's configuration alone."""
    config = load_config(folder)
    _check_stack(config, recipe)
    problems: list[str] = []
    if recipe.training.quantization != "none" and (missing := missing_package()) is not None:
        problems.append(f"training.quantization: {recipe.training.quantization} {missing}")
    if getattr(config, "quantization_config", None) is not None:
        problems.append(
            "base_model: its weights are quantised already (quantization_config in its config.json), so no digest of "
            "s3t's covers them in training; name the model that it was made from, and set training.quantization"
        )
        raise unfit(*problems)  # transformers would ask for the package that quantised it
    with ALONE, torch.device("meta"), quiet():
        model = getattr(transformers, recipe.task.model).from_config(config)
    replace_conv1d(model)
    if config.is_encoder_decoder and any(name.endswith("decoder") for name, _ in model.named_modules()):
        raise unfit(f"base_model: {type(model).__name__} is an encoder and a decoder; name a model of one of them")
    path, count = find_layers(model, config.num_hidden_layers), config.num_hidden_layers
    adapter = recipe.block_adapter(count)
    width = adapter.layers_per_slice
    if recipe.blocks * width > count:
        asked = {
            "layers": f"{width} layers are asked for",
            "layers_per_slice": f"{recipe.blocks} slices x {width} layers = {recipe.blocks * width} layers",
        }
        field = recipe.method.width
        problems.append(f"adapter.{field}: {asked[field]}, but the model has {count}; ask for fewer")
    adapted = min(recipe.blocks, count // width) if recipe.method.has_adapters else 0
    for block in range(1, adapted + 1):
        try:
            block_modules(model, path, adapter, block)
        except RecipeError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    positions = _positions(model)
    if recipe.max_length is not None and recipe.max_length > positions:
        section = recipe.task.inputs.section
        problems.append(f"{section}.max_length: {recipe.max_length} exceeds the model's {positions} positions")
    names = (name for name, _ in model.get_submodule(path).named_modules())
    if recipe.training.quantization != "none" and any("experts" in name.split(".") for name in names):
        problems.append(
            f"training.quantization: most weights of {type(model).__name__} are its experts', which stay as they are; "
            "set it to none"
        )
    sides = getattr(config, "image_size", None)
    side = min(sides) if isinstance(sides, list | tuple) else sides
    if side is not None and recipe.image.crop >= side:
        problems.append(f"image.crop: {recipe.image.crop} pixels of an image of {side}; ask for fewer")
    if getattr(config, "attention_type", "original_full") != "original_full":
        problems.append(
            f"base_model: its attention_type is {config.attention_type}: such a model changes to full attention with "
            "the first short text, for good, so its answers hang on what it saw; set original_full in its config.json"
        )
    if problems:
        raise unfit(*problems)


def load_base(folder: Path, recipe: Recipe, *, labels: int) -> Base:
    """Load the model with a head of `labels` outputs."""
    config, attention = load_config(folder), recipe.training.attention
    config.num_labels = labels
    with ALONE, quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # what the checkpoint lacks is drawn; the head is drawn again at each first stage
        model, info = getattr(transformers, recipe.task.model).from_pretrained(
            folder,
            config=config,
            attn_implementation=attention if attention in ("eager", "sdpa") else None,  # None: the model's own
            dtype=torch.float32,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **LOCAL,
        )
        if recipe.task.pools:
            model = PooledModel(model, pooling_of(folder, recipe))
    replace_conv1d(model)
    path = find_layers(model, config.num_hidden_layers)
    backbone = f"{model.base_model_prefix}."
    unloaded = {str(key) for key in info["missing_keys"]} & model.state_dict().keys()  # pooling has removed the pooler
    mismatched = {key if isinstance(key, str) else key[0] for key in info["mismatched_keys"]}
    over_vocabulary = recipe.task.target.over_vocabulary
    # A head of another label set is dropped, and a pooler that the checkpoint lacks is drawn; all else is the model's.
    drawn = {name for name in unloaded if ".pooler." in name}
    lacking = sorted(name for name in unloaded if name.startswith(f"{path}."))
    lacking += sorted(name for name in unloaded - drawn - {*lacking} if name.startswith(backbone))
    lacking += sorted(name for name in mismatched if name.startswith(backbone) or over_vocabulary)
    surplus = {backbone + str(key).removeprefix(backbone) for key in info["unexpected_keys"]}
    stray = sorted(
        key
        for key in surplus
        # Parameters; older versions of transformers saved masks, too.
        if key.startswith(f"{path}.") and key.endswith((".weight", ".bias")) and not key.endswith(_SAVED_MASKS)
    )
    # A sum is finite if all are, and needs no memory.
    broken = [name for name, tensor in model.named_parameters() if not bool(tensor.detach().sum().isfinite())]
    problems = [
        f"base_model: {folder} {fault} {counted(len(names), 'tensor')}{what}, such as {names[0]}; {remedy}"
        for names, fault, what, remedy in (
            (lacking, "lacks", " of its backbone", "it is not a checkpoint of this architecture"),
            (stray, "holds", " that its layers have no place for", "it is not a checkpoint of this architecture"),
            (broken, "holds", " with numbers that are not finite", "get it again, or name another model"),
        )
        if names
    ]
    if problems:
        raise unfit(*problems)
    head = [name for name, _ in model.named_parameters() if not name.startswith(backbone) or name in unloaded]
    if over_vocabulary:
        if unloaded & set(head):
            raise unfit(
                f"base_model: {folder} lacks {', '.join(sorted(unloaded & set(head)))}, so it is no language model; "
                "name one with its output layer"
            )
        head = []
    if getattr(config, "use_cache", False):
        model.config.use_cache = False  # of no use but to write texts, which asks for it
    model.eval()
    model.requires_grad_(False)
    quantization = recipe.training.quantization
    dtype = torch.bfloat16 if recipe.training.precision == "bfloat16" else torch.float32
    if quantization != "none":
        quantize_layers(model.get_submodule(path), quantization, dtype=dtype)
    if (
        dtype == torch.bfloat16 and recipe.method.has_adapters
    ):  # once, so that no step does; states between layers are in it, too
        for name, parameter in model.named_parameters():
            if name not in head and parameter.is_floating_point():  # packed weights are integers
                parameter.data = parameter.data.to(dtype)
    _align(model)
    return Base(
        model=model,
        path=path,
        head=tuple(head),
        over_vocabulary=over_vocabulary,
        first_token="first-token" in recipe.training.shortcuts,
        dtype=dtype,
        positions=_positions(model),
        quantized=quantization != "none",
    )


_SAVED_MASKS = (".attn.bias", ".attention.bias")


def pooling_of(folder: Path, recipe: Recipe) -> Pooling:
    """The pooling of the recipe; with `auto`, that for which the base model in the folder was made."""
    if recipe.text.pooling == "auto":
        return made_for(folder, load_config(folder))
    return recipe.text.pooling


def _align(model: nn.Module) -> None:
    """Move every tensor to memory of torch's own, which is aligned: as loaded, it lies where the file's buffer was.

    Matrix libraries promise the same bits from run to run for equally aligned data alone.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)


def base_digest(base: Base, *, replaced: Mapping[str, nn.Parameter] | None = None) -> str:
    """SHA-256 of every base parameter and buffer, whether blocks are mounted or not. The head's are not base's.

    `replaced`: the base's own parameters where others are in their place.
    """
    head, replaced = set(base.head), replaced or {}
    wrapped = tuple(f"{name}." for name, each in base.model.named_modules() if isinstance(each, BaseTunerLayer))
    layers = tuple(f"{name}base_layer." for name in wrapped)
    digest = hashlib.sha256()
    for name, tensor in (*base.model.named_parameters(), *base.model.named_buffers()):
        if name in head or (name.startswith(wrapped) and not name.startswith(layers)):  # head or adapter
            continue
        tensor = replaced.get(name, tensor)
        # PEFT moves a wrapped module's own tensors down to base_layer.
        own_name = name.replace(".base_layer.", ".")
        digest.update(f"{own_name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _positions(model: Any) -> int:
    """Tokens that the model has positions for; no limit where it does not say."""
    config = model.config
    # DeBERTa's relative positions go on beyond it; MPT has a name of its own.
    names = () if getattr(config, "relative_attention", False) else ("max_position_embeddings", "max_seq_len")
    limits = [said for name in names if (said := getattr(config, name, None) or 0) > 0]
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa's positions start after that of padding.
            limits.append(module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1))
    return min(limits, default=sys.maxsize)


def _check_stack(config: Any, recipe: Recipe) -> None:
    """Refuse a model of texts and images whose language model is a part, with a configuration inside the model's."""
    inner = getattr(config, "text_config", None)
    if hasattr(config, "num_hidden_layers"):
        return
    kind = f"base_model: a {config.model_type} model ({type(config).__name__})"
    if inner is None or recipe.task.inputs.kind == "image":
        problem = f"{kind} has no one stack of transformer layers (num_hidden_layers in its config.json); name another"
    else:
        problem = (
            f"{kind} is a language model and a part for images or sound, and s3t trains a language model alone; name "
            f'a checkpoint of that, whose config.json says "model_type": "{inner.model_type}", as its text_config has '
            "it here"
        )
    raise unfit(problem)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' load report (it warns of the missing head, which is as it should be) off the terminal."""
    verbosity = transformers.logging.get_verbosity()
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        if bars:
            transformers.utils.logging.enable_progress_bar()
