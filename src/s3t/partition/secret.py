"""The run's secret, and the keys that derive from it."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Literal

Purpose = Literal["partition", "order", "digest", "ledger", "stage", "check"]


@dataclass(frozen=True, kw_only=True)
class Secret:
    """The salt of the recipe, or one drawn at init. Two runs with one salt assign and name things alike.

    Who holds the remaining rows but not the salt can neither aim a record at a slice nor test a guess of a deleted
    one against a digest.
    """

    salt: str = field(repr=False)

    @classmethod
    def draw(cls) -> Secret:
        """A fresh secret of 256 bits."""
        return cls(salt=secrets.token_hex(32))

    def key(self, purpose: Purpose) -> bytes:
        """The key for one purpose (32 bytes); keys of different purposes tell nothing of each other."""
        return _derived(self.salt, purpose)

    def check(self) -> str:
        """What tells this secret from another, and nothing else of it (hexadecimal)."""
        return self.token("check", "secret", "").hex()

    def token(self, purpose: Purpose, kind: str, name: str) -> bytes:
        """HMAC-SHA256 of a name of one kind ("record", "subject") under the key of a purpose (32 bytes)."""
        return hmac.digest(self.key(purpose), f"{kind}\0{name}".encode(), sha256)


@lru_cache(maxsize=64)
def _derived(salt: str, purpose: str) -> bytes:
    return hmac.digest(salt.encode(), f"s3t/{purpose}".encode(), sha256)
