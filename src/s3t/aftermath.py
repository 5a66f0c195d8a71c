"""The state of a run after an operation was refused. The operation states it once.

A disk, a database or a file that refuses does not know what the operation did before. So an error carries its reason
and its remedy, and the operation that it passes adds the aftermath. `StorageError` makes sentences of the three.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from s3t.errors import FsyncError, InputError, S3TError


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    now: str
    """A clause."""
    then: str
    """The user's next step once the cause is mended."""
    changed: bool | None
    """True if the operation has changed the run; None if that is unknown."""
    certain: bool = True
    """True if it overrides an aftermath stated nearer to the refusal."""


NOTHING_CHANGED = Aftermath(now="nothing was changed", then="run the same command again", changed=False, certain=False)
OUTCOME_UNKNOWN = Aftermath(
    now="it is unknown whether the change was made",
    then="run the same command again: what was deleted already is reported as such",
    changed=None,
)
OUT_OF_USE = Aftermath(
    now="the records are out of use already, though not erased from everywhere",
    then="open the run again (`s3t erase` does), which goes on",
    changed=True,
)
PARTLY_OUT_OF_USE = Aftermath(
    now="records of the first part of the request are out of use already, the rest was not accepted",
    then="make the same request again, which goes on",
    changed=True,
)
APPROVED = Aftermath(
    now="the request is approved already, though not carried out",
    then="open the run again (`s3t erase` does), which goes on",
    changed=True,
)
NO_RUN_MADE = Aftermath(now="no run was made", then="run the same command again", changed=False, certain=False)
TAKEN_IN = Aftermath(
    now="the records were taken in all the same", then="run `s3t train`, which has them learned", changed=True
)
EXCHANGED = Aftermath(
    now="the records that came were taken in all the same, and those that left are out of use, though not erased from "
    "everywhere",
    then="open the run again (`s3t erase` does), which goes on, and run `s3t train`, which has the new ones learned",
    changed=True,
)
RUN_MADE = Aftermath(now="the run was made all the same", then="use it", changed=True)
STAGES_KEPT = Aftermath(
    now="every stage that was trained is stored, and no other",
    then="run the same command again, which trains what is missing",
    changed=None,
    certain=False,
)
EXTENDED = Aftermath(
    now="the new orders or policy of repair are in run.json already, but not all of their stages are trained",
    then="run the same command again, which trains what is missing",
    changed=True,
)
RECONCILING = Aftermath(
    now="the records that were deleted later are out of use again, though not erased from everywhere",
    then="run `s3t reconcile` again, which goes on",
    changed=True,
)
KEY_NOTED_AS_DESTROYED = Aftermath(
    now="the run takes no deletion and trains no stage any more, but the file of its secret is still there",
    then="run the same command again, which removes it",
    changed=True,
)


@contextmanager
def after_refusal(aftermath: Aftermath) -> Iterator[None]:
    """Attach an aftermath to every refusal within, except to wrong input and failed fsyncs, whose messages have it."""
    try:
        yield
    except FsyncError:
        raise
    except S3TError as error:
        if aftermath.certain or (error.aftermath is None and not isinstance(error, InputError)):
            error.aftermath = aftermath
        raise
