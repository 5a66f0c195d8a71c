"""Ours only: accuracy that forests serve with over many deletions, against fixed orders and SISA at equal compute."""
