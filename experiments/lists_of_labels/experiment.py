"""Slice-wise and full training where a record has several labels, or a tag for each word: `slice_wise`, on others."""

from __future__ import annotations

from experiments.slice_wise.experiment import Config, measure, points, summary

__all__ = ["Config", "measure", "points", "summary"]
