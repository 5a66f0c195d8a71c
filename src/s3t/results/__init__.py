"""Results of the verbs, as frozen models. `Run` and `Client` return them; `--json` and HTTP send them."""

from s3t.results.base import OfStage, Result, Time, utc
from s3t.results.changes import Audit, Deletion, Exported, Exports, Location, Reconciliation, TrainedStage, Training
from s3t.results.state import Chain, Export, LogEntry, Shard, State, Status

__all__ = [
    "Audit",
    "Chain",
    "Deletion",
    "Export",
    "Exported",
    "Exports",
    "Location",
    "LogEntry",
    "OfStage",
    "Reconciliation",
    "Result",
    "Shard",
    "State",
    "Status",
    "Time",
    "TrainedStage",
    "Training",
    "utc",
]
