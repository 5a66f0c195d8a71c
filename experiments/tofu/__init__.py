"""TOFU: authors forgotten exactly and approximately, and what is left of them (arXiv 2401.06121)."""
