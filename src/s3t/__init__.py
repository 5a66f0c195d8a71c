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

from s3t.version import __version__ as __version__
from s3t.waiting import let_threads_sleep

# isort: off
if TYPE_CHECKING:  # "as": names that are exported
    from s3t.client import Client as Client
    from s3t.errors import (
        ClosedError as ClosedError,
        DataError as DataError,
        ForkedError as ForkedError,
        FsyncError as FsyncError,
        InputError as InputError,
        IntegrityError as IntegrityError,
        IsolationError as IsolationError,
        KeyDestroyedError as KeyDestroyedError,
        MovedError as MovedError,
        NoLiveShardError as NoLiveShardError,
        OvertakenError as OvertakenError,
        PlanningError as PlanningError,
        RecipeError as RecipeError,
        RestoredError as RestoredError,
        RunFolderError as RunFolderError,
        S3TError as S3TError,
        ServerError as ServerError,
        SettingError as SettingError,
        StorageError as StorageError,
        TrainingError as TrainingError,
        UnknownNamesError as UnknownNamesError,
        WorkerError as WorkerError,
    )
    from s3t.events import (
        EpochEnd as EpochEnd,
        Event as Event,
        StageEnd as StageEnd,
        StageStart as StageStart,
        TrainingStart as TrainingStart,
        WorkEnd as WorkEnd,
        WorkNote as WorkNote,
        WorkStart as WorkStart,
        WorkStep as WorkStep,
        WorkWarning as WorkWarning,
    )
    from s3t.progress import ProgressBar as ProgressBar
    from s3t.recipe import Recipe as Recipe, load_recipe as load_recipe
    from s3t.records.ingest import record_ids as record_ids
    from s3t.records.reading import Query as Query
    from s3t.results.answers import (
        Evaluation as Evaluation,
        Likelihoods as Likelihoods,
        Predictions as Predictions,
        Texts as Texts,
    )
    from s3t.results.changes import (
        Added as Added,
        Audit as Audit,
        Deletion as Deletion,
        Exports as Exports,
        Reconciliation as Reconciliation,
        Training as Training,
    )
    from s3t.results.log import AdditionEntry as AdditionEntry, Location as Location, LogEntry as LogEntry
    from s3t.results.state import Forecast as Forecast, Status as Status
    from s3t.run import Run as Run

# isort: on

_PLACES = {
    "s3t.client": "Client",
    "s3t.errors": """
        ClosedError DataError ForkedError FsyncError InputError IntegrityError IsolationError KeyDestroyedError
        MovedError NoLiveShardError OvertakenError PlanningError RecipeError RestoredError RunFolderError
        S3TError ServerError SettingError StorageError TrainingError UnknownNamesError WorkerError
    """,
    "s3t.events": "EpochEnd Event StageEnd StageStart TrainingStart WorkEnd WorkNote WorkStart WorkStep WorkWarning",
    "s3t.progress": "ProgressBar",
    "s3t.recipe": "Recipe load_recipe",
    "s3t.records.ingest": "record_ids",
    "s3t.records.reading": "Query",
    "s3t.results.answers": "Evaluation Likelihoods Predictions Texts",
    "s3t.results.changes": "Added Audit Deletion Exports Reconciliation Training",
    "s3t.results.log": "AdditionEntry Location LogEntry",
    "s3t.results.state": "Forecast Status",
    "s3t.run": "Run",
}
_HOMES = {name: module for module, names in _PLACES.items() for name in names.split()}
__all__ = sorted([*_HOMES, "__version__"])

let_threads_sleep()  # before torch is loaded, which may be soon


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 's3t' has no attribute {name!r}")
    globals()[name] = getattr(import_module(_HOMES[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    return __all__
