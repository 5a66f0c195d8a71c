"""`s3t status`."""

from __future__ import annotations

from s3t.cli.display import print_status
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show


def command(run: RunArgument, as_json: JsonOption = False) -> None:
    """Show shards, slices, sequences, what is alive and what serves, and how many more deletions that will take."""
    with failures_reported(as_json):
        import s3t

        with s3t.Run.open(run) as opened:
            status = opened.status()
        show(status.to_json(), as_json, lambda: print_status(status, run))
