"""The parts of a recipe. Frozen, every field documented, unknown fields refused."""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from s3t.core import METHODS, AsNeeded, Inventory, Method, Trainable, method_named
from s3t.errors import PlanningError, listed
from s3t.orders import DEFAULT_SELECTOR, SELECTORS, no_selector
from s3t.orders.selector import DEFAULT_DELETIONS, DEFAULT_HORIZON
from s3t.recipe.labels import alike, refuse_untyped


def _refuse(value: Any, *kinds: type) -> Any:
    """Refuse values that are of some types, alone, in a list or in a mapping: pydantic would take true for 1."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in inner:
        _refuse(part, *kinds)
    if isinstance(value, kinds):
        raise ValueError(f"{value!r} is no number")
    return value


NumbersAlone = BeforeValidator(lambda value: _refuse(value, bool, str))
"""Validator of lists and mappings of numbers: "0.5" in their place hides mistakes."""


def only_numbers(annotation: Any) -> bool:
    """True if a field can hold a number, or several, and no boolean.

    >>> only_numbers(list[float] | None), only_numbers(int | bool), only_numbers(str)
    (True, False, False)
    """
    kinds = _kinds(annotation)
    return any(issubclass(kind, int | float) for kind in kinds) and bool not in kinds


def _kinds(annotation: Any) -> set[type]:
    if inner := get_args(annotation):
        return {kind for part in inner for kind in _kinds(part)}
    return {annotation} if isinstance(annotation, type) else set()


class Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        wanted = info.field_name is not None and only_numbers(cls.model_fields[info.field_name].annotation)
        return _refuse(value, bool) if wanted else value


# An adapter is exact under two conditions. Its initial tensors depend on a seed and public base weights alone, and its
# training leaves every base tensor unchanged. A new PEFT option is refused until somebody has read what it does.
_CHANGES_BASE = "it rewrites the base weights, so switching the block off would not give back the pre-trained layer"
_FITTED = (
    "it is fitted on the training data before the first step, so records would leak across slices and "
    "could not be taken out"
)

REFUSED_INITS: Final[Mapping[str, str]] = {
    "pissa": _CHANGES_BASE,
    "olora": _CHANGES_BASE,
    "loftq": _CHANGES_BASE,
    "eva": _FITTED,
    "corda": _FITTED,
    "lora_ga": _FITTED,
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


class Group(Part):
    """A declared column sends records to declared slices, and declared probabilities say which lose records.

    A person's chance of asking for a deletion may be known to depend on a group (age, country, product). Whose slices
    are hit often is then declared, never counted: a prior that followed the records would be fitted on them. Checked by
    the recipe, which knows slices and columns.
    """

    model_config = ConfigDict(allow_inf_nan=True)  # said of the group that has it

    column: str = Field(min_length=1)
    """The column of the data that names each record's group. Never a feature; it may be a classification's label."""
    slices: Annotated[dict[str, tuple[Annotated[int, NumbersAlone], ...]], BeforeValidator(_by_name)]
    """Slices of a shard over which each group's records are spread. Every slice is in exactly one group."""
    deletion: Annotated[dict[str, Annotated[float, NumbersAlone]], BeforeValidator(_by_name)]
    """Probability that a given record of each group is deleted. Only the ratios count."""

    def among(self, name: str) -> tuple[int, ...]:
        return tuple(sorted(self.slices[name]))

    def prior(self) -> tuple[float, ...]:
        """Probability of each slice of a shard to be hit by a deletion.

        A slice of group g weighs `deletion[g]`, and the weights are divided by their sum. So slices count as equally
        large: how many records a group has is not declared, and must not be counted.

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


class Partition(Part):
    """Split of the records. Depends on each record's id or subject, and its group, alone."""

    shards: int = Field(default=3, ge=1, le=100_000)
    """m: members of the ensemble, each trained on its own records."""
    slices: int = Field(default=4, ge=1, le=10_000)
    """L: slices a shard; also the number of blocks."""
    salt: SecretStr | None = Field(default=None, min_length=1)
    """The secret that assigns records to slices. Drawn at init if absent; kept in the run, mode 0600."""
    group: Group | None = None
    """A column that sends records to declared slices of their shard, and how probable deletions are in each group."""


