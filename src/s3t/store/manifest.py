"""Manifest beside an artifact: its inputs and the hashes that chain it to its parent.

A manifest, too, is a function of the stage's inputs. It holds no time, host, generation or count, so that a run that
never saw a record writes the same manifests, byte for byte.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

MANIFEST_FORMAT = 1


class Parent(BaseModel):
    """The stage one slice shorter."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    sha256: str
    """SHA-256 of its tensor file."""


class Manifest(BaseModel):
    """The manifest of one artifact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = MANIFEST_FORMAT
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
    parent: Parent | None
    """None for a first stage."""
    validation: float | None = None
    """Score of the prefix on the run's public records (accuracy; a regression's error, negative); None where depth
    alone chooses."""

    def to_bytes(self) -> bytes:
        """Stored bytes: JSON, one field a line."""
        return (self.model_dump_json(indent=2) + "\n").encode()
