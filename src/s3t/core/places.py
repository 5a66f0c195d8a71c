"""Places of records: the keyed hash of a subject or record decides its shard and slice. And the secret behind it."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Literal, NamedTuple, TypeAlias

from s3t.errors import KeyDestroyedError

Order: TypeAlias = tuple[int, ...]
"""A permutation of 0..L-1: the slices of a shard in the order they are trained, top block first. A shorter one
is a prefix."""


LEAST_CHARACTERS, LEAST_DIFFERENT = 16, 8
"""Least length of a salt. A reader of run.json could guess a shorter one, by its `Secret.check`."""

Purpose = Literal["partition", "order", "digest", "ledger", "stage", "check", "replay", "augment", "row", "file"]


@dataclass(frozen=True, kw_only=True)
class Secret:
    """The salt of the recipe, or one drawn at init. Two runs with one salt assign and name things alike.

    A reader of the remaining rows without the salt cannot aim a record at a slice. Nor can they test a guess of a
    deleted record against a digest.
    """

    salt: str | None = field(repr=False)
    """None once it was destroyed."""

    @classmethod
    def draw(cls) -> Secret:
        """A fresh secret of 256 bits."""
        return cls(salt=secrets.token_hex(32))

    @classmethod
    def destroyed(cls) -> Secret:
        """A destroyed secret: it can locate, check and name nothing."""
        return cls(salt=None)

    def reveal(self) -> str:
        if self.salt is None:
            raise KeyDestroyedError(
                "the run's secret was destroyed: the run goes on answering, but no record can be located, deleted, "
                "trained on or audited. A request can be honoured only by removing the whole run"
            )
        return self.salt

    def weakness(self) -> str | None:
        """Reason why the salt is easy to guess; None if it is not, or if it was destroyed.

        >>> Secret(salt="hush").weakness(), Secret(salt="ab" * 20).weakness(), Secret.draw().weakness()
        ('has 4 characters, of at least 16', 'has 2 different characters, of at least 8', None)
        """
        if self.salt is None:
            return None
        length, different = len(self.salt), len(set(self.salt))
        if length < LEAST_CHARACTERS:
            return f"has {length} character{'' if length == 1 else 's'}, of at least {LEAST_CHARACTERS}"
        if different < LEAST_DIFFERENT:
            kinds = f"{different} different character{'' if different == 1 else 's'}"
            return f"has {kinds}, of at least {LEAST_DIFFERENT}"
        return None

    def key(self, purpose: Purpose) -> bytes:
        """The key for one purpose (32 bytes); keys of different purposes tell nothing of each other."""
        return _derived(self.reveal(), purpose)

    def check(self) -> str:
        """Check value (hexadecimal): it identifies the secret and reveals nothing else."""
        return self.token("check", "secret", "").hex()

    def token(self, purpose: Purpose, kind: str, name: str) -> bytes:
        """HMAC-SHA256 of a name of one kind ("record", "subject") under the key of a purpose (32 bytes)."""
        return hmac.digest(self.key(purpose), f"{kind}\0{name}".encode(), sha256)


@lru_cache(maxsize=64)
def _derived(salt: str, purpose: str) -> bytes:
    return hmac.digest(salt.encode(), f"s3t/{purpose}".encode(), sha256)


class Place(NamedTuple):
    """A segment of a slice of a shard, all counted from 0."""

    shard: int
    slice: int
    segment: int = 0
    """Number of the addition with which its records came; 0: at init."""


def slices_among(places: Iterable[Place]) -> tuple[Place, ...]:
    """The slices of some segments, each once.

    >>> slices_among([Place(1, 0, 2), Place(0, 3), Place(1, 0)])
    (Place(shard=0, slice=3, segment=0), Place(shard=1, slice=0, segment=0))
    """
    return tuple(sorted({place._replace(segment=0) for place in places}))


def place_of(
    record: str,
    subject: str | None,
    *,
    secret: Secret,
    shards: int,
    slices: int,
    among: Sequence[int] | None = None,
) -> Place:
    """The place of a record, by the keyed hash of its subject if it has one, else of its id.

    It is a function of this record and the secret alone, so a deletion moves no other record. All records of a subject
    share a place, and have one group, if there are groups. 128 bits are reduced modulo m and L, so the bias is below
    2^-100.

    Args:
        among: the slices that its group is spread over; None for all of them.

    >>> place_of("r1", None, secret=Secret(salt="x"), shards=1, slices=1)
    Place(shard=0, slice=0, segment=0)
    >>> place_of("r1", None, secret=Secret(salt="x"), shards=1, slices=4, among=[2])
    Place(shard=0, slice=2, segment=0)
    """
    kind, owner = ("record", record) if subject is None else ("subject", subject)
    number = int.from_bytes(secret.token("partition", kind, owner)[:16], "big")
    number, shard = divmod(number, shards)
    allowed = range(slices) if among is None else among
    return Place(shard, allowed[number % len(allowed)])
