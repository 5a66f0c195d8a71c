"""The command line of the experiments."""

from __future__ import annotations

import argparse
import sys

import experiments
from experiments.runner import NAMES, draw, run, smoke, suite
from experiments.tasks import MissingRecordsError
from s3t.engine import cores_worth
from s3t.errors import S3TError


def main() -> None:
    """Run or draw one experiment, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments", description=experiments.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", choices=[*NAMES, "all"], metavar="NAME", help=", ".join([*NAMES, "or all"]))
    parser.add_argument("--smoke", action="store_true", help="at a small size, into a folder that goes: that it works")
    parser.add_argument("--draw", action="store_true", help="draw again from results.json; compute nothing")
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="processes that share the work (default: the cores there are; of --smoke 1); set OMP_NUM_THREADS=1 with "
        "several",
    )
    options = parser.parse_args()
    try:
        _do(options)
    except (MissingRecordsError, S3TError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped; the same command goes on where it was", file=sys.stderr)
        sys.exit(130)


def _do(options: argparse.Namespace) -> None:
    names = NAMES if options.name == "all" else [options.name]
    if options.smoke:
        smoke(names, jobs=options.jobs or 1)
        return
    if options.draw:
        for name in names:
            draw(name)
    elif options.name == "all":
        suite(names, jobs=options.jobs or cores_worth())
    else:
        run(options.name, jobs=options.jobs or cores_worth())


if __name__ == "__main__":
    main()
