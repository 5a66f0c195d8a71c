"""Deletion rate against budget (paper, Section 5.3, the figure's right panel)."""
