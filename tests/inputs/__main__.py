"""`python -m tests.inputs --seed S --trials N`: so many wrong inputs; ends with 1 if a promise was broken."""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import tempfile
from pathlib import Path

from tests.inputs.trial import World, attempt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--only", type=int, help="the number of one trial")
    asked = parser.parse_args()
    print(f"--seed {asked.seed} --trials {asked.trials}", flush=True)
    failed, counts = 0, collections.Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["S3T_STATE"] = str(Path(folder) / "state")
        world = World.make(Path(folder))
        for number in range(asked.trials) if asked.only is None else [asked.only]:
            result = attempt(world, seed=asked.seed, number=number)
            counts[f"{result.what}, status {result.status}"] += 1
            if result.problems or asked.only is not None:
                failed += bool(result.problems)
                print(result, flush=True)
    for name, count in sorted(counts.items()):
        print(f"{count:6}  {name}")
    print(f"{sum(counts.values())} trials, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
