"""Accuracy as deletions come, until nothing answers (paper, Section 5.3, left panel)."""
