"""Storage and deletion rate (paper, Appendix C, "Storage Costs", Table 3)."""
