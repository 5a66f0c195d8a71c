"""Artifacts at rest: safetensors with a manifest beside each."""

from s3t.store.artifacts import Artifact, Artifacts, blobs_of
from s3t.store.chain import lost_stages, read_chain
from s3t.store.manifest import Manifest, Parent

__all__ = ["Artifact", "Artifacts", "Manifest", "Parent", "blobs_of", "lost_stages", "read_chain"]
