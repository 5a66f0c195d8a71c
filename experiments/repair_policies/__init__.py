"""Ours only: what policies of repair keep of the accuracy, and what they cost."""
