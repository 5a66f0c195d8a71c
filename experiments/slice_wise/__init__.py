"""Slice-wise against full training (paper, Section 5.2)."""
