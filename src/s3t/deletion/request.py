"""Requests for deletion, by tokens. Pure."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from s3t.core import Secret


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A part of a request that is accepted whole or not at all."""

    records: frozenset[bytes]
    subjects: frozenset[bytes]
    key: bytes | None
    """Keyed hash of the request's idempotency key; None without one."""
    content: bytes
    """Keyed hash of all names of the request."""
    in_files: frozenset[bytes] = frozenset()
    """Tokens of records in the slices' files: of its subjects, and requested ones that the ledger did not know."""
    held: str | None = None
    """Id of the held request that this batch completes; set on its last batch alone."""
    end: int
    """Number of the request's names in this batch and those before it."""
    received: float = field(compare=False)
    """Time at which the request was received (`time.monotonic()`)."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Records and subjects to delete, each once, in the order requested."""

    records: dict[bytes, str]
    """Names by token."""
    subjects: dict[bytes, str]
    key: bytes | None
    content: bytes
    received: float = field(compare=False)
    """Time of receipt (`time.monotonic()`)."""
    held: str | None = None
    """Id of the held request that was approved. Its names are then empty: only their tokens are kept."""

    @classmethod
    def of(cls, secret: Secret, *, records: Sequence[str], subjects: Sequence[str], key: str | None) -> Request:
        received = time.monotonic()
        by_record = {secret.token("ledger", "record", name): name for name in records}
        by_subject = {secret.token("ledger", "subject", name): name for name in subjects}
        content = hmac.new(secret.key("ledger"), b"request", sha256)
        for tokens in (by_record, by_subject):
            content.update(b"%d\0" % len(tokens) + b"".join(sorted(tokens)))
        return cls(
            records=by_record,
            subjects=by_subject,
            key=None if key is None else secret.token("ledger", "request", key),
            content=content.digest(),
            received=received,
        )

    @property
    def names(self) -> dict[bytes, str]:
        return self.records | self.subjects

    def batches(self, size: int) -> Iterator[Batch]:
        """The request in parts of at most `size` names: always the same parts for the same names."""
        asked = [(token, True) for token in sorted(self.records)] + [(token, False) for token in sorted(self.subjects)]
        for start in range(0, max(1, len(asked)), size):
            part = asked[start : start + size]
            yield Batch(
                records=frozenset(token for token, is_record in part if is_record),
                subjects=frozenset(token for token, is_record in part if not is_record),
                key=self.key,
                content=self.content,
                held=self.held if start + len(part) == len(asked) else None,
                end=start + len(part),
                received=self.received,
            )
