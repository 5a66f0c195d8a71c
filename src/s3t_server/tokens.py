"""Bearer tokens of callers of a run's servers, with scopes. The ledger keeps their digests alone."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

from s3t.errors import InputError
from s3t.ledger import schema
from s3t.results.base import utc
from s3t.results.serving import Token, Visit
from s3t.run import Run
from s3t.wording import did_you_mean

SCOPES = ("predict", "add", "delete", "operate", "audit")
PREFIX = "s3t_"
"""Begins every token, so that scanners for secrets find one that was committed somewhere."""
_MOST_NAME = 100
_RESERVED = ("open", "policy", "the command line")
"""Names in the ledger of callers without a token, of repairs that nobody asked for, and of the command line."""
VISIT_SECONDS = 12 * 3600.0
_MOST_SECONDS = 100 * 365 * 86_400.0


class Access:
    """The tokens of one run. Replicas that share the ledger share them."""

    def __init__(self, run: Run) -> None:
        self.ledger = run.parts.ledger

    def create(
        self,
        name: str,
        *,
        scopes: Sequence[str],
        days: float | None = None,
        per_minute: int | None = None,
    ) -> tuple[Token, str]:
        """Make a token; the second value is the secret, which is kept nowhere and cannot be shown again.

        Without `days` it never expires. `per_minute` counts requests at each server process; None: any number.
        """
        problems = list(_problems(name, scopes, days, per_minute))
        if problems:
            raise InputError("the token", problems)
        secret = PREFIX + secrets.token_urlsafe(32)
        ordered = tuple(scope for scope in SCOPES if scope in scopes)
        with self.ledger.writing() as transaction:
            if transaction.rows.find(Token, name=name) is not None:
                raise InputError("the token", f"name {name!r} is taken, perhaps by a revoked one; choose another")
            time = transaction.rows.now()
            made = Token(
                name=name,
                digest=digest_of(secret),
                scopes=ordered,
                per_minute=per_minute,
                created_at=utc(time),
                expires_at=None if days is None else utc(time + days * 86_400),
                revoked_at=None,
            )
            transaction.rows.add(made)
        return made, secret

    def revoke(self, name: str) -> Token:
        """Accept a token no more. Servers ask at every request, so it holds at once."""
        with self.ledger.writing() as transaction:
            time = transaction.rows.now()
            transaction.rows.amend(
                schema.tokens, name=name, revoked_at=None, to={"revoked_at": time}
            )  # the first counts
            revoked = transaction.rows.find(Token, name=name)
            if revoked is None:
                names = [token.name for token in transaction.rows.all(Token)]
                raise InputError("the token", f"there is none of the name {name!r}{did_you_mean(name, names)}")
        return revoked

    def all(self) -> tuple[Token, ...]:
        with self.ledger.reading() as transaction:
            return tuple(transaction.rows.all(Token))

    def enter(self, name: str) -> str:
        """Begin a visit of the page with the token of a name; the secret that its cookie holds. That is no token: other
        ports of the host, to which browsers send it, too, can do with it what the page can, for some hours."""
        secret, visits = secrets.token_urlsafe(32), schema.visits
        with self.ledger.writing() as transaction:
            now = transaction.rows.now()
            transaction.rows.delete(visits, visits.c.expires_at <= now)
            visit = Visit(digest=digest_of(secret), token=name, expires_at=utc(now + VISIT_SECONDS))
            transaction.rows.add(visit)
        return secret

    def visiting(self, secret: str) -> Token | None:
        """The token with which a visit began; None if it is over."""
        with self.ledger.reading() as transaction:
            visit = transaction.rows.find(Visit, digest=digest_of(secret))
            if visit is None or visit.expires_at.timestamp() <= transaction.rows.now():
                return None
            return transaction.rows.find(Token, name=visit.token)

    def leave(self, secret: str) -> None:
        with self.ledger.writing() as transaction:
            transaction.rows.delete(schema.visits, schema.visits.c.digest == digest_of(secret))

    def find(self, secret: str) -> Token | None:
        """The token of a secret, whether or not it is still accepted; None if there never was one."""
        with self.ledger.reading() as transaction:
            return transaction.rows.find(Token, digest=digest_of(secret))


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()


def _problems(name: str, scopes: Sequence[str], days: float | None, per_minute: int | None) -> list[str]:
    problems = []
    if not name.strip() or len(name) > _MOST_NAME or not name.isprintable():
        problems.append(f"a name has 1 to {_MOST_NAME} printable characters")
    if name in _RESERVED:
        problems.append(f"name {name!r} is one that the run itself gives; choose another")
    if not scopes:
        problems.append(f"scopes: give at least one of {', '.join(SCOPES)}")
    problems += [
        f"scope {scope!r}: there are {', '.join(SCOPES)}{did_you_mean(scope, SCOPES)}"
        for scope in dict.fromkeys(scopes)
        if scope not in SCOPES
    ]
    if days is not None and not 0 < days * 86_400 <= _MOST_SECONDS:
        problems.append(f"{days:g} days: give more than 0, and at most 36500")
    if per_minute is not None and not 1 <= per_minute <= 1_000_000:
        problems.append(f"{per_minute} requests in a minute: give 1 to 1000000")
    return problems
