"""Repeats one trial: `python -m tests.faults SCENARIO KIND POINT SEED`. Without a point, lists the scenario's."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testing.postgres import PostgresServer
from tests.faults.client import Client, serving
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.faults.trial import KINDS, Trial


def main() -> None:
    """Print what comes of it; status 1 if it fails."""
    if len(sys.argv) not in (2, 5) or sys.argv[1] not in SCENARIOS or (len(sys.argv) == 5 and sys.argv[2] not in KINDS):
        sys.exit(f"{__doc__}\nscenarios: {', '.join(SCENARIOS)}\nkinds: {', '.join(KINDS)}")
    with _client(SCENARIOS[sys.argv[1]]) as client:
        if len(sys.argv) == 2:
            for number, (type_of_point, path) in enumerate(client.counted(sys.argv[1]), 1):
                print(number, type_of_point, path)
            return
        scenario, kind, point, seed = sys.argv[1:]
        result = client.try_out(Trial(scenario=scenario, kind=kind, point=int(point), seed=int(seed), repair=True))
    print(result)
    sys.exit(1 if result.problems else 0)


@contextmanager
def _client(scenario: Scenario) -> Iterator[Client]:
    if not scenario.postgres:
        with serving() as client:
            yield client
        return
    server = PostgresServer.start(Path(tempfile.mkdtemp(prefix="s3t-pg-", dir="/tmp")))
    try:
        with serving(server.create_database("faults")) as client:
            yield client
    finally:
        server.stop()


if __name__ == "__main__":
    main()
