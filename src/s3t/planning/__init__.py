"""What a system survives, computed before anything is trained. Pure: declared numbers alone."""

from s3t.planning.deletion_rate import deletion_rate, first_failure, paper_bound, sisa_bound
from s3t.planning.deletions import Deletions
from s3t.planning.waiting import Waiting

__all__ = ["Deletions", "Waiting", "deletion_rate", "first_failure", "paper_bound", "sisa_bound"]
