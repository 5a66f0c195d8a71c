"""Artifacts as blobs: safetensors, and a manifest beside each. Names are stage keys; a tensor file is only read
together with the hash it must have.

A manifest names a stage's inputs, and the hashes that chain it to its parent. It, too, is a function of the stage's
inputs. It holds no time, host, generation or count, so that a run that never saw a record writes the same manifests,
byte for byte.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from s3t.core import Stage
from s3t.errors import IntegrityError
from s3t.store.blobs import Blobs, folder_of
from s3t.store.disk import storage_errors

_TENSORS, _MANIFEST = ".safetensors", ".json"
_NAME = re.compile(rf"shard-(\d+)/([^/]+)({_TENSORS}|{_MANIFEST})")


class Parent(BaseModel, frozen=True, extra="forbid"):
    """The stage one slice shorter; or a readout's model."""

    key: str
    sha256: str
    """SHA-256 of its tensor file."""


class Manifest(BaseModel, frozen=True, extra="forbid"):
    format: int = 1
    key: str
    """Key of the stage, and name of the file."""
    shard: int
    prefix: tuple[int, ...]
    slice_digests: tuple[str, ...]
    """Keyed hashes of the prefix's slices as they were trained, in its order."""
    base_digest: str
    """SHA-256 of the base model's files."""
    seed: int
    """The run's seed, which the stage's derive from."""
    precision: str
    threads: int
    steps: int
    environment: dict[str, str]
    """Inputs outside of the run that decide bits: library versions, processor, device."""
    sha256: str
    """SHA-256 of the tensor file beside."""
    parents: tuple[Parent, ...]
    """Empty for a first stage, and for what is made of one slice alone."""
    validation: float | None = None
    """Score of the prefix on the run's public records (accuracy; a regression's error, negative); None where depth
    alone chooses."""

    def to_bytes(self) -> bytes:
        """Stored bytes: JSON, one field a line."""
        return (self.model_dump_json(indent=2) + "\n").encode()


@dataclass(frozen=True, kw_only=True)
class Artifact:
    content: bytes
    """The safetensors file; its hash is the manifest's."""
    manifest: Manifest


