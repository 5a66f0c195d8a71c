"""Results about a run's servers: tokens of callers, requests for deletion that wait for approval, repairs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, computed_field

from s3t.results.base import Result, Time
from s3t.results.changes import Deletion


class Token(Result):
    """A bearer token, without the secret itself."""

    name: str
    """Name of the holder, in logs and in `s3t token list`."""
    digest: bytes = Field(repr=False, exclude=True)
    """SHA-256 of the token. The token has 256 random bits, so nobody guesses it from that."""
    scopes: tuple[str, ...]
    """Scopes of the holder."""
    per_minute: int | None
    """Requests in a minute; null: any number."""
    created_at: Time
    expires_at: Time | None
    """Null: never."""
    revoked_at: Time | None

    def refusal(self, time: datetime) -> str | None:
        """Reason for which it is not accepted at a time; None if it is.

        >>> token = Token(name="a", digest=b"", scopes=(), per_minute=None, created_at=0, expires_at=9, revoked_at=None)
        >>> token.refusal(token.created_at), token.refusal(token.expires_at)
        (None, 'the token has expired')
        """
        if self.revoked_at is not None:
            return "the token was revoked"
        return "the token has expired" if self.expires_at is not None and time >= self.expires_at else None


class Visit(Result):
    """A browser that has signed in to a server's page."""

    digest: bytes
    """SHA-256 of what its cookie holds."""
    token: str
    """Name of the token with which it has signed in."""
    expires_at: Time


class Held(Result):
    """A request for deletion that an operator has to approve, or had to."""

    id: str
    asked_by: str
    """Name of the caller's token."""
    asked_at: Time
    why: str
    """Reason for which it is held, in words; without names of records."""
    names: int
    """Records and subjects that were named."""
    records: int
    """Records that it would have taken when it was asked."""
    request: bytes | None = Field(default=None, repr=False, exclude=True)
    """Keyed hash of its idempotency key."""
    content: bytes = Field(default=b"", repr=False, exclude=True)
    """Keyed hash of its names."""
    decided_at: Time | None = None
    """Null: it waits."""
    decided_by: str | None = None
    approved: bool | None = None
    reason: str | None = None
    """Reason for its refusal, in the operator's words."""
    done_at: Time | None = None
    """Time at which the deletion was accepted, or found to take nothing; null before, and if it was refused."""
    deletion: int | None = None
    """The deletion's number; null before, and if it took nothing."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> Literal["held", "approved", "refused", "done"]:
        """Held; refused; approved, and not carried out yet; or done."""
        if self.decided_at is None:
            return "held"
        if not self.approved:
            return "refused"
        return "approved" if self.done_at is None else "done"


class Approved(Held):
    """A request for deletion that an operator has approved, and what became of it."""

    outcome: Deletion
    """The deletion, without names: of these only tokens are kept."""


class Repair(Result):
    """A repair by a server, as those who look on see it."""

    id: str
    asked_by: str
    """Name of a token; `policy` if nobody asked."""
    hours: float | None
    """It begins no stage after so many hours of work; null: no bound."""
    host: str = Field(default="", exclude=True)
    process: int = Field(default=0, exclude=True)
    """Number of the process that trains; before that of the server."""
    asked_at: Time
    seen_at: Time
    """Last time at which it told of itself."""
    ended_at: Time | None = None
    """Null until it has ended by itself."""
    stages: int
    """Stages to train."""
    trained: int = 0
    """Stages trained so far; after an interruption, by the present process."""
    share: Annotated[float, PlainSerializer(lambda share: round(share, 4), when_used="json")] = 0.0
    """Share of the steps that are done, 0 to 1."""
    seconds: Annotated[float, PlainSerializer(lambda seconds: round(seconds, 1), when_used="json")] = 0.0
    """Seconds of work, of all its processes together."""
    attempts: int = 1
    """Processes that worked on it, one after another."""
    error: str | None = None
    """Kind of the error that ended it; the server's log has its text."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> Literal["running", "done", "failed"]:
        """Running, done or failed. A repair whose process was killed counts as running: a server takes it up again."""
        if self.ended_at is None:
            return "running"
        return "done" if self.error is None else "failed"
