"""A fault at every call that changes a file: no accepted deletion is lost, nothing erased comes back, all goes on.

S3T_FAULT_SEED draws other trials. A failed one prints the command that repeats it alone.
"""

import os

import pytest

from tests.faults.client import Client, draw, summary
from tests.faults.scenarios import SCENARIOS
from tests.faults.trial import Trial

SEED = int(os.environ.get("S3T_FAULT_SEED", "20261"))
PARTS = 8


def assert_all_promises_kept(client: Client, trials: list[Trial]) -> None:
    print(f"\nS3T_FAULT_SEED={SEED}, {len(trials)} trials")
    results = []
    for trial in trials:
        results.append(client.try_out(trial))
        if results[-1].problems:
            print(results[-1], flush=True)
    print(summary(results))
    failed = [str(result) for result in results if result.problems]
    assert not failed, "\n".join(failed)
    missed = [str(result) for result in results if result.outcome == "missed"]
    assert len(missed) <= len(trials) // 50, "faults that did not happen:\n" + "\n".join(missed)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("scenario", "third"), [("clone", 1), ("approve", 2), ("export-and-delete", 1), ("serve", 2), ("delete-open", 1)]
)
def test_killed_and_opened_again_nothing_is_lost_and_nothing_comes_back(client_on_sqlite, scenario, third):
    """A few of those below, in `make test`."""
    point = len(client_on_sqlite.points(scenario)) * third // 3
    assert_all_promises_kept(client_on_sqlite, [Trial(scenario=scenario, kind="kill", point=point, seed=SEED)])


def test_a_hundred_faults_lose_no_deletion_and_bring_nothing_back(client):
    points = {name: client.points(name) for name in SCENARIOS}
    trials = draw(points, trials=100, seed=SEED, every_point=False, repair_one_in=10)
    assert len(trials) >= 100
    assert_all_promises_kept(client, trials)


@pytest.mark.parametrize("seeds", [12, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("scenario", "kind", "path", "nth"),
    [
        # The slice is renamed, its folder not yet synchronised: the next process must not take it for done.
        ("delete-one", "kill-power", "/slices/shard-000", 1),
        ("reconcile-slices", "kill-power", "/slices/shard-000", 1),
        # The acceptance is written, but not synchronised: who finds it must see to that before erasing by it.
        ("delete-one", "kill-power", "/ledger.sqlite-wal", 2),
        # SQLite does not tell that its log's name could not be made durable.
        ("delete-one", "fsync-power", "run", 1),
    ],
)
def test_what_only_two_faults_together_show(client, scenario, kind, path, nth, seeds):
    point = client.find(scenario, "sync", path=path, nth=nth)
    trials = [Trial(scenario=scenario, kind=kind, point=point, seed=seed) for seed in range(seeds)]
    assert_all_promises_kept(client, trials)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_fault_at_every_point_loses_no_deletion_and_brings_nothing_back(client, part):
    """In parts, so that cores can share them (`pytest tests/faults -m slow -n 2`) and a part can be run again."""
    points = {name: client.points(name) for name in SCENARIOS}
    trials = draw(points, trials=7000, seed=SEED, every_point=True, repair_one_in=5)
    met = {(trial.scenario, trial.point) for trial in trials}
    assert met == {(name, point) for name, types in points.items() for point in range(1, len(types) + 1)}
    assert_all_promises_kept(client, trials[part::PARTS])
