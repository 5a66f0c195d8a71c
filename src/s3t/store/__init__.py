"""Bytes of a run: durable files, its folder and secret, blobs, artifacts, and slices at rest."""
