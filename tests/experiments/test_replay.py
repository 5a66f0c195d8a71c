"""Deletions that are replayed give what deletions from a run give; requests that are simulated, what counting gives."""

import random
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig

import s3t
from experiments.alpaca import base_folder
from experiments.replay import Judge, curves, first_hits, of_prefixes, sisa_answers
from experiments.requests import requests_of
from experiments.runner import FOLDER
from experiments.runs import expected_of, recipe_of, remembering_in
from experiments.served import beside_prototypes, own_orders, protosisa
from experiments.settings import load
from experiments.small_llama.settings import Config
from experiments.tasks import TASKS, task
from testing import tiny
from tests.experiments.test_kept_by_forests import TRAINING, Two


@pytest.fixture
def found(tmp_path, monkeypatch):
    monkeypatch.setenv("S3T_EXPERIMENTS", str(tmp_path / "kept"))
    return task("banking77", made_up=True)


@contextmanager
def copied(folder):
    """A copy of the one run that is kept."""
    (kept,) = (folder / "kept").iterdir()
    with remembering_in(folder), s3t.Run.open(tiny.copy_run(kept / "run", folder / "copy")) as run:
        yield run


@pytest.mark.integration
@pytest.mark.parametrize("method", [None, "sisa"])
def test_a_replay_is_as_right_as_the_run_from_which_the_records_are_deleted(found, tmp_path, method):
    recipe = recipe_of(found, TRAINING, shards=2, slices=2, budget=2, method=method)
    answers = own_orders(recipe, found)
    judge = Judge(of_prefixes(answers.logits, answers.orders), expected_of(found))
    records = list(found.train.id)
    random.Random(0).shuffle(records)
    dead, seen = np.zeros((2, 2), dtype=bool), []
    with copied(tmp_path) as run:
        for record in records[:8]:
            (located,) = run.locate(records=[record])
            ((shard, index, *_),) = located.places
            dead[shard, index] = True
            run.delete(records=[record])
            seen.append(judge.accuracy(dead))
            if seen[-1] is None:
                with pytest.raises(s3t.NoLiveShardError):
                    run.evaluate(found.test)
                break
            assert run.evaluate(found.test, per_depth=False).accuracy == seen[-1]
    assert len(set(seen)) > 1


@pytest.mark.integration
def test_prototypes_that_are_replayed_weigh_as_a_run_weighs_them(found, tmp_path):
    models, prototypes = protosisa(Two(), found)
    judge = Judge(beside_prototypes(models, prototypes, weight=0.5), expected_of(found))
    (order,), dead = models.orders[0], np.zeros((2, 2), dtype=bool)
    with copied(tmp_path) as run:
        assert run.evaluate(found.test, per_depth=False).accuracy == judge.accuracy(dead)
        located = run.locate(records=list(found.train.id))
        last = next(record for record in located if record.places[0][:2] == (0, order[-1]))
        run.delete(records=[last.name])
        dead[0, order[-1]] = True
        assert run.evaluate(found.test, per_depth=False).accuracy == judge.accuracy(dead)


@given(
    sizes=st.lists(st.lists(st.integers(1, 5), min_size=2, max_size=2), min_size=1, max_size=3),
    seed=st.integers(0, 99),
)
def test_every_slice_is_hit_when_its_first_record_comes(sizes, seed):
    times = first_hits(np.array(sizes), np.random.default_rng(seed))
    assert len(set(times.flatten())) == times.size
    assert times.min() == 1
    assert times.max() <= np.sum(sizes)


def test_curves_end_where_every_shard_is_dead():
    right, wrong = np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)[::-1]
    logits = {(0, (0,)): wrong, (0, (0, 1)): right}
    judge = Judge(of_prefixes(logits, [[(0, 1)]]), np.array([0, 1]))
    assert judge.curve(np.array([[5, 2]]), [0, 1, 2, 4, 5]) == [1.0, 1.0, 0.0, 0.0, None]
    found = curves(judge, [0, 20], np.array([[10, 10]]), rounds=7, seed=0)
    assert (found["accuracy"], found["alive"]) == ([1.0, None], [1.0, 0.0])


def test_systems_are_compared_over_the_same_deletion_orders():
    """A system of one order outlives few; its answers over those must not be held against another's over all."""
    right, wrong = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    logits = {(0, (0,)): right, (0, (0, 1)): right, (0, (1,)): wrong, (0, (1, 0)): wrong}
    one, both = (Judge(of_prefixes(logits, [orders]), np.array([0])) for orders in (((0, 1),), ((0, 1), (1, 0))))
    sizes = np.array([[5, 5]])

    def after(judge, **where):
        return curves(judge, [0, 3], sizes, rounds=200, seed=0, **where)

    assert after(one)["accuracy"] == after(both, where=sisa_answers)["accuracy"] == [1.0, 1.0]
    assert after(both)["accuracy"][1] < 1.0
    assert after(both)["alive"][1] > after(one)["alive"][1] == after(both, where=sisa_answers)["alive"][1]


def test_no_record_is_asked_for_twice():
    sizes = np.array([[2, 3], [1, 4]])
    found = requests_of(sizes, 10, np.random.default_rng(0))
    assert {place: found.count(place) for place in found} == {(0, 0): 2, (0, 1): 3, (1, 0): 1, (1, 1): 4}


@pytest.mark.integration
@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_its_records(name, real_data, tmp_path, monkeypatch):
    monkeypatch.setenv("S3T_DATA", str(real_data))
    monkeypatch.setenv("S3T_EXPERIMENTS", str(tmp_path))
    if name == "alpaca":  # its base takes two hours to train; the task reads the number of its layers
        shape = load(Config, FOLDER / "small_llama" / "config.yaml").model
        LlamaConfig(**shape.model_dump()).save_pretrained(base_folder())
    found = task(name, records=40, tried=30)
    assert (len(found.train), len(found.test)) == (40, 30)
    assert found.train.id.is_unique
    if "labels" in found.recipe:
        each = pd.concat([found.train.label, found.test.label]).explode().dropna()  # of lists every label
        assert set(each) <= set(found.recipe["labels"])
    assert not found.test.isna().any().any()
