"""The dictionary of tasks."""

from __future__ import annotations

from collections.abc import Mapping

from s3t.tasks.classification import Classification
from s3t.tasks.language import CausalLanguage
from s3t.tasks.multi_label import MultiLabel
from s3t.tasks.ordinal import Ordinal
from s3t.tasks.regression import Regression
from s3t.tasks.task import Inputs, Task
from s3t.tasks.token_classification import TokenClassification

TEXT = Inputs(kind="text", forms=(("text",), ("text", "text_pair")), section="text", has_tokens=True, window_batches=64)
"""A text, or a pair of texts."""

WORDS = Inputs(kind="words", forms=(("text",),), section="text", has_tokens=True, window_batches=64, in_words=True)
"""A text that is cut into words, each of which is answered."""

IMAGE = Inputs(kind="image", forms=(("image",),), section="image", has_tokens=False, window_batches=1, window_rows=256)
"""An image. All are of one size, and take thousands of times the memory of texts: one decoded batch at a time."""

LANGUAGE = Inputs(
    kind="language",
    forms=(("prompt", "completion"), ("messages",), ("text",)),
    section="language",
    has_tokens=True,
    window_batches=16,
)
"""A prompt and its completion, a chat, or a text, of which a model learns to write the next token."""

_SEQUENCE, _IMAGE = "AutoModelForSequenceClassification", "AutoModelForImageClassification"
_WORDS = "AutoModelForTokenClassification"

TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task(name="text-classification", inputs=TEXT, target=Classification(), model=_SEQUENCE),
        Task(name="text-ordinal-classification", inputs=TEXT, target=Ordinal(), model=_SEQUENCE),
        Task(name="text-regression", inputs=TEXT, target=Regression(), model=_SEQUENCE),
        Task(name="text-multi-label-classification", inputs=TEXT, target=MultiLabel(), model=_SEQUENCE),
        Task(name="token-classification", inputs=WORDS, target=TokenClassification(), model=_WORDS),
        Task(name="causal-lm", inputs=LANGUAGE, target=CausalLanguage(), model="AutoModelForCausalLM"),
        Task(name="image-classification", inputs=IMAGE, target=Classification(), model=_IMAGE),
        Task(name="image-multi-label-classification", inputs=IMAGE, target=MultiLabel(), model=_IMAGE),
    )
}
"""Tasks by name."""


def task_named(name: object) -> Task:
    """The task of a name; a task is returned unchanged."""
    if isinstance(name, Task):
        return name
    if not isinstance(name, str) or name not in TASKS:
        raise ValueError(f"no such task; use {', '.join(TASKS)}")
    return TASKS[name]
