"""`python -m tests.inputs --seed S --trials N`: so many wrong inputs; ends with 1 if a promise was broken."""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.inputs.trial import World, attempt

APART_ONE_IN = 50
"""Trials that have a process of their own, to see that it makes no difference."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--only", type=int, help="the number of one trial")
    asked = parser.parse_args()
    print(f"--seed {asked.seed} --trials {asked.trials}", flush=True)
    started, failed, counts = time.monotonic(), 0, collections.Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["S3T_STATE"] = str(Path(folder) / "state")
        world = World.make(Path(folder))
        for number in range(asked.trials) if asked.only is None else [asked.only]:
            result = attempt(world, seed=asked.seed, number=number, apart=number % APART_ONE_IN == APART_ONE_IN - 1)
            counts[f"{result.what}, status {result.status}"] += 1
            if number % 100 == 99:
                print(f"{number + 1} trials, {time.monotonic() - started:.0f} s", flush=True)
            if result.problems or asked.only is not None:
                failed += bool(result.problems)
                print(result, flush=True)
    for name, count in sorted(counts.items()):
        print(f"{count:6}  {name}")
    print(f"{sum(counts.values())} trials, {failed} failed, {time.monotonic() - started:.0f} s")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
