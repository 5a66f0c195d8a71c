"""Layers a slice against the number of slices (paper, Appendix C, "Layer Allocation per Slice")."""
