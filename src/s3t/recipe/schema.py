"""The recipe: its parts, and what must fit between them. Frozen, every field documented, unknown fields refused."""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from string import Formatter
from typing import Annotated, Any, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Discriminator,
    Field,
    GetPydanticSchema,
    PlainSerializer,
    SecretStr,
    Tag,
    ValidationError,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError, core_schema

from s3t.core import (
    METHODS,
    AsNeeded,
    FixedOrders,
    Forests,
    Growth,
    Inventory,
    Method,
    Order,
    StageCosts,
    Trainable,
    method_named,
)
from s3t.descriptions import describe
from s3t.errors import SettingError, listed
from s3t.orders import DEFAULT_SELECTOR, SELECTORS, Setting, no_selector, prior_rows, selector_problem
from s3t.orders.choice import MAX_FULL_SLICES
from s3t.orders.setting import DEFAULT_DELETIONS, DEFAULT_HORIZON, MOST_NUMBERS
from s3t.recipe.labels import alike, name_of, refuse_untyped
from s3t.tasks import TASKS, Task, task_named


def _refuse(*kinds: type) -> BeforeValidator:
    """Refuses values of some types, alone, in a list or in a mapping: pydantic would take true for 1."""

    def checked(value: Any) -> Any:
        for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
            checked(inner)
        if isinstance(value, kinds):
            raise ValueError(f"{value!r} is no number")
        return value

    return BeforeValidator(checked)


NUMBER, NUMBERS = _refuse(bool), _refuse(bool, str)
"""Validators of a number, and of lists and mappings of numbers: "0.5" in their place hides mistakes."""
Int: TypeAlias = Annotated[int, NUMBER]
Float: TypeAlias = Annotated[float, NUMBER]
Bytes: TypeAlias = Annotated[ByteSize, NUMBER]
LabelKey: TypeAlias = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]
"""A label as the key of a mapping, which YAML may read as a number."""


class Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra=describe, hide_input_in_errors=True, allow_inf_nan=False
    )


# An adapter is exact under two conditions. Its initial tensors depend on a seed and public base weights alone, and its
# training leaves every base tensor unchanged. A new PEFT option is refused until somebody has read what it does.
_CHANGES_BASE = "it rewrites the base weights, so switching the block off would not give back the pre-trained layer"
_FITTED = (
    "it is fitted on the training data before the first step, so records would leak across slices and "
    "could not be taken out"
)

REFUSED_INITS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("pissa", "olora", "loftq"), _CHANGES_BASE),
    **dict.fromkeys(("eva", "corda", "lora_ga"), _FITTED),
}
_REFUSED: Final[Mapping[str, str]] = {
    "bias": (
        "it trains the base model's own biases, which all blocks share and which would stay changed when a block is "
        "switched off; use none"
    ),
    "modules_to_save": (
        "it trains whole base modules across stages; the task head is trained and stored per stage already, so leave "
        "it out"
    ),
}
MAX_SEED = 2**63 - 1
MOST_MERGED = 256
"""Slices whose models may be merged: what they leave is named by all of them, and PostgreSQL bounds names."""
_OF_EXPORT = ("{name}", "{path}", "{host}")
"""Placeholders of `deletion.export_hook`."""
DEFAULT_THRESHOLD = 0.5


def _method_name(value: Any) -> Any:
    if not isinstance(value, str) or value not in METHODS:
        *names, last = map(repr, METHODS)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(names)} or {last}"})
    return value


