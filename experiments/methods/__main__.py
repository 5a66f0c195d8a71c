"""The command line: methods that are in the results, of the same settings, are not trained again."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import describe, kind
from experiments import methods
from experiments.methods.experiment import Config, measure
from experiments.methods.table import table
from experiments.settings import load
from experiments.tasks import task

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results.json"


def main() -> None:
    """Measure what is not measured yet, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.methods",
        description=methods.__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--smoke", action="store_true", help="a few made-up records, one round: that it works")
    parser.add_argument("--method", action="append", help="measure this method alone; may be repeated")
    parser.add_argument("--results", help="file of results; methods that are there are not measured again")
    options = parser.parse_args()
    if options.smoke and options.results is None:
        parser.error("--smoke measures nothing that may be kept: name another file with --results")
    config = load(Config, FOLDER / "config.yaml", smoke=options.smoke)
    unknown = sorted(set(options.method or ()) - config.methods.keys())
    if unknown:
        parser.error(f"no method is called {', '.join(unknown)}; there are {', '.join(config.methods)}")
    path = Path(options.results or RESULTS)
    records = task("banking77", made_up=options.smoke)
    found = _kept(path, config)
    for name in options.method or config.methods:
        if name in found["rows"]:
            continue
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".experiment-") as folder:
            row = measure(config, name, records, Path(folder))
        found["rows"][name] = row | {"commit": describe()["commit"]}
        path.write_text(json.dumps(found, indent=2) + "\n")
    print(table(found))


def _kept(path: Path, config: Config) -> dict[str, Any]:
    """What the file of results says, if it is of the same settings and machine; else nothing yet."""
    fresh: dict[str, Any] = {"config": config.model_dump(mode="json"), "machine": kind(), "rows": {}}
    if not path.exists():
        return fresh
    kept: dict[str, Any] = json.loads(path.read_text())
    same = all(kept[name] == fresh[name] for name in ("config", "machine"))
    return kept if same else fresh


if __name__ == "__main__":
    main()
