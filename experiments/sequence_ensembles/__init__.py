"""Ensembles of several orders of the same shard (paper, Appendix C, "Ensemble of Slice Sequences")."""
