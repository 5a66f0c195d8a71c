"""s3t: exact machine unlearning of fine-tuned transformers (S3T, ICLR 2025).

    import s3t

    run = s3t.Run.create("run", recipe="recipe.yaml", data="records.csv")
    run.train()
    run.predict(["where is my card?"]).predicted
    run.delete(records=["42"])
    run.repair()

Importing this package imports nothing heavy; names load when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from s3t.version import __version__
from s3t.waiting import let_threads_sleep

if TYPE_CHECKING:
    from s3t.client import Client
    from s3t.errors import (
        ClosedError,
        DataError,
        ForkedError,
        FsyncError,
        InputError,
        IntegrityError,
        IsolationError,
        KeyDestroyedError,
        MovedError,
        NoLiveShardError,
        OvertakenError,
        PlanningError,
        RecipeError,
        RestoredError,
        RunFolderError,
        S3TError,
        ServerError,
        SettingError,
        StorageError,
        TrainingError,
        UnknownNamesError,
        WorkerError,
    )
    from s3t.events import (
        EpochEnd,
        Event,
        StageEnd,
        StageStart,
        TrainingStart,
        WorkEnd,
        WorkNote,
        WorkStart,
        WorkStep,
    )
    from s3t.planning.forecast import Forecast
    from s3t.progress import ProgressBar
    from s3t.recipe import Recipe, load_recipe
    from s3t.records.ingest import record_ids
    from s3t.results.changes import Audit, Deletion, Exports, Reconciliation, Training
    from s3t.results.log import Location, LogEntry
    from s3t.results.state import Status
    from s3t.run import Run
    from s3t.run.answers import Evaluation, Predictions
    from s3t.run.likelihoods import Likelihoods
    from s3t.run.writer import Texts

_HOMES = {
    "Audit": "s3t.results.changes",
    "Client": "s3t.client",
    "Deletion": "s3t.results.changes",
    "EpochEnd": "s3t.events",
    "Evaluation": "s3t.run.answers",
    "Event": "s3t.events",
    "Exports": "s3t.results.changes",
    "Forecast": "s3t.planning.forecast",
    "Location": "s3t.results.log",
    "Likelihoods": "s3t.run.likelihoods",
    "LogEntry": "s3t.results.log",
    "Predictions": "s3t.run.answers",
    "ProgressBar": "s3t.progress",
    "Recipe": "s3t.recipe",
    "Reconciliation": "s3t.results.changes",
    "Run": "s3t.run",
    "StageEnd": "s3t.events",
    "StageStart": "s3t.events",
    "Status": "s3t.results.state",
    "Texts": "s3t.run.writer",
    "Training": "s3t.results.changes",
    "TrainingStart": "s3t.events",
    "WorkEnd": "s3t.events",
    "WorkNote": "s3t.events",
    "WorkStart": "s3t.events",
    "WorkStep": "s3t.events",
    "load_recipe": "s3t.recipe",
    "record_ids": "s3t.records.ingest",
}
"""Modules of the public names; errors are in `s3t.errors`."""

let_threads_sleep()  # before torch is loaded, which may be soon

__all__ = [
    "Audit",
    "Client",
    "ClosedError",
    "DataError",
    "Deletion",
    "EpochEnd",
    "Evaluation",
    "Event",
    "Exports",
    "Forecast",
    "ForkedError",
    "FsyncError",
    "InputError",
    "IntegrityError",
    "IsolationError",
    "KeyDestroyedError",
    "Likelihoods",
    "Location",
    "LogEntry",
    "MovedError",
    "NoLiveShardError",
    "OvertakenError",
    "PlanningError",
    "Predictions",
    "ProgressBar",
    "Recipe",
    "RecipeError",
    "Reconciliation",
    "RestoredError",
    "Run",
    "RunFolderError",
    "S3TError",
    "ServerError",
    "SettingError",
    "StageEnd",
    "StageStart",
    "Status",
    "StorageError",
    "Texts",
    "Training",
    "TrainingError",
    "TrainingStart",
    "UnknownNamesError",
    "WorkEnd",
    "WorkNote",
    "WorkStart",
    "WorkStep",
    "WorkerError",
    "__version__",
    "load_recipe",
    "record_ids",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 's3t' has no attribute {name!r}")
    globals()[name] = getattr(import_module(_HOMES.get(name, "s3t.errors")), name)
    return globals()[name]


def __dir__() -> list[str]:
    return __all__
