"""Training one stage: a pure function of its records, its parents and declared numbers."""
