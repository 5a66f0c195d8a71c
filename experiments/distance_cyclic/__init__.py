"""How far apart the orders of cyclic rotation lie (paper, Section 4.3, "Sequence Selection", left panel)."""
