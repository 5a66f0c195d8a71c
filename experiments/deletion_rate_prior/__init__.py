"""Deletion rate under non-uniform priors (paper, Appendix C, "Deletion with Non-uniform Prior")."""
