"""`s3t reconcile`."""

from __future__ import annotations

from s3t.cli.display import counted, print_line, print_status
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show


def command(run: RunArgument, as_json: JsonOption = False) -> None:
    """Delete again what was deleted after a backup was made that is now put back.

    A run that is an older state of itself neither serves nor trains: every command refuses it and names this one. What
    was deleted later is known from a memory outside of the run's folder (S3T_STATE), from the ledger, or from the
    slices, whichever is newest. A slice's file that no deletion explains is refused, and nothing is changed. Does no
    harm to a run that is as it should be. After `s3t destroy-key`, a slice whose file is too old is removed whole.
    """
    with failures_reported(as_json):
        import s3t

        done = s3t.Run.reconcile(run)

        def render() -> None:
            mended, lost = counted(len(done.slices), "slice"), counted(done.stages_lost, "stage")
            print_line(f"{counted(done.records, 'record')} deleted again, {mended} brought up to date, {lost} lost")
            print_status(done.status, run)

        show(done.to_json(), as_json, render)
