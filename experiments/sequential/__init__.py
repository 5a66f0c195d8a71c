"""S3T against sequential training of the whole adapter (paper, Appendix C, "Sequence-based Training")."""
