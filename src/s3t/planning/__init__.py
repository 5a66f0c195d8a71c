"""Deletions that a system survives: theory and simulation. Pure: numbers alone, no data."""
