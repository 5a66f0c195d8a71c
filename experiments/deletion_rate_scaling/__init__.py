"""Deletion rate against budget, shards and slices (paper, Section 4.3, "Deletion Ablations")."""
