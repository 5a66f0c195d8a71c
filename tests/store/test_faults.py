"""A run's life on a bucket whose requests are refused, cut, slow, or carried out and told as failed."""

from __future__ import annotations

import random

import pytest

import s3t
from testing import buckets
from tests.store.test_buckets import TABLE, created, stored

FAULTS: tuple[buckets.Fault, ...] = ("cut", "403", "409", "500", "503", "slow", "told as failed")
LIVES = 70
"""Of the slow test, with some ten faults each."""
TRIES = 60
STEPS = {
    "train": lambda run: run.train(),
    "delete": lambda run: run.delete(records=["r3"]),
    "repair": lambda run: run.repair(),
    "delete again": lambda run: run.delete(records=["r5", "r8"]),
    "add": lambda run: run.add(TABLE.iloc[:2].assign(id=["n1", "n2"])),
    "delete what came": lambda run: run.delete(records=["n1"]),
    "train again": lambda run: run.train(),
    "erase": lambda run: run.erase(),
}


def lived(folder):
    """Take every step, again in a newly opened run where the bucket refused, until nothing is unfinished; refusals."""
    refused = []
    for name, step in STEPS.items():
        for _ in range(TRIES):
            try:
                with s3t.Run.open(folder) as run:
                    step(run)
                    if not run.status().unfinished:
                        break
            except s3t.StorageError as error:
                refused.append(f"{name}: {error}")
            except s3t.InputError:  # it was accepted, and its answer refused
                if name != "add":
                    raise
                break
        else:
            raise AssertionError(f"{name} is not done after {TRIES} tries: {refused[-3:]}")
    return refused


@pytest.fixture(scope="module")
def undisturbed(text_model, tmp_path_factory):
    """The bytes of the same life in a folder."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    created(folder, text_model).close()
    assert lived(folder) == []
    return stored(folder)


@pytest.mark.parametrize(
    "lives", [pytest.param(2, marks=pytest.mark.integration), pytest.param(LIVES, marks=pytest.mark.slow)]
)
def test_no_deletion_is_lost_and_nothing_comes_back(lives, undisturbed, text_model, tmp_path, monkeypatch):
    made, refused = [], 0
    for life in range(lives):
        draw, window = random.Random(life), []

        def fault(method, path, draw=draw, window=window):
            if not window and draw.random() < 0.06:
                window.extend([draw.choice(FAULTS)] * draw.choice((1, 9)))
                made.append(window[-1])
            return window.pop() if window else None

        with (
            buckets.moto() as server,
            buckets.bucket_at(server, f"life-{life}-of-{lives}", monkeypatch.setenv) as bucket,
        ):
            created(tmp_path / str(life), text_model, bucket=bucket).close()
            bucket.fault = fault
            refused += len(lived(tmp_path / str(life)))
            bucket.fault = lambda method, path: None
            with s3t.Run.open(tmp_path / str(life)) as run:
                run.erase()  # what came late is found by a listing
                assert run.audit().ok
            objects = {name: content for name, content in bucket.objects().items() if not name.endswith("/probe")}
            assert objects == undisturbed, life
    print(f"{len(made)} faults in {lives} lives, {refused} refusals")
    assert refused
