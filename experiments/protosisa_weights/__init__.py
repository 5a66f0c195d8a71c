"""How ProtoSISA's accuracy depends on the weight of its models (paper, Appendix C, "Baseline Ablations")."""
