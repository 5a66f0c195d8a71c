"""BMS against sorted cyclic rotation (paper, Appendix C, "BMS vs. Cyclic rotation with Deletion prior")."""
