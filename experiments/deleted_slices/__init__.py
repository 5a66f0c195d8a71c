"""What is left as slices are deleted (paper, Appendix C, "Performance Degradation with Slice Deletion")."""
