"""How far apart the orders of cyclic rotation lie (paper, Section 5.4, "Sequence Selection", left panel)."""
