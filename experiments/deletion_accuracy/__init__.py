"""Accuracy as deletions come, until nothing answers (paper, Section 4.2, left panel)."""
