"""Which layers first, and how much is seen again (paper, Appendix C.2, "Design Choices")."""
