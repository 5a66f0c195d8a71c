"""`s3t repair`."""

from __future__ import annotations

from s3t.cli.display import counted, print_line, print_status
from s3t.cli.options import JsonOption, RunArgument, WorkersOption, number_of
from s3t.cli.outcome import failures_reported, show
from s3t.progress_bar import ProgressBar


def command(run: RunArgument, workers: WorkersOption = "1", as_json: JsonOption = False) -> None:
    """Train what deletions cost: only the stages that are missing, each from its surviving parent.

    Afterwards the artifacts are, byte for byte, those of a run that never saw the deleted records.
    """
    with failures_reported(as_json):
        import s3t

        with s3t.Run.open(run) as opened:
            report = opened.repair(workers=number_of(workers), progress=ProgressBar())

        def render() -> None:
            print_line(f"{counted(len(report.stages), 'stage')} repaired in {report.seconds:.1f} s")
            print_status(report.status, run)

        show(report.to_json(), as_json, render)
