"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.", show_default=False)]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout instead of tables, and nothing else there.")
]
