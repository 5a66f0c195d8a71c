"""`python -m s3t`: the same as `s3t`."""

from s3t.cli import main

main()
