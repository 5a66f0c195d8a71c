"""Cost of repairs against the number of slices, at equal depth: SISA, fixed orders, forests (ours only)."""
