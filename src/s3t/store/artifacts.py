"""The artifact store. Names are stage keys; a tensor file is only read together with the hash it must have."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from s3t.disk import remove_durably, write_bytes_durably
from s3t.errors import IntegrityError
from s3t.store.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A stage as stored."""

    content: bytes
    """The safetensors file; its hash is the manifest's."""
    manifest: Manifest


class ArtifactStore(Protocol):
    """Where artifacts are. All methods name an artifact by shard and key."""

    def put(self, shard: int, key: str, content: bytes, manifest: Manifest) -> None:
        """Store durably; what was there under the key is replaced."""
        ...

    def get(self, shard: int, key: str) -> Artifact:
        """Read and check against the manifest. Raises IntegrityError."""
        ...

    def keys(self) -> set[tuple[int, str]]:
        """All (shard, key) of which any file is present."""
        ...

    def present(self) -> set[tuple[int, str]]:
        """All (shard, key) that are whole."""
        ...

    def manifest(self, shard: int, key: str) -> Manifest | None:
        """A manifest, its artifact not looked at; None if it cannot be read."""
        ...

    def manifest_digest(self, shard: int, key: str) -> str | None:
        """SHA-256 of a manifest's file; None if it cannot be read."""
        ...

    def nbytes(self, artifacts: Iterable[tuple[int, str]]) -> int:
        """Bytes that some take, with their manifests."""
        ...

    def erase(self, artifacts: set[tuple[int, str]]) -> None:
        """Remove durably; those that are not there are no error."""
        ...


class LocalStore:
    """Artifacts in a folder: `shard-000/<key>.safetensors` and `shard-000/<key>.json`."""

    def __init__(self, folder: Path, *, tmp: Path) -> None:
        self._folder = folder
        self._tmp = tmp

    def path(self, shard: int, key: str) -> Path:
        """The tensor file."""
        return self._folder / f"shard-{shard:03d}" / f"{key}.safetensors"

    def put(self, shard: int, key: str, content: bytes, manifest: Manifest) -> None:
        """Store durably, the manifest last: an artifact without one is not there."""
        path = self.path(shard, key)
        try:
            write_bytes_durably(path, content, tmp=self._tmp)
            write_bytes_durably(path.with_suffix(".json"), manifest.to_bytes(), tmp=self._tmp)
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def get(self, shard: int, key: str) -> Artifact:
        """Read an artifact and check its bytes against its manifest.

        Raises:
            IntegrityError: a file is missing, is not what it should be, or belongs to another stage.
        """
        path = self.path(shard, key)
        try:
            content = path.read_bytes()
            manifest = Manifest.model_validate_json(path.with_suffix(".json").read_bytes())
        except (OSError, ValidationError) as error:
            raise IntegrityError(f"{path}: the artifact cannot be read ({error}); run `s3t repair`") from error
        if hashlib.sha256(content).hexdigest() != manifest.sha256:
            raise IntegrityError(
                f"{path}: its bytes are not those that its manifest names; remove the file and run `s3t repair`"
            )
        if (manifest.key, manifest.shard) != (key, shard):
            raise IntegrityError(
                f"{path}: its manifest is that of another stage; remove both files and run `s3t repair`"
            )
        return Artifact(content=content, manifest=manifest)

    def manifest(self, shard: int, key: str) -> Manifest | None:
        """A manifest, its artifact not looked at; None if it cannot be read."""
        try:
            return Manifest.model_validate_json(self.path(shard, key).with_suffix(".json").read_bytes())
        except (OSError, ValidationError):
            return None

    def manifest_digest(self, shard: int, key: str) -> str | None:
        """SHA-256 of a manifest's file; None if it cannot be read."""
        try:
            return hashlib.sha256(self.path(shard, key).with_suffix(".json").read_bytes()).hexdigest()
        except OSError:
            return None

    def keys(self) -> set[tuple[int, str]]:
        """Every (shard, key) that has a tensor file or a manifest."""
        return self._with_suffix(".safetensors") | self._with_suffix(".json")

    def present(self) -> set[tuple[int, str]]:
        """Every (shard, key) that has both."""
        return self._with_suffix(".safetensors") & self._with_suffix(".json")

    def nbytes(self, artifacts: Iterable[tuple[int, str]]) -> int:
        """Bytes of some artifacts' tensor files and manifests."""
        total = 0
        for shard, key in artifacts:
            for suffix in (".safetensors", ".json"):
                with suppress(FileNotFoundError):  # erased meanwhile
                    total += self.path(shard, key).with_suffix(suffix).stat().st_size
        return total

    def _with_suffix(self, suffix: str) -> set[tuple[int, str]]:
        found = self._folder.glob(f"shard-*/*{suffix}")
        return {(int(path.parent.name.removeprefix("shard-")), path.stem) for path in found}

    def erase(self, artifacts: set[tuple[int, str]]) -> None:
        """Remove tensor files and manifests, durably."""
        paths = [self.path(shard, key) for shard, key in sorted(artifacts)]
        remove_durably([*paths, *(path.with_suffix(".json") for path in paths)])
