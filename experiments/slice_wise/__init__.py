"""Slice-wise against full training (paper, Section 4.1)."""
