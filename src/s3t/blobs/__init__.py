"""Blobs: content that never changes under its name, wherever it is kept."""

from s3t.blobs.blobs import Blobs
from s3t.blobs.local import LocalBlobs

__all__ = ["Blobs", "LocalBlobs"]
