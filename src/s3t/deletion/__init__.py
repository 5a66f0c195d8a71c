"""Deletion: locate, plan, accept durably, erase."""
