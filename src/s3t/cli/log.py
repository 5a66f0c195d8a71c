"""`s3t log`."""

from __future__ import annotations

from s3t.cli.deletions import moment, print_log
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show
from s3t.wording import counted


def command(run: RunArgument, as_json: JsonOption = False) -> None:
    """Show every deletion: how many records it took, and when it was received, accepted, effective and erased.

    The log holds no names. To find the deletion of a record, give its name to s3t locate.
    """
    with failures_reported(as_json):
        import s3t

        with s3t.Run.open(run) as opened:
            entries = opened.log()

        def render() -> None:
            creation, *deletions = entries
            title = (
                f"{counted(len(deletions), 'deletion')} since {moment(creation.received_at)} UTC, when the run was made"
            )
            print_log(title, deletions)

        show({"log": [entry.to_json() for entry in entries]}, as_json, render)
