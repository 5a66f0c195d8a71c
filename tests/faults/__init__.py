"""Faults at every call that changes a file of a run, and what must hold after each. See README.md."""
