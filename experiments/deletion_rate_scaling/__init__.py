"""Deletion rate against budget, shards and slices (paper, Section 5.4, "Deletion Ablations")."""
