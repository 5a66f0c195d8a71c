"""Training time against the number of trained layers (paper, Appendix C, "Training Time")."""
