"""Slice-wise against full training where a record has several labels, or a tag for each word."""
