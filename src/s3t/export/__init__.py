"""Exports: a shard's live chain as files that other programs load, in folders that are named by their content."""
