"""Bytes on disk against the budget, measured (paper, Appendix C, "Storage Costs")."""
