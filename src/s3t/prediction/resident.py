"""Blocks and heads of live stages, kept in memory from one answer to the next, within a budget.

They are trained on records. So they are named by the keys of their artifacts, and `keep` drops those that the ledger no
longer names. A deletion is not erased before that.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple, TypeAlias

from s3t.models import adapters
from s3t.models.adapters import StageTensors
from s3t.store import Artifact, Parent

Link: TypeAlias = adapters.Link | StageTensors
"""Tensors of a stage, ready for an ensemble."""


class _Entry(NamedTuple):
    sha256: str
    parent: Parent | None
    link: Link
    nbytes: int


class Resident:
    """The links that were used last, as many as the budget holds. Safe to share among threads.

    The budget is in bytes; what is being answered with is in memory in any case.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._lock = threading.RLock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # the one used last is last
        self._nbytes = 0

    @property
    def keys(self) -> set[str]:
        with self._lock:
            return set(self._entries)

    @property
    def nbytes(self) -> int:
        with self._lock:
            return self._nbytes

    def chain(
        self, keys: Sequence[str], *, read: Callable[[], Sequence[Artifact]], prepare: Callable[[Artifact], Link]
    ) -> list[Any]:
        """A chain of links by their artifacts' keys, in the order of training; from memory if all of it is there."""
        with self._lock:
            cached = [self._entries.get(key) for key in keys]
        entries = [entry for entry in cached if entry is not None]
        if len(entries) < len(keys) or not _is_chain(keys, entries):
            entries = []
            artifacts = read()  # not under the lock: `keep` must not wait for a disk
            for known, artifact in zip(cached, artifacts, strict=True):
                manifest = artifact.manifest
                if known is None or known.sha256 != manifest.sha256:
                    link = prepare(artifact)
                    entries.append(_Entry(manifest.sha256, manifest.parent, link, link.nbytes))
                else:
                    entries.append(known)
        with self._lock:
            for key, entry in zip(keys, entries, strict=True):
                self._drop(key)
                self._entries[key] = entry
                self._nbytes += entry.nbytes
            while self._nbytes > self._budget:
                self._drop(next(iter(self._entries)))
        return [entry.link for entry in entries]

    def keep(self, alive: Set[str]) -> None:
        """Drop all but the links of some artifacts."""
        with self._lock:
            for key in [key for key in self._entries if key not in alive]:
                self._drop(key)

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        self._nbytes -= 0 if entry is None else entry.nbytes


def _is_chain(keys: Sequence[str], entries: Sequence[_Entry]) -> bool:
    """True if each artifact names the bytes of the one before it as parent; keys do not fix bytes."""
    above = entries[0].parent if entries else None  # of a method whose last stage is the whole model
    for key, entry in zip(keys, entries, strict=True):
        if entry.parent != above:
            return False
        above = Parent(key=key, sha256=entry.sha256)
    return True
