"""Answers of kept systems: several processes share the work and wait for none but at the end."""

import threading
import time

import numpy as np
import pytest
from filelock import FileLock

from experiments.runs import answers_of, kept, recipe_of
from experiments.tasks import task

pytestmark = pytest.mark.integration


def test_what_another_process_answers_is_waited_for_last(tmp_path, monkeypatch):
    monkeypatch.setenv("S3T_EXPERIMENTS", str(tmp_path))
    found = task("banking77", records=None, made_up=True)
    recipe = recipe_of(found, {"epochs": 1, "learning_rate": 0.002, "batch_size": 32}, slices=2)
    with kept(recipe, found) as run:
        ((order, *_), *_) = run.inventory().orders
        prefixes = [order[:1], order]
        mine, theirs = (
            run.path.parent / "answers" / f"model-{'-'.join(map(str, p))}-of-{len(found.test)}.npy" for p in prefixes
        )
        theirs.parent.mkdir()
        got = {}
        asking = threading.Thread(target=lambda: got.update(answers_of(run, found, prefixes)))
        with FileLock(mine.with_suffix(".lock")):
            asking.start()
            until = time.monotonic() + 300
            while asking.is_alive() and not theirs.exists() and time.monotonic() < until:
                time.sleep(0.05)
            assert theirs.exists()
            assert asking.is_alive()
            assert not mine.exists()
        asking.join()
        assert set(got) == {(0, prefix) for prefix in prefixes}
        again = answers_of(run, found, prefixes)
        assert all(np.array_equal(got[key], again[key]) for key in got)
