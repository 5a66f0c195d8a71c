"""The recipe: its parts, and what must fit between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from string import Formatter
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetPydanticSchema,
    PlainSerializer,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import core_schema

from s3t.core import METHODS, FixedOrders, Forests, Growth, Method, Order, StageCosts, method_named
from s3t.errors import SettingError
from s3t.orders import Setting, prior_rows, selector_problem
from s3t.orders.rules import MAX_FULL_SLICES
from s3t.recipe import parts
from s3t.recipe.labels import alike, name_of, refuse_untyped
from s3t.recipe.parts import (
    DEFAULT_THRESHOLD,
    Adapter,
    DeletionSettings,
    Image,
    Language,
    Part,
    Partition,
    Prediction,
    RepairAsNeeded,
    Sequences,
    Text,
    TrainingSettings,
)
from s3t.tasks import TASKS, Task, task_named

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


class Columns(Part):
    """Columns of the data, by role."""

    label: str = "label"
    """The column of the label: a name of the label set; a list of them (multi-label tasks), one a word (token tasks);
    or a number (regression)."""
    delimiter: str | None = Field(default=None, min_length=1)
    """Separator of labels, words or tags, where columns of multi-label and token tasks hold text, not lists."""
    id: str | None = None
    """The column of the record's id, unique. Without one, the id is the hash of content and subject, and
    identical rows share it and leave together."""
    subject: str | None = None
    """The column of the person whose record it is. All records of a subject lie in one slice."""
    text: str | None = None
    """The column of the text (text tasks, language models), or a template of several: {premise} What was the
    {question}? Token tasks: the column of the lists of words."""
    text_pair: str | None = None
    """Column of the second text, or a template, where the input is a pair (text tasks)."""
    prompt: str | list[str] | None = None
    """Language models: the column of the prompt, or a template of several; or several templates, of which each record
    takes the first whose columns are filled."""
    completion: str | None = None
    """Language models: the column of the completion, or a template of several."""
    messages: str | None = None
    """Language models: the column of the chat: a list of messages, each with role and content, or such a list as
    JSON."""
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
        return {role: tuple(dict.fromkeys(texts[role])) if role in _TEXTS else (value,) for role, value in given}


DEFAULT_BUDGET = 4
MOST_NUMBERS = 20_000_000
"""Largest count of numbers in all orders of a run together."""


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


def _method(value: Any, read: Callable[[Any], parts.MethodSettings]) -> Method:
    """A method by its name alone, or with its options; a method as it is."""
    if isinstance(value, Method):
        return value
    return read({"name": value} if isinstance(value, str) else value).made()


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


class Recipe(Part):
    """All that decides what is trained. One YAML file; see docs/recipe.md."""

    task: Annotated[Task, GetPydanticSchema(lambda *_: _TASK)]
    """text-classification, text-ordinal-classification, text-multi-label-classification, text-regression,
    token-classification, causal-lm, image-classification or image-multi-label-classification."""
    base_model: str = Field(min_length=1)
    """Public pre-trained model: a hub name, a local folder, or package:NAME/PATH for weights that lie in an
    installed Python package."""
    revision: str | None = None
    """Commit or tag of a hub model."""
    columns: Columns
    """Columns of the data, by role."""
    labels: Annotated[list[str] | Literal["infer"] | None, BeforeValidator(_declared_labels)] = None
    """The label set, in order; or infer, which reads it from the data and is not exact (see docs/guarantees.md)."""
    label_names: Annotated[dict[str, str] | None, BeforeValidator(_named_values)] = None
    """Values of the label column that stand for a label: {"0": negative, "1": positive}. Short form: labels:
    {0: negative, 1: positive}."""
    method: Annotated[
        Method,
        GetPydanticSchema(lambda _, schema_of: schema_of(parts.MethodSettings)),
        WrapValidator(_method),
        PlainSerializer(Method.declared, return_type=dict[str, Any]),
    ] = method_named("s3t")
    """s3t, sisa, protosisa or full; or a mapping, for what else a method has."""
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
    training: TrainingSettings = TrainingSettings()
    """The optimiser and its schedule."""
    prediction: Prediction = Prediction()
    """The ensemble."""
    deletion: DeletionSettings = DeletionSettings()
    """Deletion of records."""
    ledger: Annotated[str, AfterValidator(_ledger_url)] | None = None
    """A PostgreSQL database for the ledger, postgresql+psycopg://USER@HOST/DATABASE, for runs that several hosts use;
    without it the ledger is a SQLite file in the run folder. No password here: that belongs into PGPASSWORD, ~/.pgpass
    or the environment variable S3T_LEDGER, which overrides the URL."""

    @model_validator(mode="before")
    @classmethod
    def _one_slice(cls, content: Any) -> Any:
        """Full training has one slice, whether that is said or not."""
        if not isinstance(content, dict):
            return content
        method, partition = content.get("method"), content.get("partition", {})
        name = method.get("name") if isinstance(method, dict) else method
        known = method_named(name) if isinstance(name, str) and name in METHODS else None
        if known is not None and known.one_slice and isinstance(partition, dict):
            return content | {"partition": {"shards": 1, "slices": 1} | partition}
        return content

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
            *self._sequence_problems(),
            *self._growth_problems(),
            *self._group_problems(),
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _method_problems(self) -> Iterator[str]:
        method, partition = self.method, self.partition
        if method.one_slice and (partition.shards, partition.slices) != (1, 1):
            yield f"method {method} trains on one slice of one shard; leave partition.shards and slices out"
        if not method.has_adapters and self.adapter.layers != "all":
            yield "adapter.layers: with trainable: all there is no adapter; take it out"
        if method.has_prototypes and not self.task.target.takes_prototypes:
            yield (
                f"method {method} averages the records of a class, so it needs a task with one label a record and an "
                f"output for each label; {self.task} is none, use another method"
            )
        if not method.has_prototypes and self.prediction.prototypes_alone:
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
        task, target = self.task, self.task.target
        inputs = [role for task in TASKS.values() for role in task.inputs.roles]
        given = {role for role, column in self.columns.model_dump().items() if column}
        yield from task.inputs.column_problems(given, inputs, task.name)
        if task.inputs.in_words and is_template(self.columns.text or ""):
            yield f"columns.text: {task} takes no template; name one column"
        if self.text.pooling != "auto" and not task.pools:
            yield f"text.pooling: {task} does not pool; take it out"
        if self.columns.delimiter is not None and target.column != "categories":
            yield f"columns.delimiter: {task} has no column of lists; take it out"
        if self.prediction.threshold != DEFAULT_THRESHOLD and not target.has_threshold:
            yield f"prediction.threshold: {task} has none; take it out"

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
        """The policy of which stages are trained: given orders of each shard, or chains as `deletion.repair` says.

        Costs of stages follow from declared numbers, never from times.
        """
        asked = self.deletion.repair
        if not isinstance(asked, RepairAsNeeded):
            return FixedOrders(orders)
        return Forests(policy=asked.made(), costs=self.stage_costs, chances=self.chances)

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
        """Setting from which each shard's orders are chosen. A `SettingError` says everything that is wrong.

        Without a prior, groups declare one; `grouped` is False where they are wrong, and have none.
        """
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
        """Declared probability of each slice of a shard to be hit by a deletion (`Group.prior`); None without groups:
        all slices are then equally probable.
        """
        group = self.partition.group
        return None if group is None else group.prior()

    @property
    def max_length(self) -> int | None:
        """Tokens of a record at most; None for inputs without tokens."""
        section = getattr(self, self.task.inputs.section)
        return int(section.max_length) if self.task.inputs.has_tokens else None

    @property
    def refuses_longer(self) -> bool:
        """True if a record with more tokens is an error, and is not cut."""
        return self.task.inputs.section == "language" and self.language.longer == "refuse"

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


_NO_BITS = {"device", "cache_memory", "cache_disk", "checkpointing"}
"""Fields of the training part that change no bits."""


def training_part(recipe: Recipe, *, labels: Sequence[str], validation: str | None = None) -> dict[str, Any]:
    """The fields of a recipe that decide a stage's tensors, JSON-compatible, with every `auto` resolved: else the key
    would not say what was computed. `validation` is the digest of the public records on which stages are tried.
    """
    if left := unresolved(recipe):
        raise ValueError(f"{', '.join(left)}: not resolved")
    (unused,) = {"layers", "layers_per_slice"} - {recipe.method.width}
    return {
        "task": recipe.task.name,
        "labels": list(labels),
        "adapter": recipe.adapter.model_dump(mode="json", exclude={unused}),
        "training": recipe.training.model_dump(mode="json", exclude=_NO_BITS),
        "method": recipe.method.key_part(recipe.partition.slices),
        # The threshold decides how well public records are answered, which the manifest says.
        "validation": None if validation is None else [validation, recipe.prediction.threshold],
        **recipe.model_dump(mode="json", include={recipe.task.inputs.section}),
    }


def unresolved(recipe: Recipe) -> list[str]:
    """Fields that decide a stage's tensors and are still `auto`. `init` resolves all that its version knows."""
    training = recipe.training.model_dump(exclude=_NO_BITS)
    left = [f"training.{name}" for name, value in training.items() if value == "auto"]
    return left + (["text.pooling"] if recipe.task.pools and recipe.text.pooling == "auto" else [])
