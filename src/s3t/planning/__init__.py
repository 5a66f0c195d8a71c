"""What a system survives, computed before anything is trained. Pure: declared numbers alone."""

from s3t.planning.deletions import Deletions

__all__ = ["Deletions"]
