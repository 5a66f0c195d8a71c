"""Callers: a token's scopes and its share of requests. The ledger is asked each time, so a revoked token is out; where
it can say that nothing has changed, it is asked no more than that."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from http import HTTPStatus

from anyio import CapacityLimiter, to_thread

from s3t.results.base import utc
from s3t.results.serving import Token
from s3t_server.problems import Refused
from s3t_server.tokens import SCOPES, Access, digest_of

_MINUTE = 60.0
_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_THREADS = 8
"""Threads that ask a ledger on another host; for more, its engine would make connections and close them again."""


@dataclass(frozen=True)
class Caller:
    name: str
    """The token's name; "" without a token."""
    scopes: frozenset[str]

    @property
    def ledger_name(self) -> str:
        return self.name or "open"

    def may(self, scope: str) -> bool:
        return scope in self.scopes


@dataclass
class Callers:
    """The callers of one run. Safe to share among threads."""

    access: Access
    open_scopes: frozenset[str]
    """Scopes that need no token."""
    _asked: dict[str, deque[float]] = field(default_factory=dict, init=False)
    _known: tuple[int | None, dict[bytes, Token]] = field(default_factory=lambda: (None, {}), init=False)
    """A version of the ledger, and the tokens that were found since."""
    _counting: threading.Lock = field(default_factory=threading.Lock, init=False)
    _asking: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_THREADS), init=False)

    async def admit(self, authorization: str | None, needed: Collection[str]) -> Caller:
        """As `check`, without keeping the event loop waiting for another host. SQLite is asked within it: that takes
        some microseconds, and a thread's turn a hundred times as long."""
        if self.access.ledger.version() is None:
            return await to_thread.run_sync(self.check, authorization, needed, limiter=self._asking)
        return self.check(authorization, needed)

    def check(self, authorization: str | None, needed: Collection[str]) -> Caller:
        """The caller of a request that needs one of some scopes."""
        if authorization is None:
            if self.open_scopes.isdisjoint(needed):
                raise Refused(HTTPStatus.UNAUTHORIZED, HOW, headers=_CHALLENGE)
            return Caller("", self.open_scopes)
        kind, _, secret = authorization.partition(" ")
        token = self._find(secret.strip()) if kind.lower() == "bearer" else None
        if token is None and not self.open_scopes.isdisjoint(needed):
            return Caller("", self.open_scopes)  # clients of other servers send a word where none is asked for
        return self.allowed(token, needed)

    def allowed(self, token: Token | None, needed: Collection[str]) -> Caller:
        """The holder of a token, None if there is none of that secret, if they have one of some scopes."""
        if token is None:
            raise Refused(HTTPStatus.UNAUTHORIZED, f"the token is not one of this run's; {HOW}", headers=_CHALLENGE)
        if (refusal := token.refusal(utc(time.time()))) is not None:
            headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
            raise Refused(HTTPStatus.UNAUTHORIZED, f"{refusal}; {HOW}", headers=headers)
        scopes = self.open_scopes | {*token.scopes}
        if scopes.isdisjoint(needed):
            wanted = " or ".join(scope for scope in SCOPES if scope in needed)
            raise Refused(HTTPStatus.FORBIDDEN, f"the token does not have the scope {wanted}")
        self._count(token)
        return Caller(token.name, scopes)

    def _find(self, secret: str) -> Token | None:
        version, digest = self.access.ledger.version(), digest_of(secret)
        known = self._known
        if version is None or known[0] != version:
            known = self._known = version, {}
        token = known[1].get(digest)
        if token is None:
            token = self.access.find(secret)
            if token is not None and version is not None:  # of a wrong one nothing is kept, however many are tried
                known[1][digest] = token
        return token

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
