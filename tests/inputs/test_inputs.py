"""Random wrong inputs: no traceback, no hang, nothing half made, no text of a record. S3T_INPUT_SEED draws others."""

import os

import pytest

from tests.inputs.trial import World, attempt

SEED = int(os.environ.get("S3T_INPUT_SEED", "20263"))


@pytest.fixture(scope="module")
def world(tmp_path_factory, state_of_all):
    return World.make(tmp_path_factory.mktemp("inputs"))


@pytest.mark.parametrize("trials", [range(20), pytest.param(range(20, 300), marks=pytest.mark.integration)])
def test_wrong_inputs_are_refused_in_words_and_leave_all_as_it_was(trials, world):
    results = [attempt(world, seed=SEED, number=number) for number in trials]
    failed = [str(result) for result in results if result.problems]
    assert not failed, f"python -m tests.inputs --seed {SEED} --only NUMBER\n" + "\n".join(failed)
