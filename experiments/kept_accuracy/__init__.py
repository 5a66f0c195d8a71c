"""Ours only: accuracy, not depth, that `survival` keeps after deletions, against the paper's orders."""
