"""`s3t train`."""

from __future__ import annotations

import s3t
from s3t.cli.display import print_training
from s3t.cli.options import JsonOption, MovedOption, RunArgument, WorkersOption, number_of
from s3t.cli.outcome import failures_reported, show
from s3t.progress import ProgressBar


def command(
    run: RunArgument, workers: WorkersOption = "1", moved: MovedOption = False, as_json: JsonOption = False
) -> None:
    """Train every missing stage. May be killed and run again: what is stored is not trained twice.

    Shallow stages come first, so that every shard can answer soon. Progress shows each epoch's loss: the mean over its
    records of cross-entropy, or of squared error.
    """
    with failures_reported(as_json):
        with s3t.Run.open(run, moved=moved) as opened:
            done = opened.train(workers=number_of(workers), progress=ProgressBar())
            status = opened.status()
        show(done.to_json(), as_json, lambda: print_training(done, status, run))
