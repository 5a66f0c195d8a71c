"""Bearer tokens in the ledger, by the digest of each."""

from __future__ import annotations

from typing import Any

from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.state import Token


class Tokens:
    """Tokens, within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def all(self, *conditions: Any) -> list[Token]:
        """Every token, revoked and expired ones included, the oldest first."""
        return sorted(self._rows.values(Token, *conditions), key=lambda token: (token.created_at, token.name))

    def find(self, digest: bytes) -> Token | None:
        return next(iter(self.all(schema.tokens.c.digest == digest)), None)

    def named(self, name: str) -> Token | None:
        return next(iter(self.all(schema.tokens.c.name == name)), None)

    def add(
        self, name: str, digest: bytes, *, scopes: tuple[str, ...], per_minute: int | None, seconds: float | None
    ) -> Token:
        """Note a new token, which lives for so many seconds; None: until it is revoked."""
        time = self._rows.now()
        token = Token(
            name=name,
            digest=digest,
            scopes=scopes,
            per_minute=per_minute,
            created_at=time,
            expires_at=None if seconds is None else time + seconds,
            revoked_at=None,
        )
        self._rows.add(token)
        return token

    def revoke(self, name: str) -> Token | None:
        """Note that a token is accepted no more, the first time counts; the token, or None if there is none."""
        table = schema.tokens
        self._rows.amend(table, table.c.name == name, table.c.revoked_at.is_(None), revoked_at=self._rows.now())
        return self.named(name)
