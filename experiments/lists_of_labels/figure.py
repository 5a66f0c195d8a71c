"""The picture of the results: that of `slice_wise`."""

from __future__ import annotations

from experiments.slice_wise.figure import draw

__all__ = ["draw"]
