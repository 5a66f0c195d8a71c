"""Slice-wise against full training of a language model on instructions (paper, Section 4.1)."""