class MethodSettings(Part):
    """The system: parameters that a stage trains, its starting point, and the parts of a model. See `core.Method`."""

    name: Annotated[str, BeforeValidator(_method_name)] = "s3t"
    """s3t: stage k trains block k, the blocks of the stages before it frozen (the paper's). sisa: every stage trains
    the whole adapter on, from the stage before (Bourtoule et al. 2021; with one shard, sequential training). protosisa:
    sisa, and beside it class means of the base model's features (Yan et al. 2022; see prediction.sisa_weight). full:
    one adapter, on the one slice of the one shard."""
    replay: float = Field(default=1.0, ge=0.0, le=1.0)
    """s3t: the share of the earlier slices' records that a stage sees again, chosen by keyed hash of the record. 1 is
    the paper's cumulative training, 0 its own slice only."""
    direction: Literal["top-down", "bottom-up"] = "top-down"
    """s3t: the first stage trains the top block (the paper's) or the bottom one."""
    trainable: Trainable = "adapter"
    """sisa, protosisa, full: a stage trains an adapter, or all parameters of the model (the original SISA's);
    then `adapter` has no effect."""

    def made(self) -> Method:
        return method_named(**self.model_dump())


class Sequences(Part):
    """The orders in which a shard's slices are trained."""

    budget: Annotated[int | None, NumbersAlone] = Field(default=None, ge=1)
    """B: orders a shard. By default as many as there are slices, and at most 4; with selector full, all L!."""
    selector: str = DEFAULT_SELECTOR
    """Algorithm that chooses the B orders. survival: maximises the expected depth after deletions; cyclic,
    cyclic-adjacent, bms, conditional, sorted-cyclic, random, full: the paper's."""
    prior: Annotated[list[float] | list[list[float]] | None, NumbersAlone] = None
    """The probability that a deletion in a shard falls on each slice: L numbers, or m rows of L; each row adds up
    to 1. Declared, not counted. By default uniform, or what partition.group declares."""
    vary_by_shard: bool = False
    """Give shards different orders of the same quality."""
    horizon: Annotated[list[Annotated[int, Field(ge=1, le=10_000)]], NumbersAlone] = Field(
        default=list(DEFAULT_HORIZON), min_length=1
    )
    """survival: numbers of deletions in a shard over which the expected depth is averaged."""
    values: Annotated[list[float] | None, NumbersAlone] = None
    """survival: F(1)..F(L), the value of a shard with k live slices, non-decreasing. By default k."""
    deletions: int = Field(default=DEFAULT_DELETIONS, ge=1, le=10_000)
    """bms: the t of its score."""
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    """Seed of random selectors, of survival's samples, and of vary_by_shard."""

    @field_validator("selector")
    @classmethod
    def _selector_exists(cls, value: str) -> str:
        if value not in SELECTORS:
            raise ValueError(no_selector(value))
        return value


class Adapter(Part):
    """The PEFT adapter that a block is made of."""

    kind: Literal["lora", "ia3"] = "lora"
    """lora, or ia3 (rank, alpha, dropout and the LoRA switches do not apply to it)."""
    layers_per_slice: int = Field(default=1, ge=1, le=10_000)
    """Method s3t: transformer layers a block. Layers left over at the bottom stay as pre-trained."""
    layers: Literal["all"] | Annotated[int, Field(ge=1, le=10_000)] = "all"
    """The other methods: transformer layers of the adapter, from the top."""
    target_modules: list[str] | Literal["all-linear"] = "all-linear"
    """The modules to adapt in each layer, by their last name (query) or a longer tail (attention.output.dense);
    all-linear takes every linear module of the layer."""
    feedforward_modules: list[str] = Field(default=[])
    """IA3 alone: target modules that scale their input instead of their output."""
    rank: int = Field(default=16, ge=1, le=4_096)
    """LoRA rank r."""
    alpha: float = Field(default=32.0, gt=0, le=1_000_000)
    """LoRA alpha; the update is scaled by alpha/r (rsLoRA: alpha/sqrt(r))."""
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
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


