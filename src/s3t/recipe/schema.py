"""The recipe's fields. Frozen, every field documented, unknown fields refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from s3t.errors import SettingError
from s3t.recipe.adapters import bias_problem, init_problem, modules_to_save_problem
from s3t.recipe.group import Group
from s3t.sequences import DEFAULT_SELECTOR, SELECTORS, Setting, prior_rows, selector_problem
from s3t.sequences.selector import DEFAULT_DELETIONS, DEFAULT_HORIZON

MAX_SEED = 2**63 - 1
DEFAULT_BUDGET = 4

Value = TypeVar("Value")


class Task(StrEnum):
    """What the head answers."""

    TEXT_CLASSIFICATION = "text-classification"
    TEXT_REGRESSION = "text-regression"
    IMAGE_CLASSIFICATION = "image-classification"

    @property
    def is_regression(self) -> bool:
        """Whether the label is a number rather than one of a set."""
        return self is Task.TEXT_REGRESSION

    @property
    def is_text(self) -> bool:
        """Whether the features are text."""
        return self is not Task.IMAGE_CLASSIFICATION


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Columns(_Part):
    """Which column of the data holds what."""

    label: str = "label"
    """The column of the label: a name of the label set, or a number for regression."""
    id: str | None = None
    """The column of the record's id, unique. Without one, the id is the hash of content and subject, and
    identical rows share it and leave together."""
    subject: str | None = None
    """The column of the person whose record it is. All records of a subject lie in one slice."""
    text: str | None = None
    """The column of the text (text tasks)."""
    text_pair: str | None = None
    """The column of a second text, where the input is a pair (text tasks)."""
    image: str | None = None
    """The column of the image: encoded bytes, a Hugging Face image, or a path beside the data file (image tasks)."""

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        taken: dict[str, str] = {}
        for role, column in self.named().items():
            if column in taken:
                raise ValueError(f"{taken[column]} and {role} both name the column {column!r}")
            taken[column] = role
        return self

    def named(self) -> dict[str, str]:
        """Role to column, for the roles that are given."""
        return {role: column for role, column in self.model_dump().items() if column is not None}


class Partition(_Part):
    """How records are split. Depends on each record's id or subject, and its group, alone."""

    shards: int = Field(default=3, ge=1, le=100_000)
    """m: members of the ensemble, each trained on its own records."""
    slices: int = Field(default=4, ge=1, le=10_000)
    """L: slices a shard; also the number of blocks."""
    salt: SecretStr | None = Field(default=None, min_length=1)
    """The secret that assigns records to slices. Drawn at init if absent; kept in the run, mode 0600."""
    group: Group | None = None
    """A column that sends records to declared slices of their shard, and how probable deletions are in each group."""


class Sequences(_Part):
    """The orders in which a shard's slices are trained."""

    budget: int | None = Field(default=None, ge=1)
    """B: orders a shard. By default as many as there are slices, and at most 4; with selector full, all L!."""
    selector: str = DEFAULT_SELECTOR
    """How the B orders are chosen. survival: what is served after deletions is as deep as can be; cyclic,
    cyclic-adjacent, bms, conditional, sorted-cyclic, random, full: the paper's."""
    prior: list[float] | list[list[float]] | None = None
    """The probability that a deletion in a shard falls on each slice: L numbers, or m rows of L; each row adds up
    to 1. Declared, not counted. By default uniform, or what partition.group declares."""
    vary_by_shard: bool = False
    """Give shards different orders of the same quality."""
    horizon: list[Annotated[int, Field(ge=1, le=10_000)]] = Field(default=list(DEFAULT_HORIZON), min_length=1)
    """survival: numbers of deletions in a shard over which the expected depth is averaged."""
    values: list[float] | None = None
    """survival: F(1)..F(L), what a shard with k live slices is worth, non-decreasing. By default k."""
    deletions: int = Field(default=DEFAULT_DELETIONS, ge=1, le=10_000)
    """bms: the t of its score."""
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    """Of the selectors that draw at random, of survival's samples, and of vary_by_shard."""

    @field_validator("selector")
    @classmethod
    def _selector_exists(cls, value: str) -> str:
        if value not in SELECTORS:
            raise ValueError(f"no selector is called {value!r}; choose one of {', '.join(sorted(SELECTORS))}")
        return value


