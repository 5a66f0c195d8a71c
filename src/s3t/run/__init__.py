"""A run: one folder that holds one trained system. Everything concrete is wired here."""

from s3t.run.run import Run

__all__ = ["Run"]