class Text(Part):
    """Tokenisation of text."""

    max_length: int = Field(default=128, ge=1, le=1_000_000)
    """Tokens a record, special ones included; longer texts are cut."""
    special_tokens: Literal["plain", "control"] = "plain"
    """Letters of a control token in a text, such as [SEP]: plain, they are letters; control, they are the token."""
    pooling: Literal["auto", "mean", "first", "last"] = "auto"
    """Token states that the linear head reads: their mean, or the first or last token's. auto: that for which the base
    model was made, by sentence-transformers' files; else a causal model's last token, and any other's first; resolved
    at init and kept."""


class Language(Part):
    """Tokenisation and loss of language models."""

    max_length: int = Field(default=512, ge=2, le=1_000_000)
    """Tokens a record, special ones included; longer ones are cut at their end."""
    special_tokens: Literal["plain", "control"] = "plain"
    """Letters of a control token in a prompt, a completion, a text or a message, such as <|im_end|>: plain, they are
    letters; control, they are the token."""
    date: datetime.date | None = None
    """The day that a chat template writes, if it asks for one. null: that of init; resolved there and kept."""
    longer: Literal["cut", "refuse"] = "cut"
    """cut: cut longer records, and count them at init. refuse: init takes no data with longer records."""
    loss: Literal["completion", "all"] = "completion"
    """Tokens that are learned: completions and the turns of assistants, with the end of the text; or prompts and other
    turns, too. Of a text column, all are."""


class Image(Part):
    """Image preprocessing, where the base model's folder has no preprocessor_config.json."""

    mean: list[Annotated[float, Field(ge=-1_000, le=1_000)]] = Field(default=[0.5])
    """Mean a channel, after division by 255; one number serves all channels."""
    std: list[Annotated[float, Field(gt=0, le=1_000)]] = Field(default=[0.5])
    """Standard deviation a channel, after division by 255; one number serves all channels."""
    crop: int = Field(default=0, ge=0, le=1_024)
    """Largest random shift of a training image, in pixels of the model's input, drawn for each record and epoch. The
    gap is filled by reflection."""
    flip: bool = False
    """Mirror training images left to right with probability 1/2, drawn for each record and epoch."""

    @property
    def is_augmented(self) -> bool:
        """True if a record's pixels differ from epoch to epoch."""
        return self.crop > 0 or self.flip


Shortcut: TypeAlias = Literal["packing", "first-token"]


class TrainingSettings(Part):
    """Training of one stage. Every stage starts with a fresh optimiser, schedule and random generator."""

    epochs: int = Field(default=4, ge=0, le=10_000)
    """Passes over the records of the prefix, a stage."""
    batch_size: int = Field(default=32, ge=1, le=1_000_000)
    """Records a step."""
    micro_batch: int | None = Field(default=None, ge=1, le=1_000_000)
    """Records a pass. The gradients of a step's passes are added up in their order; null: one pass a step."""
    checkpointing: bool = False
    """Keep only each layer's input for the backward pass, and compute the rest again: less memory, about a third more
    time, the same bits."""
    learning_rate: float = Field(default=2e-3, gt=0, le=1_000)
    """Peak learning rate of AdamW."""
    head_learning_rate: float | None = Field(default=None, gt=0, le=1_000)
    """Peak learning rate of the head; null: the same."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Learning rate after warm-up."""
    warmup: float = Field(default=0.06, ge=0.0, le=1.0)
    """Share of the stage's steps over which the learning rate rises from 0."""
    weight_decay: float = Field(default=0.0, ge=0.0, le=1_000)
    """AdamW's weight decay, on matrices alone."""
    max_grad_norm: float | None = Field(default=1.0, gt=0, le=1_000_000_000)
    """Gradients are scaled down to this norm; null: never."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products. auto: bfloat16 where the processor has it natively, else float32; resolved at init
    and kept. Adapter weights and optimiser are float32."""
    quantization: Literal["none", "8bit", "4bit"] = "none"
    """Bits of the frozen weights of the transformer layers, by bitsandbytes: 8bit (a scale a row), or 4bit (NF4, double
    quantisation). Products are computed in `precision`. Less memory, slower; not for use_dora or trainable: all."""
    threads: Literal["auto"] | Annotated[int, Field(ge=1, le=4096)] = "auto"
    """Processor threads of a stage and of a prediction; another number can give other bits. auto: one for each
    192 of the model's width, at most the cores of this machine, a container's quota and OMP_NUM_THREADS; resolved at
    init and kept."""
    attention: Literal["auto", "eager", "sdpa", "model"] = "auto"
    """Attention kernel: eager (separate matrix products), sdpa (torch's scaled_dot_product_attention), or model
    (transformers' choice). auto: eager in bfloat16 on a CPU, where it is faster, else sdpa where the model has it;
    resolved at init and kept."""
    shortcuts: Literal["auto"] | list[Shortcut] = "auto"
    """Ways to compute less. packing: short texts of a batch share rows, each masked from the others. first-token: where
    the head reads only the first token, the last layer's feed-forward part is computed for it alone. Logits change by
    rounding alone. auto: all that a trial finds possible; resolved at init and kept."""
    trunk_cache: Literal["auto"] | bool = "auto"
    """Compute the layers below a block once a slice, not at every step. auto: true where a trial at init gives the same
    logits; resolved at init and kept."""
    cache_memory: Annotated[ByteSize, Field(ge=0, le=2**50)] = ByteSize(2 * 2**30)
    """Memory for the trunk cache of a process (4GiB); each of several workers has its own."""
    cache_disk: Annotated[ByteSize, Field(ge=0, le=2**50)] = ByteSize(32 * 2**30)
    """Disk space in the run folder for the part of the trunk cache that exceeds its memory."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Training device. auto: a GPU if there is one."""
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    """All randomness of training derives from it, the shard and the prefix."""