class Adapter(_Part):
    """The PEFT adapter that a block is made of."""

    kind: Literal["lora", "ia3"] = "lora"
    """lora, or ia3 (rank, alpha, dropout and the LoRA switches do not apply to it)."""
    layers_per_slice: int = Field(default=1, ge=1)
    """Transformer layers a block. Layers left over at the bottom stay as pre-trained."""
    target_modules: list[str] | Literal["all-linear"] = "all-linear"
    """The modules to adapt in each layer, by their last name (query) or a longer tail (attention.output.dense);
    all-linear takes every linear module of the layer."""
    feedforward_modules: list[str] = []
    """IA3 alone: which of the target modules scale their input instead of their output."""
    rank: int = Field(default=16, ge=1)
    """LoRA rank r."""
    alpha: float = Field(default=32.0, gt=0)
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
        return _allowed(value, init_problem(value))

    @field_validator("bias")
    @classmethod
    def _bias_is_exact(cls, value: str) -> str:
        return _allowed(value, bias_problem(value))

    @field_validator("modules_to_save")
    @classmethod
    def _modules_are_exact(cls, value: list[str] | None) -> list[str] | None:
        return _allowed(value, modules_to_save_problem(value))

    @model_validator(mode="after")
    def _feedforward_is_targeted(self) -> Self:
        if self.feedforward_modules and self.kind != "ia3":
            raise ValueError("feedforward_modules belongs to IA3; take it out or set kind: ia3")
        stray = [name for name in self.feedforward_modules if name not in self.target_modules]
        if stray and self.target_modules != "all-linear":
            raise ValueError(f"feedforward_modules {stray} are not among target_modules; add them there")
        return self


class Text(_Part):
    """How text becomes tokens."""

    max_length: int = Field(default=128, ge=1)
    """Tokens a record, special ones included; longer texts are cut."""


class Image(_Part):
    """How images become pixels, where the base model's folder has no preprocessor_config.json."""

    mean: list[float] = [0.5]
    """Mean a channel, after division by 255; one number serves all channels."""
    std: list[float] = [0.5]
    """Standard deviation a channel, after division by 255; one number serves all channels."""


class Training(_Part):
    """How one stage is trained. Every stage starts with a fresh optimiser, schedule and random generator."""

    epochs: int = Field(default=4, ge=0)
    """Passes over the records of the prefix, a stage."""
    batch_size: int = Field(default=32, ge=1)
    """Records a step."""
    learning_rate: float = Field(default=2e-3, gt=0)
    """Peak learning rate of AdamW."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """What the learning rate does after warm-up."""
    warmup: float = Field(default=0.06, ge=0.0, le=1.0)
    """Share of the stage's steps over which the learning rate rises from 0."""
    weight_decay: float = Field(default=0.0, ge=0.0)
    """AdamW's weight decay, on matrices alone."""
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    """Gradients are scaled down to this norm; null: never."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products. auto: bfloat16 where the processor has it natively, else float32; resolved at init
    and kept. Adapter weights and optimiser are float32."""
    threads: Literal["auto"] | Annotated[int, Field(ge=1, le=4096)] = "auto"
    """Processor threads of a stage and of a prediction; another number can give other bits. auto: as many as torch
    takes here; resolved at init and kept."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train. auto: a GPU if there is one."""
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    """All randomness of training derives from it, the shard and the prefix."""


class Prediction(_Part):
    """How members answer together."""

    aggregation: Literal["logits", "probabilities", "vote"] = "logits"
    """Mean of logits, mean of probabilities, or majority vote over the shards."""
    batch_size: int = Field(default=64, ge=1)
    """Inputs a forward pass."""


def _allowed(value: Value, problem: str | None) -> Value:
    if problem is not None:
        raise ValueError(problem)
    return value


def _declared_labels(value: Any) -> Any:
    """Labels as strings. YAML reads yes, no, on, off as booleans: refused, for nobody can tell what was meant."""
    if not isinstance(value, list):
        return value
    booleans = [label for label in value if isinstance(label, bool)]
    if booleans:
        raise ValueError(f'{booleans} are booleans to YAML; put labels like yes and no in quotes ("yes")')
    return [str(label) if isinstance(label, int) else label for label in value]


