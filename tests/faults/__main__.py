"""Repeats one trial: `python -m tests.faults SCENARIO KIND POINT SEED`. Without a point, lists the scenario's."""

from __future__ import annotations

import sys

from tests.faults.client import serving
from tests.faults.scenarios import SCENARIOS
from tests.faults.trial import KINDS, Trial


def main() -> None:
    """Print what comes of it; status 1 if it fails."""
    if len(sys.argv) not in (2, 5) or sys.argv[1] not in SCENARIOS or (len(sys.argv) == 5 and sys.argv[2] not in KINDS):
        sys.exit(f"{__doc__}\nscenarios: {', '.join(SCENARIOS)}\nkinds: {', '.join(KINDS)}")
    with serving() as client:
        if len(sys.argv) == 2:
            for number, kind_of_point in enumerate(client.points(sys.argv[1]), 1):
                print(number, kind_of_point)
            return
        scenario, kind, point, seed = sys.argv[1:]
        result = client.try_out(Trial(scenario=scenario, kind=kind, point=int(point), seed=int(seed), repair=True))
    print(result)
    sys.exit(1 if result.problems else 0)


if __name__ == "__main__":
    main()