class Prediction(Part):
    """Ensemble prediction."""

    ensemble: Literal["shards", "sequences"] = "shards"
    """Members: the deepest live prefix of every shard, or all live prefixes of each. Shards have equal weight."""
    aggregation: Literal["logits", "probabilities", "vote"] = "logits"
    """Mean of logits, mean of probabilities, or majority vote over the shards."""
    threshold: float = Field(default=DEFAULT_THRESHOLD, gt=0, lt=1)
    """Multi-label tasks: least probability at which a record is given a label."""
    answers: Literal["labels", "probabilities"] = "probabilities"
    """Content of an answer: its label alone, or the probability of every label, too."""
    select: Literal["depth", "validation"] = "depth"
    """Live order of a shard that serves: the deepest one, or the best one on `validation`."""
    validation: str | None = None
    """select: validation: a file of public records with labels. None of them may be in the run's data; init keeps a
    copy."""
    sisa_weight: float = Field(default=0.5, ge=0.0, le=1.0)
    """protosisa: the weight of a shard's model beside its prototypes, whose weight is the rest."""
    prototypes_alone: bool = False
    """protosisa: let the prototypes of a shard answer when it has no live checkpoint. In the paper the shard is then
    dead."""
    batch_size: int = Field(default=64, ge=1, le=1_000_000)
    """Rows a forward pass: inputs; above the layers that members share, inputs times members."""
    writing: Literal["auto", "batched", "single", "uncached"] = "auto"
    """Language models: write several texts side by side, each by itself, or each without keeping what was computed of
    earlier tokens (slow). auto: the first of them in which init finds that the model writes as whole passes do."""
    adapter_memory: ByteSize = Field(default=ByteSize(2**30), ge=0, le=2**50)
    """Bytes of blocks and heads kept in memory between answers, with the copies for members that answer side by side;
    also as text, like 512MiB."""
    merged_memory: ByteSize = Field(default=ByteSize(2**29), ge=0, le=2**50)
    """Fold adapters into copies of the base's weights if the copies of all shards at full depth fit into so many bytes,
    and into `adapter_memory` beside the rest. Faster, other last bits. 0: never."""


MOST_SPARES = 100
_CHAINS = {"depth", "spares", "spare_depth"}


class BelowDepth(Part):
    """Repair when a shard serves with fewer slices."""

    model_config = ConfigDict(populate_by_name=True)

    below_depth: int = Field(alias="below-depth", ge=1, le=10_000)
    """Slices; a shard that does not answer serves with 0."""


class Level(Part):
    """A level of service."""

    mean_depth: float = Field(default=1.0, gt=0, le=10_000)
    """Slices that a shard serves with after its repairs, at least."""
    after_deletion: int = Field(default=0, ge=0, le=5_000)
    """Slices right after any one deletion, at least, up to L / 2. 1: no shard is ever dead."""


