"""Bytes of a run: its folder and secret, blobs, and artifacts at rest."""

from s3t.store.artifacts import Artifact, Artifacts, Manifest, Parent, blobs_of, lost_stages, read_chain

__all__ = ["Artifact", "Artifacts", "Manifest", "Parent", "blobs_of", "lost_stages", "read_chain"]
