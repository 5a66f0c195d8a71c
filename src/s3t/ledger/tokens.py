"""Bearer tokens in the ledger, by the digest of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.statements import now
from s3t.results.base import utc


@dataclass(frozen=True, kw_only=True)
class Token:
    """A bearer token, without the secret itself. Times are seconds since the epoch."""

    name: str
    """Name of the holder, in logs and in `s3t token list`."""
    digest: bytes = field(repr=False)
    """SHA-256 of the token. The token has 256 random bits, so nobody guesses it from that."""
    scopes: tuple[str, ...]
    """Scopes of the holder, as in `run.access.SCOPES`."""
    per_minute: int | None
    """Requests in a minute; None: any number."""
    created_at: float
    expires_at: float | None
    """None: never."""
    revoked_at: float | None

    def refusal(self, time: float) -> str | None:
        """Reason for which it is not accepted at a time; None if it is.

        >>> token = Token(name="a", digest=b"", scopes=(), per_minute=None, created_at=0, expires_at=9, revoked_at=None)
        >>> token.refusal(8.5), token.refusal(9.0)
        (None, 'the token has expired')
        """
        if self.revoked_at is not None:
            return "the token was revoked"
        return "the token has expired" if self.expires_at is not None and time >= self.expires_at else None

    def to_json(self) -> dict[str, Any]:
        """The token in documents, without its digest; times in UTC."""
        return {
            "name": self.name,
            "scopes": list(self.scopes),
            "per_minute": self.per_minute,
            "created_at": utc(self.created_at),
            "expires_at": utc(self.expires_at),
            "revoked_at": utc(self.revoked_at),
        }


class Tokens:
    """Tokens, within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def all(self) -> list[Token]:
        """Every token, revoked and expired ones included, the oldest first."""
        return sorted(map(_token_of, self._rows.read(schema.tokens)), key=lambda token: (token.created_at, token.name))

    def find(self, digest: bytes) -> Token | None:
        table = schema.tokens
        return next(map(_token_of, self._rows.read(table, table.c.digest == digest)), None)

    def named(self, name: str) -> Token | None:
        table = schema.tokens
        return next(map(_token_of, self._rows.read(table, table.c.name == name)), None)

    def add(
        self, name: str, digest: bytes, *, scopes: tuple[str, ...], per_minute: int | None, seconds: float | None
    ) -> Token:
        """Note a new token, which lives for so many seconds; None: until it is revoked."""
        time = now(self._rows.connection)
        token = Token(
            name=name,
            digest=digest,
            scopes=scopes,
            per_minute=per_minute,
            created_at=time,
            expires_at=None if seconds is None else time + seconds,
            revoked_at=None,
        )
        self._rows.insert(schema.tokens, [{**vars(token), "scopes": ",".join(scopes)}])
        return token

    def revoke(self, name: str) -> Token | None:
        """Note that a token is accepted no more, the first time counts; the token, or None if there is none."""
        table = schema.tokens
        rows = self._rows.read(table, table.c.name == name, table.c.revoked_at.is_(None))
        self._rows.change(table, [(row, {"revoked_at": now(self._rows.connection)}) for row in rows])
        return self.named(name)


def _token_of(row: Any) -> Token:
    values = {column.name: row._mapping[column.name] for column in schema.tokens.c if column.name != "mac"}
    return Token(**{**values, "scopes": tuple(row.scopes.split(","))})
