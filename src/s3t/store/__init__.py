"""Artifacts at rest: safetensors with a manifest beside each."""

from s3t.store.artifacts import Artifact, ArtifactStore, LocalStore
from s3t.store.chain import read_chain
from s3t.store.manifest import Manifest, Parent

__all__ = ["Artifact", "ArtifactStore", "LocalStore", "Manifest", "Parent", "read_chain"]