class Recipe(_Part):
    """All that decides what is trained. One YAML file; see docs/recipe.md."""

    task: Task
    """text-classification, text-regression or image-classification."""
    base_model: str = Field(min_length=1)
    """Public pre-trained model: a hub name, a local folder, or package:NAME/PATH for weights that lie in an
    installed Python package."""
    revision: str | None = None
    """Commit or tag of a hub model."""
    columns: Columns
    """Which column of the data holds what."""
    labels: Annotated[list[str] | Literal["infer"] | None, BeforeValidator(_declared_labels)] = None
    """The label set, in order; or infer, which reads it from the data and is not exact (see docs/guarantees.md)."""
    partition: Partition = Partition()
    """Shards and slices."""
    sequences: Sequences = Sequences()
    """Orders of the slices."""
    adapter: Adapter = Adapter()
    """The blocks."""
    text: Text = Text()
    """Tokenisation."""
    image: Image = Image()
    """Pixels."""
    training: Training = Training()
    """The optimiser and its schedule."""
    prediction: Prediction = Prediction()
    """The ensemble."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [
            *self._task_problems(),
            *self._label_problems(),
            *self._sequence_problems(),
            *self._group_problems(),
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _task_problems(self) -> list[str]:
        columns = self.columns
        if self.task.is_text:
            problems = [] if columns.text else [f"task {self.task} needs columns.text, the column of the text"]
            return problems + ([f"columns.image has no place in task {self.task}"] if columns.image else [])
        problems = [] if columns.image else [f"task {self.task} needs columns.image, the column of the image"]
        return problems + ([f"columns.text has no place in task {self.task}"] if columns.text else [])

    def _label_problems(self) -> list[str]:
        if self.task.is_regression:
            return ["a regression has no labels; leave them out"] if self.labels is not None else []
        if self.labels is None:
            return ["declare the labels (labels: [a, b]) or have them read from the data (labels: infer)"]
        if self.labels == "infer":
            return []
        repeated = sorted({label for label in self.labels if self.labels.count(label) > 1})
        problems = [f"labels {repeated} are declared more than once"] if repeated else []
        return problems + (["fewer than 2 labels are declared"] if len(self.labels) < 2 else [])

    def _sequence_problems(self) -> list[str]:
        if self.partition.group is not None and self.sequences.prior is not None:
            return ["sequences.prior: the prior follows from partition.group.deletion; leave one of the two out"]
        try:
            # A group that is wrong has no prior; the rest can be checked all the same.
            settings = self._settings(None) if self._group_problems() else self.settings()
        except SettingError as error:
            return [f"sequences: {problem}" for problem in error.problems]
        problem = selector_problem(self.sequences.selector, settings[0])
        return [f"sequences: {problem}"] if problem else []

    def _group_problems(self) -> list[str]:
        group = self.partition.group
        if group is None:
            return []
        problems = group.problems(self.partition.slices)
        for role, column in self.columns.named().items():
            if column == group.column and (role != "label" or self.task.is_regression):
                problems.append(
                    f"partition.group.column: {column!r} is columns.{role} already; a group is a column of its own, or "
                    "the label of a classification"
                )
        if group.column == self.columns.label and isinstance(self.labels, list):
            stray = sorted(set(self.labels) ^ group.slices.keys())
            if stray:
                problems.append(f"partition.group.slices: the groups are the labels, but {stray} are not in both")
        return problems

    @property
    def budget(self) -> int:
        """B, given or by default."""
        if self.sequences.budget is not None:
            return self.sequences.budget
        slices = self.partition.slices
        # Past 20 slices full is refused whatever its budget.
        return math.factorial(min(slices, 20)) if self.sequences.selector == "full" else min(DEFAULT_BUDGET, slices)

    def settings(self) -> tuple[Setting, ...]:
        """For each shard, what its orders are chosen from.

        Raises:
            SettingError: with everything that is wrong.
        """
        return self._settings(self.slice_prior if self.sequences.prior is None else self.sequences.prior)

    def _settings(self, prior: Sequence[float] | Sequence[Sequence[float]] | None) -> tuple[Setting, ...]:
        asked = self.sequences
        shared = Setting(
            slices=self.partition.slices,
            budget=self.budget,
            deletions=asked.deletions,
            horizon=tuple(asked.horizon),
            values=None if asked.values is None else tuple(asked.values),
            seed=asked.seed,
        )
        rows = prior_rows(prior, shards=self.partition.shards)
        settings: dict[tuple[float, ...] | None, Setting] = {}
        problems: list[str] = []
        for row in dict.fromkeys(rows):
            try:
                settings[row] = replace(shared, prior=row)
            except SettingError as error:
                problems += [problem for problem in error.problems if problem not in problems]
        if problems:
            raise SettingError(*problems)
        return tuple(settings[row] for row in rows)

    @property
    def slice_prior(self) -> tuple[float, ...] | None:
        """For each slice of a shard, the declared probability that it is the one that a deletion hits.

        The slices of one group are alike, and slices count as equally large (see `Group.prior`). None where no groups
        are declared: all slices are then equally probable.
        """
        group = self.partition.group
        return None if group is None else group.prior()

    @property
    def blocks_depth(self) -> int:
        """Transformer layers that all blocks cover together."""
        return self.partition.slices * self.adapter.layers_per_slice
