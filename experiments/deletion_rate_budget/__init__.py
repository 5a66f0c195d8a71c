"""Deletion rate against budget (paper, Section 4.2, the figure's right panel)."""
