"""OpenMP's threads sleep while they wait, as OpenMP itself tells when torch loads it."""

import os
import subprocess
import sys

import pytest

import s3t
from s3t.waiting import let_threads_sleep
from testing import tiny

SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def told_by_openmp(code, **environment):
    """What OpenMP prints of its settings, with the output of the code."""
    clean = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    own = clean | {"OMP_DISPLAY_ENV": "true"} | environment
    return subprocess.run([sys.executable, "-c", code], env=own, check=True, capture_output=True, text=True)


@pytest.mark.integration
def test_they_sleep_unless_the_user_has_decided():
    for environment, policy in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")):
        done = told_by_openmp("import s3t, torch; torch.ones(2) + 1", **environment)
        assert f"OMP_WAIT_POLICY = '{policy}'" in done.stderr


def test_a_number_of_turns_to_spin_is_a_decision_too():
    code = "import os, s3t; print('OMP_WAIT_POLICY' in os.environ)"
    assert told_by_openmp(code, GOMP_SPINCOUNT="1000").stdout == "False\n"


@pytest.mark.integration
def test_training_on_several_threads_warns_that_torch_was_loaded_before_s3t(text_model, tmp_path, monkeypatch, caplog):
    """As it is in this process."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    assert not let_threads_sleep()
    for threads in (1, 2):
        recipe = tiny.recipe(text_model, training={"threads": threads, "epochs": 0})
        with s3t.Run.create(tmp_path / str(threads), recipe=recipe, data=tiny.text_table()) as run:
            run.train()
        told = [record.message.split(",")[0] for record in caplog.records]
        assert told == ["torch was loaded before s3t"] * (threads > 1)