class Artifacts:
    """A run's artifacts: the blobs `shard-000/KEY.safetensors` and `shard-000/KEY.json`. Methods name them by shard and
    key.
    """

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs

    def put(self, shard: int, key: str, content: bytes, manifest: Manifest) -> None:
        """Store durably, the manifest last: an artifact without one is not there. An OSError may leave a part."""
        tensors, beside = blobs_of(shard, key)
        self.blobs.put(tensors, content)
        self.blobs.put(beside, manifest.to_bytes())

    def get(self, shard: int, key: str) -> Artifact:
        """Read an artifact and check its bytes against its manifest."""
        name, beside = blobs_of(shard, key)
        try:
            content = self._read(name)
            manifest = Manifest.model_validate_json(self._read(beside))
        except (OSError, ValidationError) as error:
            raise IntegrityError(f"artifact {name} cannot be read ({error}); run `s3t repair`") from error
        if hashlib.sha256(content).hexdigest() != manifest.sha256:
            problem = "its bytes are not those that its manifest names; remove it"
        elif (manifest.key, manifest.shard) != (key, shard):
            problem = "its manifest is that of another stage; remove both"
        else:
            return Artifact(content=content, manifest=manifest)
        raise IntegrityError(f"artifact {self.blobs.where(name)}: {problem}, then run `s3t repair`")

    def manifest(self, shard: int, key: str) -> Manifest | None:
        """A manifest, its artifact not looked at; None if it is lost or damaged. A refusal of the store is neither."""
        name = blobs_of(shard, key)[1]
        with storage_errors(f"reading {name}"), suppress(FileNotFoundError, ValidationError):
            return Manifest.model_validate_json(self._read(name))
        return None

    def manifest_digest(self, shard: int, key: str) -> str | None:
        """SHA-256 of a manifest; None if it cannot be read."""
        with suppress(OSError):
            return hashlib.sha256(self._read(blobs_of(shard, key)[1])).hexdigest()
        return None

    def keys(self, shard: int | None = None) -> set[tuple[int, str]]:
        """Every (shard, key) of which a blob is there, or those of one shard. Lists the store."""
        matches = (_NAME.fullmatch(name) for name in self.blobs.names(folder_of(shard)))
        return {(int(match[1]), match[2]) for match in matches if match}

    def present(self, artifacts: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
        """Artifacts, (shard, key), among the given ones that have all blobs in the store."""
        candidates = set(artifacts)
        sizes = self.blobs.sizes([name for artifact in candidates for name in blobs_of(*artifact)])
        return {artifact for artifact in candidates if all(name in sizes for name in blobs_of(*artifact))}

    def nbytes(self, artifacts: Iterable[tuple[int, str]]) -> int:
        """Bytes that some artifacts take, with their manifests."""
        return sum(self.blobs.sizes([name for artifact in artifacts for name in blobs_of(*artifact)]).values())

    def erase(self, artifacts: set[tuple[int, str]]) -> None:
        """Remove tensors and manifests, durably; those that are not there are no error."""
        self.blobs.erase([name for artifact in artifacts for name in blobs_of(*artifact)])

    def _read(self, name: str) -> bytes:
        with self.blobs.open(name) as file:
            return file.read()


def blobs_of(shard: int, key: str) -> tuple[str, str]:
    """The names of an artifact's blobs: its tensors and its manifest.

    >>> blobs_of(2, "ab")
    ('shard-002/ab.safetensors', 'shard-002/ab.json')
    """
    return f"{folder_of(shard)}{key}{_TENSORS}", f"{folder_of(shard)}{key}{_MANIFEST}"


def read_chain(
    store: Artifacts, stage: Stage, *, keys: Mapping[Stage, str], slice_digests: Sequence[str]
) -> list[Artifact]:
    """The artifacts of a stage's chain, in its order. `slice_digests` are those of its slices today."""
    today, chain = dict(zip(stage.places, slice_digests, strict=True)), dict[Stage, Artifact]()
    for link in stage.chain:
        above = [chain[parent].manifest for parent in link.parents]
        digests = [today[place] for place in link.places]
        chain[link] = read_link(store, link, key=keys[link], slice_digests=digests, parents=above)
    return list(chain.values())


def read_link(
    store: Artifacts, link: Stage, *, key: str, slice_digests: Sequence[str], parents: Sequence[Manifest]
) -> Artifact:
    """The artifact of one stage, whose parents' were read.

    The right key with other bytes is found here: a manifest holds the SHA-256 of its own tensors and of its parents'.
    """
    artifact = store.get(link.shard, key)
    manifest = artifact.manifest
    if manifest.prefix != link.prefix:
        raise IntegrityError(f"{link}: its manifest names the prefix {manifest.prefix}; {_REMEDY}")
    if manifest.slice_digests != tuple(slice_digests):
        raise IntegrityError(f"{link}: it was trained on slices that have changed since; {_REMEDY}")
    if manifest.parents != tuple(map(parent_of, parents)):
        raise IntegrityError(f"{link}: it was trained on another parent than the one stored; {_REMEDY}")
    return artifact


def parent_of(manifest: Manifest) -> Parent:
    """A stage as the manifests of its children name it."""
    return Parent(key=manifest.key, sha256=manifest.sha256)


def lost_stages(store: Artifacts, keys: Mapping[Stage, str]) -> dict[Stage, str]:
    """Live stages, and their keys, that have lost their own artifact or that of a stage before them."""
    present = store.present((stage.shard, key) for stage, key in keys.items())
    whole = {stage for stage, key in keys.items() if (stage.shard, key) in present}
    return {stage: key for stage, key in keys.items() if not whole.issuperset(stage.chain)}


_REMEDY = "remove its files (artifacts/shard-*/KEY.*, with the key of `s3t audit`) and run `s3t repair`"
