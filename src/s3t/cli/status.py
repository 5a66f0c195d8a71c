"""`s3t status`."""

from __future__ import annotations

from s3t.cli.display import print_forecast, print_status
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show


def command(run: RunArgument, as_json: JsonOption = False) -> None:
    """Show shards, slices, sequences, what is alive and what serves, and how many more deletions that will take."""
    with failures_reported(as_json):
        import s3t

        with s3t.Run.open(run) as opened:
            status, forecast = opened.status(), opened.forecast()

        def render() -> None:
            print_status(status, run)
            print_forecast(forecast)

        show(status.to_json() | {"forecast": forecast.to_json()}, as_json, render)
