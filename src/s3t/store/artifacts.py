"""Artifacts as blobs. Names are stage keys; a tensor file is only read together with the hash it must have."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from s3t.blobs import Blobs
from s3t.errors import IntegrityError
from s3t.store.manifest import Manifest

_TENSORS, _MANIFEST = ".safetensors", ".json"
_NAME = re.compile(rf"shard-(\d+)/([^/]+)({_TENSORS}|{_MANIFEST})")


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A stage as stored."""

    content: bytes
    """The safetensors file; its hash is the manifest's."""
    manifest: Manifest


class Artifacts:
    """A run's artifacts: the blobs `shard-000/KEY.safetensors` and `shard-000/KEY.json`. Methods name them by shard and
    key.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def put(self, shard: int, key: str, content: bytes, manifest: Manifest) -> None:
        """Store durably, the manifest last: an artifact without one is not there.

        Raises:
            OSError: the store refused; a part may be left.
        """
        tensors, beside = blobs_of(shard, key)
        self._blobs.put(tensors, content)
        self._blobs.put(beside, manifest.to_bytes())

    def get(self, shard: int, key: str) -> Artifact:
        """Read an artifact and check its bytes against its manifest."""
        name, beside = blobs_of(shard, key)
        try:
            content = self._read(name)
            manifest = Manifest.model_validate_json(self._read(beside))
        except (OSError, ValidationError) as error:
            raise IntegrityError(f"artifact {name} cannot be read ({error}); run `s3t repair`") from error
        if hashlib.sha256(content).hexdigest() != manifest.sha256:
            raise IntegrityError(
                f"artifact {name}: its bytes are not those that its manifest names; remove the file from the run's "
                "folder artifacts, then run `s3t repair`"
            )
        if (manifest.key, manifest.shard) != (key, shard):
            raise IntegrityError(
                f"artifact {name}: its manifest is that of another stage; remove both files from the run's folder "
                "artifacts, then run `s3t repair`"
            )
        return Artifact(content=content, manifest=manifest)

    def manifest(self, shard: int, key: str) -> Manifest | None:
        """A manifest, its artifact not looked at; None if it cannot be read."""
        try:
            return Manifest.model_validate_json(self._read(blobs_of(shard, key)[1]))
        except (OSError, ValidationError):
            return None

    def manifest_digest(self, shard: int, key: str) -> str | None:
        """SHA-256 of a manifest; None if it cannot be read."""
        try:
            return hashlib.sha256(self._read(blobs_of(shard, key)[1])).hexdigest()
        except OSError:
            return None

    def keys(self) -> set[tuple[int, str]]:
        """Every (shard, key) of which a blob is there. Lists the store."""
        matches = (_NAME.fullmatch(name) for name in self._blobs.names())
        return {(int(match[1]), match[2]) for match in matches if match}

    def present(self, artifacts: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
        """Artifacts, (shard, key), among the given ones that have all blobs in the store."""
        candidates = set(artifacts)
        sizes = self._blobs.sizes([name for artifact in candidates for name in blobs_of(*artifact)])
        return {artifact for artifact in candidates if all(name in sizes for name in blobs_of(*artifact))}

    def nbytes(self, artifacts: Iterable[tuple[int, str]]) -> int:
        """Bytes that some artifacts take, with their manifests."""
        return sum(self._blobs.sizes([name for artifact in artifacts for name in blobs_of(*artifact)]).values())

    def erase(self, artifacts: set[tuple[int, str]]) -> None:
        """Remove tensors and manifests, durably; those that are not there are no error."""
        self._blobs.erase([name for artifact in artifacts for name in blobs_of(*artifact)])

    def _read(self, name: str) -> bytes:
        with self._blobs.open(name) as file:
            return file.read()


def blobs_of(shard: int, key: str) -> tuple[str, str]:
    """The names of an artifact's blobs: its tensors and its manifest.

    >>> blobs_of(2, "ab")
    ('shard-002/ab.safetensors', 'shard-002/ab.json')
    """
    return f"shard-{shard:03d}/{key}{_TENSORS}", f"shard-{shard:03d}/{key}{_MANIFEST}"
