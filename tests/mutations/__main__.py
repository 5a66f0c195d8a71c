"""`python -m tests.mutations [NAME...] [--all]`: plant mistakes in copies of the tree and see the tests fail."""

from __future__ import annotations

import argparse
import sys

from tests.mutations.campaign import sound, try_out
from tests.mutations.catalogue import mutations


def main() -> None:
    """Print what comes of each; status 1 if one is not caught."""
    known = mutations()
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mistakes to plant; without any, they are listed")
    parser.add_argument("--all", action="store_true", help="plant all of them")
    parser.add_argument("--tests", nargs="+", default=[], help="run these of pytest's names instead of a mistake's own")
    parser.add_argument("--verbose", action="store_true", help="also what pytest says")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"no mistake is called {', '.join(unknown)}; without arguments, they are listed")
    chosen = [known[name] for name in (known if asked.all else asked.names)]
    if not chosen:
        for mutation in known.values():
            print(f"{mutation.room:12} {mutation.name}: {mutation.breaks}")
        return
    if not asked.tests and (output := sound(chosen)) is not None:
        sys.exit(f"{output}\ntests fail without any mistake; mend that first")
    missed = 0
    for mutation in chosen:
        options = ["-x"] if asked.tests else []
        result = try_out(mutation, tests=asked.tests, options=options)
        print(result, flush=True)
        if asked.tests:
            print("".join(f"        {test}\n" for test in result.failed), end="", flush=True)
        if asked.verbose or result.verdict in ("broken", "hung"):
            print(result.output)
        missed += result.verdict != "caught"
    print(f"{len(chosen)} planted, {len(chosen) - missed} caught")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
