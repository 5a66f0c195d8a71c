"""Which layers first, and how much is seen again (paper, Appendix B, "Design Choices")."""
