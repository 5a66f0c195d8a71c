"""The tasks there are."""

from __future__ import annotations

from collections.abc import Mapping

from s3t.tasks.classification import Classification
from s3t.tasks.inputs import IMAGE, TEXT
from s3t.tasks.regression import Regression
from s3t.tasks.task import Task

_SEQUENCE, _IMAGE = "AutoModelForSequenceClassification", "AutoModelForImageClassification"

TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task(name="text-classification", inputs=TEXT, target=Classification(), model=_SEQUENCE),
        Task(name="text-regression", inputs=TEXT, target=Regression(), model=_SEQUENCE),
        Task(name="image-classification", inputs=IMAGE, target=Classification(), model=_IMAGE),
    )
}
"""By name."""


def task_named(name: object) -> Task:
    """The task of a name; a task as it is.

    Raises:
        ValueError: there is none.
    """
    if isinstance(name, Task):
        return name
    if not isinstance(name, str) or name not in TASKS:
        raise ValueError(f"no such task; use {', '.join(TASKS)}")
    return TASKS[name]
