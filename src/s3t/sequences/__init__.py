"""Which orders of the slices are trained. Pure: no torch, no data, declared inputs alone."""

from s3t.sequences.cyclic import cyclic
from s3t.sequences.selector import Order, Selector

SELECTORS: dict[str, Selector] = {"cyclic": cyclic}
"""Selectors by the name they have in a recipe."""

__all__ = ["SELECTORS", "Order", "Selector", "cyclic"]
