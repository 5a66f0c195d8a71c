"""Committed benchmarks. Each compares with a plain version and with the machine's limit, in one run."""
