"""What stands beside an artifact: its inputs and the hashes that chain it to its parent.

A manifest is a function of the stage's inputs, too: it holds no time, host, generation or count, so that a run that
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
    """Of its tensor file."""


class Manifest(BaseModel):
    """The manifest of one artifact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = MANIFEST_FORMAT
    key: str
    """Of the stage; the file's name."""
    shard: int
    prefix: tuple[int, ...]
    slice_digests: tuple[str, ...]
    """Keyed hashes of the prefix's slices as they were trained, in its order."""
    base_digest: str
    """Of the base model's files."""
    seed: int
    """The run's seed, which the stage's derive from."""
    precision: str
    threads: int
    steps: int
    environment: dict[str, str]
    """What else decides bits: library versions, processor, device."""
    sha256: str
    """Of the tensor file beside."""
    parent: Parent | None
    """None for a first stage."""
    validation: float | None = None
    """How good the prefix is on the run's public records (accuracy; a regression's error, negative); None where depth
    alone chooses."""

    def to_bytes(self) -> bytes:
        """As stored: JSON, one field a line."""
        return (self.model_dump_json(indent=2) + "\n").encode()