def _by_name(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    refuse_untyped(value, "groups")
    named = [str(name) if isinstance(name, int) else name for name in value]
    repeated = [name for name, count in Counter(named).items() if count > 1]
    if repeated:
        raise ValueError(f"groups {repeated} are declared more than once")
    for group in alike(name for name in named if isinstance(name, str)):
        raise ValueError(f"groups {group!a} differ in blanks or Unicode form alone; keep one of them")
    return dict(zip(named, value.values(), strict=True))


class Group(Section):
    """A declared column sends records to declared slices, and declared probabilities say which lose records: a prior
    that was counted would be fitted on the records. Checked by the recipe, which knows slices and columns.
    """

    model_config = ConfigDict(allow_inf_nan=True)  # said of the group that has it

    column: str = Field(min_length=1)
    """The column of the data that names each record's group. Never a feature; it may be a classification's label."""
    slices: Annotated[dict[str, tuple[Annotated[int, NUMBERS], ...]], BeforeValidator(_by_name)]
    """Slices of a shard over which each group's records are spread. Every slice is in exactly one group."""
    deletion: Annotated[dict[str, Annotated[float, NUMBERS]], BeforeValidator(_by_name)]
    """Probability that a given record of each group is deleted. Only the ratios count."""

    def among(self, name: str) -> tuple[int, ...]:
        return tuple(sorted(self.slices[name]))

    def prior(self) -> tuple[float, ...]:
        """Probability of each slice of a shard to be hit by a deletion. Slices count as equally large: how many records
        a group has is not declared, and must not be counted.

        >>> Group(column="age", slices={"young": [0], "old": [1, 2]}, deletion={"young": 0.3, "old": 0.15}).prior()
        (0.5, 0.25, 0.25)
        """
        weights = {index: self.deletion[name] for name, indices in self.slices.items() for index in indices}
        largest = max(weights.values())  # of several huge weights the sum would not be finite
        scaled = [weights[index] / largest for index in sorted(weights)]
        total = math.fsum(scaled)
        return tuple(weight / total for weight in scaled)

    def problems(self, slices: int) -> Iterator[str]:
        """Problems of the group in shards of `slices` slices, each with its field and the remedy."""
        if "" in self.slices or "" in self.deletion:
            yield "partition.group: a group has an empty name; an empty cell names no group, so give it another"
        for name in sorted(self.slices.keys() - self.deletion.keys()):
            yield f"partition.group.deletion: group {name!r} is not there; say how probable its deletions are"
        where = "partition.group.slices"
        for name in sorted(self.deletion.keys() - self.slices.keys()):
            yield f"{where}: group {name!r} is not there; give it slices, or leave it out of deletion"
        given = Counter(index for indices in self.slices.values() for index in indices)
        for name in (name for name, indices in self.slices.items() if not indices):
            yield f"{where}: group {name!r} has no slice; give it one, or leave it out"
        if outside := {index for index in given if not 0 <= index < slices}:
            among = f"not among the slices 0 to {slices - 1}; correct it or partition.slices"
            yield f"{where}: {_listed(outside)} {among}"
        if twice := {index for index, count in given.items() if count > 1} - outside:
            yield f"{where}: {_listed(twice)} given more than once; a slice is in exactly one group"
        if left := set(range(slices)) - set(given):
            yield f"{where}: {_listed(left)} in no group; a slice is in exactly one group"
        where = "partition.group.deletion"
        for name, weight in self.deletion.items():
            if not (math.isfinite(weight) and weight >= 0):
                yield f"{where}: {name!r} has {weight}; give a finite number, 0 or above"
        if not any(self.deletion.values()):
            yield f"{where}: no group is above 0; without groups, all slices are equally probable"


def _listed(indices: Iterable[int]) -> str:
    """Slices with their verb: slice 3 is; slices 3, 4 are."""
    numbers = sorted(indices)
    return f"slice {numbers[0]} is" if len(numbers) == 1 else f"slices {listed(list(map(str, numbers)))} are"


class Partition(Section):
    """Split of the records. Depends on each record's id or subject, and its group, alone."""

    shards: Int = Field(default=3, ge=1, le=100_000)
    """m: members of the ensemble, each trained on its own records."""
    slices: Int = Field(default=4, ge=1, le=10_000)
    """L: slices a shard; also the number of blocks."""
    salt: SecretStr | None = Field(default=None, min_length=1)
    """The secret that assigns records to slices. Drawn at init if absent; kept in the run, mode 0600."""
    group: Group | None = None
    """Sends records to declared slices of their shard."""


class MethodSettings(Section):
    """The system: parameters that a stage trains, its starting point, and the parts of a model. See `core.Method`."""

    name: Annotated[str, BeforeValidator(_method_name)] = "s3t"
    """s3t: stage k trains block k, the blocks before it frozen (the paper's). sisa: each stage trains the whole adapter
    on (Bourtoule et al. 2021). protosisa: sisa, with class means of the base model's features (Yan et al. 2022). full:
    one adapter, on the one slice of the one shard. ridge: no training; one linear head is solved (see `ridge`)."""
    replay: Float = Field(default=1.0, ge=0.0, le=1.0)
    """s3t: share of the earlier slices' records that a stage sees again, by keyed hash. 1: all, as the paper."""
    direction: Literal["top-down", "bottom-up"] = "top-down"
    """s3t: the first stage trains the top block (the paper's) or the bottom one."""
    trainable: Trainable = "adapter"
    """sisa, protosisa, full: train an adapter, or all parameters; then `adapter` has no effect."""


class Sequences(Section):
    """The orders in which a shard's slices are trained."""

    budget: Annotated[int | None, NUMBERS] = Field(default=None, ge=1)
    """B: orders a shard. By default L, at most 4; with selector full, all L!."""
    selector: str = DEFAULT_SELECTOR
    """Algorithm that chooses the B orders: survival (ours); the paper's cyclic, cyclic-adjacent, bms, conditional,
    sorted-cyclic, random and full."""
    prior: Annotated[list[float] | list[list[float]] | None, NUMBERS] = None
    """Declared probability that a deletion in a shard falls on each slice: L numbers, or m rows of L; a row adds up to
    1. By default uniform, or what partition.group declares."""
    vary_by_shard: bool = False
    """Give shards different orders of the same quality."""
    horizon: Annotated[list[Annotated[int, Field(ge=1, le=10_000)]], NUMBERS] = Field(
        default=list(DEFAULT_HORIZON), min_length=1
    )
    """survival: numbers of deletions in a shard over which the expected depth is averaged."""
    values: Annotated[list[float] | None, NUMBERS] = None
    """survival: F(1)..F(L), the value of a shard with k live slices, non-decreasing. By default k."""
    deletions: Int = Field(default=DEFAULT_DELETIONS, ge=1, le=10_000)
    """bms: the t of its score."""
    seed: Int = Field(default=0, ge=0, le=MAX_SEED)
    """Seed of random selectors, of survival's samples, and of vary_by_shard."""

    @field_validator("selector")
    @classmethod
    def _selector_exists(cls, value: str) -> str:
        if value not in SELECTORS:
            raise ValueError(no_selector(value))
        return value


class Adapter(Section):
    """The PEFT adapter that a block is made of."""

    kind: Literal["lora", "ia3"] = "lora"
    """lora, or ia3 (rank, alpha, dropout and the LoRA switches do not apply to it)."""
    layers_per_slice: Int = Field(default=1, ge=1, le=10_000)
    """Method s3t: transformer layers a block. Layers left over at the bottom stay as pre-trained."""
    layers: Annotated[Literal["all"] | Annotated[int, Field(ge=1, le=10_000)], NUMBER] = "all"
    """The other methods: transformer layers of the adapter, from the top."""
    target_modules: list[str] | Literal["all-linear"] = "all-linear"
    """Linear modules to adapt, by last name (query) or longer tail (attention.output.dense)."""
    feedforward_modules: list[str] = Field(default=[])
    """IA3 alone: target modules that scale their input instead of their output."""
    rank: Int = Field(default=16, ge=1, le=4_096)
    """LoRA rank r."""
    alpha: Float = Field(default=32.0, gt=0, le=1_000_000)
    """LoRA alpha; the update is scaled by alpha/r (rsLoRA: alpha/sqrt(r))."""
    dropout: Float = Field(default=0.0, ge=0.0, lt=1.0)
    """Dropout before the LoRA matrices, in training."""
    use_rslora: bool = False
    """Scale by alpha/sqrt(r) (arXiv 2312.03732)."""
    use_dora: bool = False
    """Decompose weights into magnitude and direction (arXiv 2402.09353)."""
    init_lora_weights: bool | str = True
    """true or gaussian. Inits that change base weights or are fitted on data are refused."""
    bias: str = "none"
    """none; anything else is refused."""
    modules_to_save: list[str] | None = None
    """Refused; the task head is trained and stored per stage already."""

    @field_validator("init_lora_weights")
    @classmethod
    def _init_is_exact(cls, value: bool | str) -> bool | str:
        if value is True or value == "gaussian":
            return value
        name = str(value).lower()
        reasons = (why for refused, why in REFUSED_INITS.items() if name == refused or name.startswith(f"{refused}_"))
        reason = next(reasons, "it is not on the list of inits known to be exact")
        raise ValueError(f"init_lora_weights {value!r} is refused: {reason}; use true or gaussian")

    @field_validator("bias", "modules_to_save")
    @classmethod
    def _base_stays(cls, value: Any, info: ValidationInfo) -> Any:
        if value not in ("none", None, []):
            raise ValueError(f"{info.field_name} {value!r} is refused: {_REFUSED[info.field_name or '']}")
        return value

    @model_validator(mode="after")
    def _feedforward_is_targeted(self) -> Self:
        if self.feedforward_modules and self.kind != "ia3":
            raise ValueError("feedforward_modules belongs to IA3; take it out or set kind: ia3")
        stray = [name for name in self.feedforward_modules if name not in self.target_modules]
        if stray and self.target_modules != "all-linear":
            raise ValueError(f"feedforward_modules {stray} are not among target_modules; add them there")
        return self


class Text(Section):
    """Tokenisation of text."""

    max_length: Int = Field(default=128, ge=1, le=1_000_000)
    """Tokens a record, special ones included; longer texts are cut."""
    special_tokens: Literal["plain", "control"] = "plain"
    """plain: the letters of a control token, such as [SEP], are letters in a text. control: they are the token."""
    pooling: Literal["auto", "mean", "first", "last"] = "auto"
    """Token states that the linear head reads. auto: what the base model was made for; resolved at init and kept."""


class Language(Section):
    """Tokenisation and loss of language models."""

    max_length: Int = Field(default=512, ge=2, le=1_000_000)
    """Tokens a record, special ones included; longer ones are cut at their end."""
    special_tokens: Literal["plain", "control"] = "plain"
    """plain: the letters of a control token, such as <|im_end|>, are letters in a text. control: they are the token."""
    date: datetime.date | None = None
    """The day that a chat template writes, if it asks for one. null: that of init; resolved there and kept."""
    longer: Literal["cut", "refuse"] = "cut"
    """cut: cut longer records, and count them at init. refuse: init takes no data with longer records."""
    loss: Literal["completion", "all"] = "completion"
    """Tokens that are learned: completions and the assistant's turns, with the end of the text; or all."""


class Image(Section):
    """Image preprocessing, where the base model's folder has no preprocessor_config.json."""

    mean: Annotated[list[Annotated[float, Field(ge=-1_000, le=1_000)]], NUMBER] = Field(default=[0.5])
    """Mean a channel, after division by 255; one number serves all channels."""
    std: Annotated[list[Annotated[float, Field(gt=0, le=1_000)]], NUMBER] = Field(default=[0.5])
    """Standard deviation a channel, after division by 255; one number serves all channels."""
    crop: Int = Field(default=0, ge=0, le=1_024)
    """Pixels by which a training image is shifted at most, drawn for each record and epoch; edges are mirrored."""
    flip: bool = False
    """Mirror training images left to right with probability 1/2, drawn for each record and epoch."""

    @property
    def is_augmented(self) -> bool:
        """True if a record's pixels differ from epoch to epoch."""
        return self.crop > 0 or self.flip


class Ridge(Section):
    """Features for which method ridge, and head: ridge, solve a head."""

    layers: Int = Field(default=3, ge=0, le=1_000)
    """Layers whose states are joined: the last, and others at equal distances below it. 0, of head: ridge: what the
    last module of the model's own head reads, whose place the solved head then takes."""
    projection: Int = Field(default=1024, ge=0, le=20_000)
    """More features, by a drawn projection of the last layer's and a ReLU (RanPAC, arXiv 2307.02251); 0: none."""


Shortcut: TypeAlias = Literal["packing", "first-token"]


class TrainingSettings(Section):
    """Training of one stage. Every stage starts with a fresh optimiser, schedule and random generator."""

    class_weight: Literal["balanced"] | dict[LabelKey, Annotated[Float, Field(gt=0, le=1e6)]] | None = None
    """Classification: weight of a record's loss by its label, {fraud: 5}; 1 if not named. balanced: inverse to the
    label's count in the stage's own slices."""
    epochs: Int = Field(default=4, ge=0, le=10_000)
    """Passes over the records of the prefix, a stage."""
    batch_size: Int = Field(default=32, ge=1, le=1_000_000)
    """Records a step."""
    micro_batch: Int | None = Field(default=None, ge=1, le=1_000_000)
    """Records a pass, whose gradients a step adds up in order; null: one pass a step."""
    checkpointing: bool = False
    """Compute layers again in the backward pass: less memory, about a third more time, the same bits."""
    learning_rate: Float = Field(default=2e-3, gt=0, le=1_000)
    """Peak learning rate of AdamW; of language models by default 0.0002."""
    head_learning_rate: Float | None = Field(default=None, gt=0, le=1_000)
    """Peak learning rate of the head; null: the same."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Learning rate after warm-up."""
    warmup: Float = Field(default=0.06, ge=0.0, le=1.0)
    """Share of the stage's steps over which the learning rate rises from 0."""
    weight_decay: Float = Field(default=0.0, ge=0.0, le=1_000)
    """AdamW's weight decay, on matrices alone."""
    max_grad_norm: Float | None = Field(default=1.0, gt=0, le=1_000_000_000)
    """Gradients are scaled down to this norm; null: never."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products and frozen weights; what is trained is float32. auto: bfloat16 where the processor
    has it; resolved at init and kept."""
    quantization: Literal["none", "8bit", "4bit"] = "none"
    """Bits of the layers' frozen weights, by bitsandbytes: 8bit (a scale a row), or 4bit (NF4, double quantisation)."""
    threads: Annotated[Literal["auto"] | Annotated[int, Field(ge=1, le=4096)], NUMBER] = "auto"
    """Processor threads of a stage and of a prediction; another number can give other bits. auto: by the model's width,
    at most the cores there are; resolved at init and kept."""
    attention: Literal["auto", "eager", "sdpa", "model"] = "auto"
    """Attention kernel: eager (matrix products), sdpa (torch's), or model (transformers' choice). auto: eager in
    bfloat16 on a CPU, else sdpa where the model has it; resolved at init and kept."""
    shortcuts: Literal["auto"] | list[Shortcut] = "auto"
    """packing: texts of a batch share rows, each masked from the others. first-token: if the head reads the first token
    alone, the last layer's feed-forward part gets no other. auto: all that a trial finds right; kept at init."""
    trunk_cache: Literal["auto"] | bool = "auto"
    """Compute the layers below a block once a slice. auto: where a trial at init allows it; kept."""
    cache_memory: Bytes = Field(default=ByteSize(2 * 2**30), ge=0, le=2**50)
    """Memory of the trunk cache, for each process, as 4GiB or bytes."""
    cache_disk: Bytes = Field(default=ByteSize(32 * 2**30), ge=0, le=2**50)
    """Disk in the run folder for the rest of the trunk cache."""
    checkpoint_minutes: Float | None = Field(default=10.0, gt=0, le=10_000)
    """Minutes of a stage's training from one checkpoint to the next; after a kill it goes on from there, on a machine
    that makes the same bits. null: none."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Training device. auto: a GPU if there is one."""
    seed: Int = Field(default=0, ge=0, le=MAX_SEED)
    """All randomness of training derives from it, the shard and the prefix."""


class Prediction(Section):
    """Ensemble prediction."""

    ensemble: Literal["shards", "sequences", "merged"] = "shards"
    """Members: each shard's deepest live prefix, or all live prefixes; shards weigh alike. merged: one model with the
    mean of the shards' weights, and one head (head: ridge); until it is there, the shards answer."""
    aggregation: Literal["logits", "probabilities", "vote"] = "logits"
    """Mean of logits, mean of probabilities, or majority vote over the shards."""
    threshold: Float = Field(default=DEFAULT_THRESHOLD, gt=0, lt=1)
    """Multi-label tasks: least probability at which a record is given a label."""
    answers: Literal["labels", "probabilities"] = "probabilities"
    """Content of an answer: its label alone, or the probability of every label, too."""
    select: Literal["depth", "validation"] = "depth"
    """Live order of a shard that serves: the deepest one, or the best one on `validation`."""
    validation: str | None = None
    """File of public records with labels, none of them the run's; init keeps a copy."""
    sisa_weight: Float = Field(default=0.5, ge=0.0, le=1.0)
    """protosisa: weight of a shard's model; prototypes have the rest."""
    prototypes_alone: bool = False
    """protosisa: prototypes answer for a dead shard, unlike in the paper."""
    batch_size: Int = Field(default=64, ge=1, le=1_000_000)
    """Rows a forward pass: inputs; above the layers that members share, inputs times members."""
    writing: Literal["auto", "batched", "single", "uncached"] = "auto"
    """Language models write texts side by side, each by itself, or each without a cache (slow). auto: the first in
    which init finds the model right."""
    adapter_memory: Bytes = Field(default=ByteSize(2**30), ge=0, le=2**50)
    """Memory for blocks, heads, merged weights and copies between answers, as 512MiB or bytes."""
    merged_memory: Bytes = Field(default=ByteSize(2**29), ge=0, le=2**50)
    """Members answer with merged weights if those of all shards at full depth fit here and into `adapter_memory`:
    faster, other last bits. 0: never."""


class BelowDepth(Section):
    """Repair when a shard serves with fewer slices."""

    model_config = ConfigDict(populate_by_name=True)

    below_depth: Int = Field(alias="below-depth", ge=1, le=10_000)
    """Slices; a shard that does not answer serves with 0."""


class Level(Section):
    """A level of service."""

    mean_depth: Float = Field(default=1.0, gt=0, le=10_000)
    """Slices that a shard serves with after its repairs, at least."""
    after_deletion: Int = Field(default=0, ge=0, le=5_000)
    """Slices right after any one deletion, at least, up to L / 2. 1: no deletion silences a repaired shard."""


class RepairAsNeeded(Section, AsNeeded):
    """Repair what a main chain and a few spares lack; the run's orders follow from this in the place of `sequences`."""

    policy: Literal["as-needed"]
    """Its name."""
    level: Level | None = None
    """A level of service, in place of depth and spares: the cheapest chains that reach it are computed when the recipe
    is read."""

    @model_validator(mode="before")
    @classmethod
    def _level_is_resolved(cls, content: Any) -> Any:
        """Chains of a level that is given alone. What is wrong with its numbers is said of its fields."""
        if not isinstance(content, Mapping) or content.get("level") is None or AsNeeded.model_fields.keys() & content:
            return content
        try:
            level = Level.model_validate(content["level"])
        except ValidationError:
            return {**content, "depth": 1}
        chains = AsNeeded.keeping(mean_depth=level.mean_depth, after_deletion=level.after_deletion)
        return {**content, **vars(chains)}

    def problems(self, slices: int) -> Iterator[str]:
        """Numbers that do not fit each other, or shards of L slices; each with its field."""
        if misfits := list(self.misfits(slices)):
            yield from (f"deletion.repair: {problem}" for problem in misfits)
            return
        if self.level is None:
            return
        where, level, kept = "deletion.repair.level", self.level, self.least_after_hit(slices)
        if self.depth < level.mean_depth:
            yield f"{where}.mean_depth {level.mean_depth:g}: depth is {self.depth}; take one of them out"
        if kept < level.after_deletion:
            yield (
                f"{where}.after_deletion {level.after_deletion}: chains of {slices} slices with spares of "
                f"{self.spare_depth} keep {kept}; ask for at most {slices // 2}, and leave out depth and spares"
            )


def _policy_kind(value: Any) -> str:
    named = isinstance(value, Mapping) and not {"below-depth", "below_depth"}.isdisjoint(value)
    if named or isinstance(value, BelowDepth):
        return f"{TAGGED}below-depth"
    return f"{TAGGED}as-needed" if isinstance(value, RepairAsNeeded | Mapping) else f"{TAGGED}name"


TAGGED = "kind: "
"""Beginning of the tag of an alternative, which is no part of a field's name."""

RepairPolicy: TypeAlias = Annotated[
    Annotated[Literal["manual", "on-exhaustion", "eager"], Tag(f"{TAGGED}name")]
    | Annotated[BelowDepth, Tag(f"{TAGGED}below-depth")]
    | Annotated[RepairAsNeeded, Tag(f"{TAGGED}as-needed")],
    Discriminator(_policy_kind),
]


class DeletionSettings(Section):
    """Deletion of records."""

    repair: RepairPolicy = "on-exhaustion"
    """When a deletion also repairs. on-exhaustion: if no shard answers (the paper's). manual: never. below-depth: k: if
    a shard has fewer than k slices. eager: if a stage was lost. policy: as-needed: if a chain or spare lacks one."""
    erase_within: Float = Field(default=0.0, ge=0.0, le=31_536_000.0)
    """Seconds after a deletion within which its slices are rewritten; 0: before it returns. Stages are removed at once.
    With a larger number the operator must run `s3t erase` in time, or use the run."""
    export_hook: list[str] | None = None
    """Command that withdraws an export with a deleted record in it: program and arguments, without a shell; {name},
    {path} and {host} stand for the export's. null: the operator says so, with `s3t export RUN --withdrawn NAME`."""

    @field_validator("export_hook")
    @classmethod
    def _hook_is_a_command(cls, arguments: list[str] | None) -> list[str] | None:
        if arguments is None:
            return None
        program, *rest = arguments or [""]
        strange = [name for name in re.findall(r"\{\w+\}", " ".join(arguments)) if name not in _OF_EXPORT]
        if not program.strip():
            raise ValueError("a command begins with a program; name one, or take the field out")
        if any(name in program for name in _OF_EXPORT):
            raise ValueError("the program may not depend on the export; put {name}, {path} or {host} into an argument")
        if strange:
            raise ValueError(f"there is no {strange[0]}: use {{name}}, {{path}} or {{host}}")
        if "\0" in " ".join(arguments):
            raise ValueError("an argument holds a null byte; take it out")
        if not any("{name}" in argument or "{path}" in argument for argument in rest):
            raise ValueError("no argument holds {name} or {path}, so the command could not tell which export to unload")
        return arguments


class AdditionSettings(Section):
    """Records that come after init."""

    learn_every: Int | None = Field(default=None, ge=1, le=1_000_000)
    """All that was added is learned after every so many additions. null: by `s3t train`. (No share of the records
    decides: when it did would tell of deleted ones.)"""


class EngineSettings(Section):
    """Workers that train."""

    on: Literal["local", "ray", "slurm"] = "local"
    """Processes of this machine; actors of a Ray cluster; an array of Slurm jobs."""
    workers: Annotated[Literal["auto"] | Annotated[int, Field(ge=1, le=10_000)], NUMBER] = 1
    """Number of workers. auto: one for each GPU, or as many as the cores have room for; not for slurm."""
    address: str | None = None
    """ray: the cluster's address; null: one that runs here, else one is started. slurm: local runs the jobs here."""
    cpus_per_worker: Int | None = Field(default=None, ge=1, le=4096)
    """ray, slurm: cores that a worker reserves; null: training.threads."""
    gpus_per_worker: Int = Field(default=0, ge=0, le=64)
    """ray, slurm: GPUs that a worker reserves."""
    options: dict[str, Any] = {}
    """slurm: options of sbatch, as {partition: gpu, time: 600}."""

    @model_validator(mode="after")
    def _jobs_are_counted(self) -> Self:
        if self.on == "slurm" and self.workers == "auto":
            raise ValueError("workers auto: how many jobs Slurm has room for is not known; give their number")
        return self


class Retention(Section):
    """After how long records are deleted by themselves."""

    column: str = Field(min_length=1)
    """The column of the data with a date or a time. Its date in UTC is kept, beside the record; it is no feature."""
    days: Int = Field(ge=1, le=36_500)
    """A record is deleted when it is older: by `s3t expire`, or by a server, which looks every hour."""

    def oldest(self) -> str:
        """The oldest date that stays, by this machine's clock."""
        today = datetime.datetime.now(datetime.UTC).date()
        return (today - datetime.timedelta(days=self.days)).isoformat()


def repair_due(policy: RepairPolicy, inventory: Inventory, *, trained: bool) -> bool:
    """True if a policy asks for a repair now. `trained`: the run once had a live stage; else nothing is to repair."""
    if not trained or policy == "manual" or not inventory.missing():
        return False
    if policy == "eager" or isinstance(policy, RepairAsNeeded):
        return True
    depths = inventory.depths()
    if isinstance(policy, BelowDepth):
        return min(depths) < policy.below_depth
    return not any(depths)  # on-exhaustion: no shard answers any more


_TEXTS = ("text", "text_pair", "prompt", "completion")
"""Roles that may be templates."""


def template_columns(text: str) -> tuple[str, ...]:
    """The columns that a text is put together from: `{sentence1} What does {word} mean?`.

    A text without braces is the name of one column. Braces that belong to the text are doubled.

    >>> template_columns("question"), template_columns("{passage} {question}")
    (('question',), ('passage', 'question'))
    """
    if not is_template(text):
        return (text,)
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is no template ({error}); double a brace that belongs to the text") from None
    names = []
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if not name.strip() or form or conversion or set(name) & set(".[]"):
            raise ValueError(f"{text!r} is no template: between braces there is the name of a column and nothing else")
        names.append(name)
    if not names:
        raise ValueError(f"{text!r} is a template without a column; name one between braces")
    return tuple(dict.fromkeys(names))


def templates(text: str | list[str] | None) -> tuple[str, ...]:
    """The templates of a field that takes one or several; none where it is left out."""
    return () if text is None else (text,) if isinstance(text, str) else tuple(text)


def is_template(text: str) -> bool:
    """True if a text is a template rather than the name of a column."""
    return "{" in text or "}" in text


def filled(text: str, values: Mapping[str, str]) -> str:
    """A template with its columns' values in place.

    >>> filled("{premise} What was the {question}?", {"premise": "It rained.", "question": "effect"})
    'It rained. What was the effect?'
    """
    return "".join(
        literal + (values[name] if name is not None else "") for literal, name, _, _ in Formatter().parse(text)
    )


class Columns(Section):
    """Columns of the data, by role."""

    label: str = "label"
    """The column of the label: a name; a list of names (multi-label and token tasks); or a number (regression)."""
    delimiter: str | None = Field(default=None, min_length=1)
    """Separator of labels, words or tags, where columns of multi-label and token tasks hold text, not lists."""
    id: str | None = None
    """Column of the record's unique id. Without one: the hash of content and subject; identical rows leave together."""
    subject: str | None = None
    """The column of the person whose record it is. All records of a subject lie in one slice."""
    text: str | None = None
    """The column of the text (token tasks: lists of words), or a template: {premise} What was the {question}?"""
    text_pair: str | None = None
    """Column of the second text, or a template, where the input is a pair (text tasks)."""
    prompt: str | list[str] | None = None
    """Language models: column of the prompt, a template, or several, of which a record takes the first filled one."""
    completion: str | None = None
    """Language models: the column of the completion, or a template of several."""
    messages: str | list[str] | None = None
    """Language models: column of the chat (messages with role and content), or several, whose messages follow on."""
    image: str | None = None
    """The column of the image: encoded bytes, a Hugging Face image, or a path beside the data file (image tasks)."""

    @field_validator("text", "text_pair", "prompt", "completion")
    @classmethod
    def _is_template(cls, value: str | list[str] | None) -> str | list[str] | None:
        for template in templates(value):
            template_columns(template)
        if value == []:
            raise ValueError("is an empty list; give at least one template")
        return value

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        taken: dict[str, str] = {}
        of_text = {"text", "text_pair"}, {"prompt", "completion"}
        mixed = any(is_template(one) for role in _TEXTS for one in templates(getattr(self, role)))
        for role, columns in self.named().items():
            for column in columns:
                other = taken.setdefault(column, role)
                may_share = mixed and {other, role} in of_text
                if other != role and not may_share:
                    raise ValueError(f"{other} and {role} both name the column {column!r}")
        return self

    def named(self) -> dict[str, tuple[str, ...]]:
        """Role to the columns that it is read from, for the roles that are given."""
        given = self.model_dump(exclude={"delimiter"}, exclude_none=True).items()
        texts = {role: (one for text in templates(value) for one in template_columns(text)) for role, value in given}
        return {
            role: tuple(dict.fromkeys(texts[role])) if role in _TEXTS else templates(value) for role, value in given
        }


DEFAULT_BUDGET = 4
RATE_OF_LANGUAGE_MODELS = 2e-4
SLICES_OF_ONE_SHARD = 12
"""Slices of a method with one shard: as many as the default shards have together."""


def _declared_labels(value: Any) -> Any:
    """Labels as strings. Of true and 1.5 nobody knows which text is meant, so they are refused."""
    if isinstance(value, Mapping):
        raise ValueError("\n".join(_mapping_problems(value)) or "names values of the data; take label_names out")
    if not isinstance(value, list):
        return value
    refuse_untyped(value, "labels")
    return [str(label) if isinstance(label, int) else label for label in value]


def _mapping_problems(labels: Mapping[Any, Any]) -> Iterator[str]:
    """Problems of labels: {value in the data: label}."""
    wrong = {value: label for value, label in labels.items() if not isinstance(label, str)}
    turned = {value: label for value, label in wrong.items() if isinstance(value, str) and isinstance(label, int)}
    if turned:
        yield (
            f"{turned} is turned around: first the value in the data, then the label, as in "
            "{0: negative, 1: positive}; if a label is a number, put it in quotes"
        )
    elif wrong:
        yield f"of {list(wrong)} no label is text; write one label each, numbers in quotes"
    try:
        _named_values(labels)
    except ValueError as error:
        yield str(error)


def _named_values(names: Any) -> Any:
    """Values of the label column as text: YAML and data write true and 1 alike."""
    if not isinstance(names, Mapping):
        return names
    by_name: dict[str, Any] = {}
    for value, label in names.items():
        name = name_of(value) if value is None or isinstance(value, str | int | float) else None
        if name is None:
            raise ValueError(f"{value!r} is no value that a record can have; take it out")
        if name in by_name:
            raise ValueError(f"{name!r} is given twice, once as text; keep one of the two")
        by_name[name] = label
    return by_name


def _method(value: Any, read: Callable[[Any], MethodSettings]) -> Method:
    """A method by its name alone, or with its options; a method as it is."""
    if isinstance(value, Method):
        return value
    return method_named(**read({"name": value} if isinstance(value, str) else value).model_dump())


def store_url(value: str) -> str:
    """The URL of a bucket, checked."""
    url = urlsplit(value)
    if url.scheme != "s3" or not url.netloc or "@" in url.netloc or url.query or url.fragment:
        raise ValueError("is not the URL of a bucket; write s3://BUCKET/PREFIX")
    return value.rstrip("/")


def _ledger_url(value: str) -> str:
    try:
        url = urlsplit(value)
        _ = url.port
    except ValueError:  # repeats a port that is no number; it may be a password
        raise ValueError("is not a database URL; write postgresql+psycopg://USER@HOST/DATABASE") from None
    if url.scheme not in ("postgresql+psycopg", "postgresql"):
        raise ValueError("is not the URL of a PostgreSQL database; write postgresql+psycopg://USER@HOST/DATABASE")
    if url.password is not None or "password=" in url.query:
        # Not repeated here, nor by pydantic: the message would show it.
        raise ValueError("holds a password; put it into PGPASSWORD, ~/.pgpass or the environment variable S3T_LEDGER")
    return value


_TASK = core_schema.no_info_plain_validator_function(
    task_named,
    json_schema_input_schema=core_schema.str_schema(),
    serialization=core_schema.to_string_ser_schema(when_used="always"),
)


class Recipe(Section):
    """All that decides what is trained. One YAML file; see docs/recipe.md."""

    task: Annotated[Task, GetPydanticSchema(lambda *_: _TASK)]
    """text-classification, text-ordinal-classification, text-multi-label-classification, text-regression,
    token-classification, causal-lm, image-classification or image-multi-label-classification."""
    base_model: str = Field(min_length=1)
    """Public model: a hub name, a folder, or package:NAME/PATH in an installed Python package."""
    revision: str | None = None
    """Commit or tag of a hub model."""
    columns: Columns
    """Columns of the data, by role."""
    labels: Annotated[list[str] | Literal["infer"] | None, BeforeValidator(_declared_labels)] = None
    """The label set, in order; or infer, which reads it from the data and is not exact (see docs/guarantees.md)."""
    label_names: Annotated[dict[str, str] | None, BeforeValidator(_named_values)] = None
    """Values of the label column that stand for a label. Short form: labels: {0: negative, 1: positive}."""
    method: Annotated[
        Method,
        GetPydanticSchema(lambda _, schema_of: schema_of(MethodSettings)),
        WrapValidator(_method),
        PlainSerializer(Method.declared, return_type=dict[str, Any]),
    ] = method_named("s3t")
    """s3t, sisa, protosisa, full or ridge; or a mapping, for what else a method has."""
    head: Literal["trained", "ridge"] = "trained"
    """Models answer with the head of their stages, or with one that is solved from all live slices of the run; until
    it is, the trained one answers."""
    partition: Partition = Partition()
    """Shards and slices."""
    sequences: Sequences = Sequences()
    """Orders of the slices."""
    adapter: Adapter = Adapter()
    """The blocks."""
    text: Text = Text()
    """Tokenisation."""
    language: Language = Language()
    """Tokens and loss of language models."""
    image: Image = Image()
    """Pixels."""
    ridge: Ridge = Ridge()
    """Features of method ridge."""
    training: TrainingSettings = TrainingSettings()
    """The optimiser and its schedule."""
    prediction: Prediction = Prediction()
    """The ensemble."""
    deletion: DeletionSettings = DeletionSettings()
    """Deletion of records."""
    additions: AdditionSettings = AdditionSettings()
    """Records that come after init."""
    retention: Retention | None = None
    """After how long records are deleted by themselves. null: never."""
    engine: EngineSettings = EngineSettings()
    """Workers that train, unless the command says otherwise."""
    ledger: Annotated[str, AfterValidator(_ledger_url)] | None = None
    """A PostgreSQL database for runs of several hosts, postgresql+psycopg://USER@HOST/DATABASE; else SQLite in the run
    folder. S3T_LEDGER overrides it. A password belongs there, or into PGPASSWORD or ~/.pgpass."""
    store: Annotated[str, AfterValidator(store_url)] | None = None
    """A bucket for slices and artifacts, s3://BUCKET/PREFIX; else the run folder."""

    @model_validator(mode="before")
    @classmethod
    def _as_the_method_has_it(cls, content: Any) -> Any:
        """Fields whose default the method or the task decides."""
        if not isinstance(content, dict):
            return content
        method = content.get("method")
        name = method.get("name") if isinstance(method, dict) else method
        known = method_named(name) if isinstance(name, str) and name in METHODS else None
        usual: dict[str, dict[str, Any]] = {}
        if known is not None and known.one_shard:
            usual["partition"] = {"shards": 1, "slices": 1 if known.one_slice else SLICES_OF_ONE_SHARD}
        if known is not None and not known.trains:
            usual["deletion"] = {"repair": "eager"}  # a pass over what is left of the slice
            usual["additions"] = {"learn_every": 1}
        if content.get("head") == "ridge":
            usual["ridge"] = {"projection": 0}  # a slice leaves features of every model
        if content.get("task") == "causal-lm":
            usual["training"] = {"learning_rate": RATE_OF_LANGUAGE_MODELS}
        given = {part: content.get(part, {}) for part in usual}
        return content | {part: usual[part] | own for part, own in given.items() if isinstance(own, dict)}

    @model_validator(mode="before")
    @classmethod
    def _labels_with_names(cls, content: Any) -> Any:
        """A mapping of labels is both: the label set, in its order, and what the data calls each."""
        labels = content.get("labels") if isinstance(content, dict) else None
        if not isinstance(labels, dict) or content.get("label_names") is not None or any(_mapping_problems(labels)):
            return content
        return content | {"labels": list(dict.fromkeys(labels.values())), "label_names": labels}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [
            *self._method_problems(),
            *self._selection_problems(),
            *self._task_problems(),
            *self._label_problems(),
            *self._weight_problems(),
            *self._sequence_problems(),
            *self._growth_problems(),
            *self._group_problems(),
            *self._retention_problems(),
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _method_problems(self) -> Iterator[str]:
        method, partition = self.method, self.partition
        if method.one_slice and (partition.shards, partition.slices) != (1, 1):
            yield f"method {method} trains on one slice of one shard; leave partition.shards and slices out"
        elif method.one_shard and partition.shards != 1:
            yield f"method {method} has one head for all slices; leave partition.shards out, and give it more slices"
        if self.head == "ridge" and not method.trains:
            yield "head: method ridge has no other; take it out"
        if self.head == "ridge" and self.task.target.over_vocabulary:
            yield f"head: {self.task} is answered by the base model's own output layer; set it to trained"
        if self.head == "ridge" and self.prediction.ensemble == "sequences":
            yield "head: it is solved for one live chain a shard; set prediction.ensemble to shards or merged"
        if not self.ridge.layers and (not method.trains or self.ridge.projection):
            yield "ridge.layers: 0 is for head: ridge, without a projection; give at least 1, or ridge.projection: 0"
        if self.prediction.ensemble == "merged":
            yield from self._merging_problems()
        if not method.trains and self.task.target.over_vocabulary:
            yield f"method {method} needs a task with labels or numbers; {self.task} is none, use another method"
        if not method.trains and isinstance(self.deletion.repair, RepairAsNeeded):
            yield f"deletion.repair: method {method} has no chains; set eager, on-exhaustion, below-depth or manual"
        if not method.has_adapters and self.adapter.layers != "all":
            yield "adapter.layers: with trainable: all there is no adapter; take it out"
        if method.of_slices == "prototypes" and not self.task.target.softmax_over_labels:
            yield (
                f"method {method} averages the records of a class, so it needs a task with one label a record and an "
                f"output for each label; {self.task} is none, use another method"
            )
        if method.of_slices != "prototypes" and self.prediction.prototypes_alone:
            yield "prediction.prototypes_alone belongs to protosisa; take it out or set method: protosisa"
        if method.one_order and self.sequences.budget not in (None, 1):
            yield f"sequences.budget: method {method} has one order a shard; leave the budget out"
        if not method.top_down and self.training.trunk_cache is True:
            yield "training.trunk_cache: what lies below a block is trained, too, bottom-up; set it to auto"
        if self.image.is_augmented and self.training.trunk_cache is True:
            yield "training.trunk_cache: augmented images cannot be computed once; set it to auto"
        if self.training.quantization == "none":
            return
        if not method.has_adapters:
            yield "training.quantization: a quantised model cannot be trained itself; set trainable: adapter"
        if self.adapter.use_dora and self.adapter.kind == "lora":
            yield (
                "training.quantization: DoRA computes norms of the base's weights at every step, which quantised "
                "weights do not give; set adapter.use_dora: false"
            )

    def _merging_problems(self) -> Iterator[str]:
        if self.head != "ridge":
            yield "prediction.ensemble: merged: the mean of several models needs a head of its own; set head: ridge"
        if self.partition.shards == 1:
            yield "prediction.ensemble: merged: there is one shard; take it out"
        if self.partition.shards * self.partition.slices > MOST_MERGED:
            yield f"prediction.ensemble: merged takes at most {MOST_MERGED} slices in all shards; set it to shards"
        if self.adapter.use_dora and self.adapter.kind == "lora":
            yield "prediction.ensemble: merged: the mean of DoRA adapters is none; set adapter.use_dora: false"

    def _selection_problems(self) -> Iterator[str]:
        asked = self.prediction
        if asked.select == "depth":
            if asked.validation is not None:
                yield "prediction.validation: it has no effect; take it out, or set select: validation"
            return
        if asked.validation is None:
            yield "prediction.validation: select: validation needs a file of public records"
        if self.labels == "infer":
            yield "labels: declare them: those of the public records might be others than the run's"
        if asked.ensemble == "sequences" or self.method.one_order:
            yield "prediction.select: there is nothing to choose from, for all live orders answer; take it out"

    def _task_problems(self) -> Iterator[str]:
        task, target, forms = self.task, self.task.target, self.task.inputs.forms
        given = {role for other in TASKS.values() for role in other.inputs.roles if getattr(self.columns, role)}
        used = given.intersection(task.inputs.roles)
        least = [form for form in forms if not any(set(other) < set(form) for other in forms)]
        wanted = ", or ".join(" and ".join(f"columns.{role}" for role in form) for form in least)
        if not any(used.issuperset(form) for form in least):
            yield f"task {task} needs {wanted}"
        elif used not in map(set, forms):
            yield f"task {task} needs one of these alone: {wanted}"
        for role in sorted(given - used):
            yield f"columns.{role} does not apply to task {task}"
        if task.inputs.kind == "words" and is_template(self.columns.text or ""):
            yield f"columns.text: {task} takes no template; name one column"
        if self.text.pooling != "auto" and not task.pools:
            yield f"text.pooling: {task} does not pool; take it out"
        if self.columns.delimiter is not None and target.column != "categories":
            yield f"columns.delimiter: {task} has no column of lists; take it out"
        if self.prediction.threshold != DEFAULT_THRESHOLD and not target.has_threshold:
            yield f"prediction.threshold: {task} has none; take it out"

    def _weight_problems(self) -> Iterator[str]:
        weights, labels = self.training.class_weight, self.labels
        where = "training.class_weight"
        if weights is None:
            return
        if not self.task.target.softmax_over_labels:
            yield f"{where}: {self.task} has no such weights; leave them out"
        elif self.readouts or not self.method.trains:
            yield f"{where}: heads that are solved weigh all records alike; leave it out, or take trained heads"
        elif weights != "balanced" and not isinstance(labels, list):
            yield f"{where}: declare the labels, or set balanced"
        elif weights != "balanced" and (stray := sorted(weights.keys() - {*(labels or ())})):
            yield f"{where}: {stray} are not among the labels; correct one of the two"

    def _label_problems(self) -> Iterator[str]:
        target, labels, names = self.task.target, self.labels, self.label_names or {}
        if not target.has_labels:
            if labels is not None or self.label_names is not None:
                yield f"labels: {self.task} has no labels; leave them out"
        elif not isinstance(labels, list):
            if self.label_names is not None:
                yield "label_names: declare the labels that it names (labels: [a, b])"
            elif labels is None:
                yield "declare the labels (labels: [a, b]) or have them read from the data (labels: infer)"
            elif target.ordered:
                yield f"labels: those of {self.task} have an order; declare them, the lowest first"
        elif stray := sorted(set(names.values()) - set(labels)):
            yield f"label_names: {stray} are not among the labels; correct one of the two"
        elif taken := sorted(value for value, label in names.items() if value in labels and value != label):
            yield f"label_names: {taken} are labels themselves, and cannot stand for others"
        else:
            if repeated := sorted({label for label in labels if labels.count(label) > 1}):
                yield f"labels {repeated} are declared more than once"
            means = {label: label for label in labels} | names
            for group in alike(means):
                if len({means[name] for name in group}) > 1:
                    yield f"labels: {group!a} differ in blanks or Unicode form alone; keep one of them"
            if any(not label.strip() for label in labels):
                yield "labels: one is empty or blank, and no record can have it; take it out"
            if len(labels) < 2:
                yield "fewer than 2 labels are declared"

    def _sequence_problems(self) -> Iterator[str]:
        if self.partition.group is not None and self.sequences.prior is not None:
            yield "sequences.prior: the prior follows from partition.group.deletion; leave one of the two out"
            return
        try:
            settings = self.settings(grouped=not any(self._group_problems()))  # the rest can be checked all the same
        except SettingError as error:
            yield from (f"sequences: {problem}" for problem in error.problems)
            return
        shards, slices = self.partition.shards, self.partition.slices
        if problem := selector_problem(self.sequences.selector, settings[0]):
            yield f"sequences: {problem}"
        elif shards * slices * self.budget > MOST_NUMBERS:
            yield (
                f"partition: {shards:,} shards of {slices:,} slices in {self.budget:,} orders are more than "
                f"{MOST_NUMBERS:,} numbers; lower partition.shards, partition.slices or sequences.budget"
            )

    def _group_problems(self) -> Iterator[str]:
        group = self.partition.group
        if group is None:
            return
        yield from group.problems(self.partition.slices)
        for role, columns in self.columns.named().items():
            if group.column in columns and (role != "label" or not self.task.target.one_label):
                yield (
                    f"partition.group.column: {group.column!r} is columns.{role} already; a group is a column of its "
                    "own, or the label of a classification"
                )
        declared = self.labels if group.column == self.columns.label and isinstance(self.labels, list) else group.slices
        if stray := sorted(set(declared) ^ group.slices.keys()):
            yield f"partition.group.slices: the groups are the labels, but {stray} are not in both"

    def _retention_problems(self) -> Iterator[str]:
        if self.retention is None:
            return
        if self.columns.id is None:
            yield "retention: equal rows of different dates would be one record; name a column of ids (columns.id)"
        if any(self.retention.column in names for names in self.columns.named().values()):
            yield f"retention.column: {self.retention.column!r} is one of columns, too; give dates their own"

    def _growth_problems(self) -> Iterator[str]:
        asked = self.deletion.repair
        if not isinstance(asked, RepairAsNeeded):
            return
        if self.sequences != Sequences(prior=self.sequences.prior):
            yield "sequences: deletion.repair says which chains there are; take all but the prior out"
        yield from asked.problems(self.partition.slices)
        if self.prediction.ensemble == "sequences":
            yield "prediction.ensemble: chains grown as needed do not answer side by side; use shards"

    def growth(self, orders: tuple[tuple[Order, ...], ...]) -> Growth:
        """The policy of which stages are trained: given orders of each shard, or chains as `deletion.repair` says."""
        asked = self.deletion.repair
        if not self.method.trains:
            return FixedOrders((((),),) * self.partition.shards)
        if not isinstance(asked, RepairAsNeeded):
            return FixedOrders(orders)
        return Forests(policy=asked, costs=self.stage_costs, chances=self.chances)

    @property
    def readouts(self) -> Literal["", "each", "mean"]:
        """Models of which slices leave readouts: none, each that serves, or their mean."""
        return "" if self.head == "trained" else "mean" if self.prediction.ensemble == "merged" else "each"

    @property
    def takes_new_labels(self) -> bool:
        """True if labels may come with records: one head is solved for all, and no group is a label."""
        group, target = self.partition.group, self.task.target
        of_groups = group is not None and group.column == self.columns.label
        return not self.method.trains and target.softmax_over_labels and not of_groups

    @property
    def stage_costs(self) -> StageCosts:
        """Costs of stages by depth, from declared numbers, in no particular unit."""
        slices = self.partition.slices
        return StageCosts.declared(slices, one_block=self.method.blocks(slices) == 1)

    @property
    def chances(self) -> tuple[tuple[float, ...], ...]:
        """For each shard the declared chance of each slice to be its next that is hit; 1 / L without a prior."""
        return tuple(setting.probabilities for setting in self.settings())

    @property
    def budget(self) -> int:
        """B, given or by default."""
        if self.sequences.budget is not None:
            return self.sequences.budget
        if self.method.one_order:
            return 1
        slices = self.partition.slices
        if self.sequences.selector == "full":  # past 8 slices it is refused whatever its budget
            return math.factorial(min(slices, MAX_FULL_SLICES))
        return min(DEFAULT_BUDGET, slices)

    def settings(self, *, grouped: bool = True) -> tuple[Setting, ...]:
        """Setting from which each shard's orders are chosen; `grouped` is False where groups are wrong, and declare no
        prior. A `SettingError` says everything that is wrong."""
        asked = self.sequences
        shared = Setting(
            slices=self.partition.slices,
            budget=self.budget,
            deletions=asked.deletions,
            horizon=tuple(asked.horizon),
            values=None if asked.values is None else tuple(asked.values),
            seed=asked.seed,
        )
        prior = self.slice_prior if grouped and asked.prior is None else asked.prior
        rows = prior_rows(prior, shards=self.partition.shards)
        settings: dict[tuple[float, ...] | None, Setting] = {}
        problems: dict[str, None] = {}
        for row in dict.fromkeys(rows):
            try:
                settings[row] = replace(shared, prior=row)
            except SettingError as error:
                problems |= dict.fromkeys(error.problems)
        if problems:
            raise SettingError(*problems)
        return tuple(settings[row] for row in rows)

    @property
    def slice_prior(self) -> tuple[float, ...] | None:
        """Declared probability of each slice of a shard to be hit by a deletion; None without groups."""
        group = self.partition.group
        return None if group is None else group.prior()

    @property
    def max_length(self) -> int | None:
        """Tokens of a record at most; None for inputs without tokens."""
        section = getattr(self, self.task.inputs.section)
        return int(section.max_length) if self.task.inputs.has_tokens else None

    @property
    def blocks(self) -> int:
        """Blocks that a whole model has."""
        return self.method.blocks(self.partition.slices)

    def trained_block(self, depth: int) -> int:
        """The block that a stage trains, 1 at the top of the model."""
        return self.method.trained(depth, self.partition.slices)

    def block_adapter(self, layers: int) -> Adapter:
        """The adapter with the layers of one block as its layers a slice."""
        width = getattr(self.adapter, self.method.width)
        return self.adapter.model_copy(update={"layers_per_slice": layers if width == "all" else width})


_NO_BITS = {"device", "cache_memory", "cache_disk", "checkpoint_minutes", "checkpointing"}
"""Fields of the training part that change no bits."""


def training_part(recipe: Recipe, *, labels: Sequence[str], validation: str | None = None) -> dict[str, Any]:
    """The fields of a recipe that decide a stage's tensors, JSON-compatible, with every `auto` resolved. `validation`
    is the digest of the public records on which stages are tried."""
    if left := unresolved(recipe):
        raise ValueError(f"{', '.join(left)}: not resolved")
    (unused,) = {"layers", "layers_per_slice"} - {recipe.method.width}
    solves_heads = recipe.method.of_slices == "statistics" or recipe.head == "ridge"
    return {
        "task": recipe.task.name,
        "labels": list(labels),
        "adapter": recipe.adapter.model_dump(mode="json", exclude={unused}),
        "training": recipe.training.model_dump(mode="json", exclude=_NO_BITS),
        "method": recipe.method.key_part(recipe.partition.slices),
        # The threshold decides how well public records are answered, which the manifest says.
        "validation": None if validation is None else [validation, recipe.prediction.threshold],
        **recipe.model_dump(mode="json", include={recipe.task.inputs.section}),
        **(recipe.model_dump(mode="json", include={"ridge"}) if solves_heads else {}),
    }


def unresolved(recipe: Recipe) -> list[str]:
    """Fields that decide a stage's tensors and are still `auto`. `init` resolves all that its version knows."""
    training = recipe.training.model_dump(exclude=_NO_BITS)
    left = [f"training.{name}" for name, value in training.items() if value == "auto"]
    return left + (["text.pooling"] if recipe.task.pools and recipe.text.pooling == "auto" else [])
