"""`s3t predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from s3t.cli.display import counted, print_line, print_table
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show
from s3t.progress_bar import ProgressBar


def command(
    run: RunArgument,
    data: Annotated[
        Path,
        typer.Option(
            "--input", metavar="FILE", help="Inputs: .csv, .jsonl or .parquet, labels not needed.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write the answers to a .csv, .jsonl or .parquet file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Answer with the ensemble: a label, every label's probability, and the generation that answered.

    Without --output the answers go to stdout.
    """
    with failures_reported(as_json):
        import s3t
        from s3t.prediction.writing import check_output, write_predictions

        if output is not None:
            check_output(output)
        with s3t.Run.open(run) as opened:
            result = opened.predict(data, progress=ProgressBar())
        document = result.to_json()
        if output is not None:
            write_predictions(output, result.rows())
            del document["predictions"]
            document |= {"output": str(output), "count": len(result.label)}

        def render() -> None:
            if output is not None:
                print_line(
                    f"{counted(len(result.label), 'answer')} of generation {result.generation} written to {output}"
                )
                return
            rows = result.rows()
            for row in rows:
                likely = row.pop("probabilities", None)
                if likely is not None:
                    row["probability"] = likely[row["label"]]
            print_table(f"generation {result.generation}", rows)

        show(document, as_json, render)
