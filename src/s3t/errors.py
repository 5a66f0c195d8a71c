"""The errors of s3t. Every one derives from `S3TError` and says what, which, and the remedy.

S3TError
├── InputError            the caller's input is wrong; carries every problem found   (exit status 2)
│   ├── RecipeError           a recipe
│   ├── DataError             a table of records
│   ├── SettingError          the settings of the sequences: L, B, the prior
│   ├── PlanningError         a plan: a prior, counts of records, top slices
│   ├── TooLongError          prompts with more tokens than the model takes
│   ├── DecidedError          a held request that was approved, refused, or overtaken
│   ├── OwnRequestError       a held request, by the caller that asked for it
│   ├── TooManyHeldError      a deletion by a caller of whom too many wait for approval
│   └── RunFolderError        the run folder: exists, missing, of another version
├── UnknownNamesError     a strict deletion names ids that the run never held         (exit status 1)
├── NoLiveShardError      every shard has lost all its prefixes; nothing can answer   (exit status 1)
├── OvertakenError        a deletion took a stage that was writing a text             (exit status 1)
├── IntegrityError        bytes are not what a manifest or the ledger says they are   (exit status 1)
│   ├── MovedError            a folder that was copied or moved: say which
│   ├── RestoredError         an older state of the run, brought back: reconcile it
│   └── KeyDestroyedError     the operation needs the run's secret, now destroyed
├── TrainingError         training diverged                                           (exit status 1)
├── WorkerError           a worker process was killed, or could not be started        (exit status 1)
├── IsolationError        a stage touched tensors that are not its own                (exit status 1)
├── ClosedError           a run that was closed, used afterwards                      (exit status 1)
├── ServerError           a server refused, or was not found                        (exit status 1)
├── EngineError           an engine beside the server refused, or was not reached   (exit status 1)
├── ForkedError           a run that another process opened, used after a fork        (exit status 1)
└── StorageError          the disk or the database refused                            (exit status 1)
    ├── BlockedError          a reader of the database delays the purge of removed rows
    └── FsyncError            the disk's content is unknown; this process must end
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from s3t.aftermath import Aftermath


class S3TError(Exception):
    """Root of all errors that s3t raises on purpose. Each can be pickled, so it may come from another process."""

    aftermath: Aftermath | None = None
    """State of the run after the error, if the refused operation has stated it (`aftermath.py`)."""

    def __str__(self) -> str:
        """The problem, and the state of the run now."""
        if self.aftermath is None or self.aftermath.now in self.reason:
            return self.reason
        return f"{self.reason}; {self.aftermath.now}"

    @property
    def reason(self) -> str:
        """The problem alone."""
        return super().__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the error as it is, since some messages cannot be made again from their arguments."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class InputError(S3TError):
    """Wrong input. `problems` lists all problems, not only the first.

    Args:
        where: the file or object that is wrong, as the user named it.
        problems: one sentence, or several, each naming the row or the field and the remedy.
    """

    def __init__(self, where: str, problems: str | Iterable[str]) -> None:
        self.where = where
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        count = len(self.problems)
        noun = "problem" if count == 1 else "problems"
        super().__init__(f"{count} {noun} in {where}:{itemised(self.problems)}")


class RecipeError(InputError):
    """A recipe that cannot be followed."""


class DataError(InputError):
    """A table of records that cannot be read or does not fit the recipe."""


class SettingError(InputError):
    """Slices, budget or prior for which no orders exist."""

    def __init__(self, *problems: str) -> None:
        super().__init__("the settings of the sequences", problems)


class PlanningError(InputError):
    """Invalid numbers of a system: a prior, counts of records, top slices, or a question about them."""


class DecidedError(InputError):
    """A decision on a held request for deletion that cannot be made any more."""


class TooLongError(InputError):
    """Prompts with more tokens than the model takes."""


class OwnRequestError(InputError):
    """An approval of a held request for deletion by the caller that asked for it."""


class TooManyHeldError(InputError):
    """A request for deletion by a caller who has as many waiting for approval as may wait. It is not held."""


class RunFolderError(InputError):
    """A run folder that exists already, does not exist, or was written by another version."""


class UnknownNamesError(S3TError):
    """A strict deletion that names ids that the run never held. Nothing was deleted.

    Args:
        unknown: the names, in the order asked.
        asked: number of names in the request.
    """

    def __init__(self, unknown: Iterable[str], *, asked: int) -> None:
        self.unknown = tuple(unknown)
        super().__init__(
            f"{len(self.unknown)} of {asked} names are unknown to the run ({listed(self.unknown)}), so nothing was "
            "changed: correct them, or ask for the others without strict"
        )


def listed(names: Sequence[str], *, most: int = 10) -> str:
    """Names in a sentence; of many the first, and how many more.

    >>> listed("abc", most=2)
    'a, b, and 1 more'
    """
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])


def itemised(problems: Iterable[str]) -> str:
    """Lines for the end of a message, one for each problem.

    >>> itemised(["a", "b"])
    '\\n  - a\\n  - b'
    """
    return "".join(f"\n  - {problem}" for problem in problems)


class OvertakenError(S3TError):
    """A deletion took a stage that was writing a text; what was written of it may not go on."""

    def __init__(
        self, message: str = "a deletion took a stage that was writing, so the text ends here unfinished; ask again"
    ) -> None:
        super().__init__(message)


class NoLiveShardError(S3TError):
    """No shard has a live prefix that holds a record, so nothing may answer."""


class IntegrityError(S3TError):
    """Stored bytes differ from the manifest, the ledger or the recipe."""


class IsolationError(S3TError):
    """A stage changed, wrapped or thawed tensors that are not its own. Nothing of it is stored."""


class TrainingError(S3TError):
    """Training gave numbers that are not finite. Nothing of it is stored."""


class WorkerError(S3TError):
    """A worker process was killed, ended without a result, or could not be started. Stored stages are kept."""


class StorageError(S3TError):
    """The disk or the database refused to read or write.

    Args:
        reason: the refusing resource and the operation.
        remedy: an imperative without a full stop; "" if trying again is the only remedy.
    """

    def __init__(self, reason: str, *, remedy: str = "") -> None:
        self.remedy = remedy
        super().__init__(reason)

    def __str__(self) -> str:
        """Reason, state now, remedy, and the step after it."""
        then = "run the same command again" if self.aftermath is None else self.aftermath.then
        if self.remedy:
            return f"{super().__str__()}. {self.remedy[0].upper()}{self.remedy[1:]}, then {then}"
        return super().__str__() if self.aftermath is None else f"{super().__str__()}; then {then}"


class ServerError(S3TError):
    """A server refused, or did not answer.

    Args:
        reason: what it said.
        status: of HTTP; None without an answer.
    """

    def __init__(self, reason: str, *, status: int | None = None) -> None:
        self.status = status
        super().__init__(reason)


class EngineError(S3TError):
    """An engine that answers for the server refused, was not reached, or keeps what it should have let go of.

    Args:
        public: the same for callers, without addresses, paths and names.
    """

    def __init__(self, reason: str, *, public: str = "the engine does not answer as it should") -> None:
        self.public = public
        super().__init__(reason)


class ClosedError(S3TError):
    """A run that was closed: its session has ended, so no deletion waits for what it would still use."""

    def __init__(
        self, message: str = "the run was closed; open it again (`s3t.Run.open`), which finishes what was begun"
    ) -> None:
        super().__init__(message)


class ForkedError(S3TError):
    """A run that was opened before this process was forked off: its connections and threads are its parent's."""


class BlockedError(StorageError):
    """A reader of the database keeps removed rows from being purged. The purge is tried again until it succeeds."""


class FsyncError(StorageError):
    """The disk failed to confirm a write. Its content is unknown, so this process changes nothing more."""


class RestoredError(IntegrityError):
    """The run or its ledger is older than a state seen before: a restored backup, or a copy."""


class KeyDestroyedError(IntegrityError):
    """The run's secret was destroyed: the run can answer, and nothing else."""


class MovedError(IntegrityError):
    """The folder is not where the run was: a copy of the run, or the run, moved, perhaps while it was open here."""

    certainly_a_copy = False
    """True if the run is still where it was, so that this folder cannot be it."""
