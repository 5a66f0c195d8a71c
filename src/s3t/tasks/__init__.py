"""Tasks: what goes into a model, what comes out, and how good that is. One object each."""

from s3t.tasks.targets import TASKS, task_named
from s3t.tasks.task import Kind, Target, Task