class RepairAsNeeded(Part):
    """Repair what a main chain and a few spares lack; the run's orders follow from this in the place of `sequences`."""

    policy: Literal["as-needed"]
    """Its name."""
    level: Level | None = None
    """The level of service. If the next three fields are absent, the cheapest chains that meet it are computed when the
    recipe is read."""
    depth: int = Field(ge=1, le=10_000)
    """Slices that serve: those of the main chain."""
    spares: int = Field(default=1, ge=0, le=MOST_SPARES)
    """Other chains, each with a first slice of its own. 0: a shard is dead until repaired once its first slice is
    hit."""
    spare_depth: int = Field(default=1, ge=1, le=10_000)
    """Slices of a spare."""

    @model_validator(mode="before")
    @classmethod
    def _level_is_resolved(cls, content: Any) -> Any:
        """Chains of a level that is given alone. What is wrong with its numbers is said of its fields."""
        if not isinstance(content, Mapping) or content.get("level") is None or not _CHAINS.isdisjoint(content):
            return content
        try:
            level = Level.model_validate(content["level"])
        except ValidationError:
            return {**content, "depth": 1}
        chains = AsNeeded.keeping(mean_depth=level.mean_depth, after_deletion=level.after_deletion)
        return {**content, **vars(chains)}

    def problems(self, slices: int) -> Iterator[str]:
        """Numbers that do not fit each other, or shards of L slices; each with its field."""
        try:
            chains = self.made()
            chains.check(slices)
        except PlanningError as error:
            yield from (f"deletion.repair: {problem}" for problem in error.problems)
            return
        if self.level is None:
            return
        where, level, kept = "deletion.repair.level", self.level, chains.least_after_hit(slices)
        if self.depth < level.mean_depth:
            yield f"{where}.mean_depth {level.mean_depth:g}: depth is {self.depth}; take one of them out"
        if kept < level.after_deletion:
            yield (
                f"{where}.after_deletion {level.after_deletion}: chains of {slices} slices with spares of "
                f"{self.spare_depth} keep {kept}; ask for at most {slices // 2}, and leave out depth and spares"
            )

    def made(self) -> AsNeeded:
        return AsNeeded(depth=self.depth, spares=self.spares, spare_depth=self.spare_depth)


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


class DeletionSettings(Part):
    """Deletion of records."""

    repair: RepairPolicy = "on-exhaustion"
    """Condition under which a deletion also repairs. on-exhaustion: no shard answers (the paper's). manual: never.
    below-depth: k: a shard serves with fewer than k slices. eager: a stage was lost. policy: as-needed: only what a
    main chain and its spares lack."""

    erase_within: float = Field(default=0.0, ge=0.0, le=31_536_000.0)
    """Seconds after a deletion within which its slices are rewritten; 0: before the deletion returns. Stages trained on
    the record are removed at once in any case. A larger number saves rewriting a large slice for every request; the
    operator must then run `s3t erase` in time, or use the run."""
    export_hook: list[str] | None = None
    """Command that unloads and deletes an export with a deleted record in it: program and arguments, without a shell;
    {name}, {path} and {host} stand for the export's. If it ends with 0, the export is withdrawn. null: the operator
    says so, with `s3t export RUN --withdrawn NAME`."""

    @field_validator("export_hook")
    @classmethod
    def _hook_is_a_command(cls, arguments: list[str] | None) -> list[str] | None:
        if arguments is None:
            return None
        program, *rest = arguments or [""]
        strange = [
            name for argument in arguments for name in re.findall(r"\{\w+\}", argument) if name not in _OF_EXPORT
        ]
        if not program.strip():
            raise ValueError("a command begins with a program; name one, or take the field out")
        if any(name in program for name in _OF_EXPORT):
            raise ValueError(
                "the program may not depend on the export; put {name}, {path} or {host} into its arguments"
            )
        if strange:
            raise ValueError(f"there is no {strange[0]}: use {{name}}, {{path}} or {{host}}")
        if any("\0" in argument for argument in arguments):
            raise ValueError("an argument holds a null byte; take it out")
        if not any("{name}" in argument or "{path}" in argument for argument in rest):
            raise ValueError("no argument holds {name} or {path}, so the command could not tell which export to unload")
        return arguments


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
