"""Callers: a token's scopes and its share of requests. The ledger is asked each time, so a revoked token is out."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from http import HTTPStatus

from s3t.ledger import Token
from s3t.run.access import SCOPES, Access
from s3t.serve.problems import Refused

_MINUTE = 60.0
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True)
class Caller:
    """Sender of a request, and what they may do."""

    name: str
    """The token's name; "" without a token."""
    scopes: frozenset[str]

    @property
    def ledger_name(self) -> str:
        """The name that the ledger notes."""
        return self.name or "open"

    def may(self, scope: str) -> bool:
        """True if a scope is theirs."""
        return scope in self.scopes


@dataclass
class Callers:
    """The callers of one run. Safe to share among threads."""

    access: Access
    open_scopes: frozenset[str]
    """Scopes that need no token."""
    _asked: dict[str, deque[float]] = field(default_factory=dict, init=False)
    _counting: threading.Lock = field(default_factory=threading.Lock, init=False)

    def check(self, authorization: str | None, needed: Collection[str]) -> Caller:
        """The caller of a request that needs one of some scopes.

        Args:
            authorization: the header.
            needed: scopes, of which one is enough.

        Raises:
            Refused: 401 without a token that is accepted, 403 without the scope, 429 if there were too many requests.
        """
        if authorization is None:
            if self.open_scopes.isdisjoint(needed):
                raise Refused(HTTPStatus.UNAUTHORIZED, HOW, headers=_CHALLENGE)
            return Caller("", self.open_scopes)
        kind, _, secret = authorization.partition(" ")
        token = self.access.find(secret.strip()) if kind.lower() == "bearer" else None
        if token is None:
            raise Refused(HTTPStatus.UNAUTHORIZED, f"the token is not one of this run's; {HOW}", headers=_CHALLENGE)
        if (refusal := token.refusal(time.time())) is not None:
            headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
            raise Refused(HTTPStatus.UNAUTHORIZED, f"{refusal}; {HOW}", headers=headers)
        scopes = self.open_scopes | {*token.scopes}
        if scopes.isdisjoint(needed):
            wanted = " or ".join(scope for scope in SCOPES if scope in needed)
            raise Refused(HTTPStatus.FORBIDDEN, f"the token does not have the scope {wanted}")
        self._count(token)
        return Caller(token.name, scopes)

    def _count(self, token: Token) -> None:
        if token.per_minute is None:
            return
        now = time.monotonic()
        with self._counting:
            asked = self._asked.setdefault(token.name, deque())
            while asked and asked[0] <= now - _MINUTE:
                asked.popleft()
            if len(asked) >= token.per_minute:
                again = {"Retry-After": str(int(asked[0] + _MINUTE - now) + 1)}
                detail = f"the token has its {token.per_minute} requests of this minute"
                raise Refused(HTTPStatus.TOO_MANY_REQUESTS, detail, headers=again)
            asked.append(now)


HOW = "send `Authorization: Bearer TOKEN`; an operator makes one with `s3t token create`"
"""Remedy of a caller without a token that is accepted: the end of each refusal."""
