"""The present state of an open run, which goes with every deletion."""

from itertools import count

import pytest

import s3t
from s3t.core import Place
from s3t.run.workshop import Workshop
from testing import tiny
from testing.roles import roles
from tests.slice_files import read_slice


@pytest.fixture
def run(text_model, tmp_path, monkeypatch):
    """Of one shard, two slices and two orders; each stage that is trained is better on public records."""
    scores = count(1)
    monkeypatch.setattr(Workshop, "_score", lambda *_about: float(next(scores)))
    table = tiny.text_table()
    table.head(3).assign(text="of nobody").drop(columns="id").to_csv(tmp_path / "public.csv", index=False)
    recipe = tiny.recipe(
        text_model,
        partition={"shards": 1, "slices": 2},
        sequences={"budget": 2},
        training={"epochs": 0},
        prediction={"select": "validation", "validation": str(tmp_path / "public.csv")},
    )
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        run.train()
        yield run


def assert_scores_are_those_of_what_serves(run):
    """By the manifests, read anew."""
    inventory = roles(run).latest.inventory(roles(run).latest.snapshot())
    ends = inventory.serving_all[0]
    keys = [inventory.alive[stage] for stage in ends]
    wanted = {key: roles(run).store.manifest(0, key).validation for key in keys}
    assert inventory.scores == wanted
    assert inventory.serving(0) in ends
    assert inventory.alive[inventory.serving(0)] == max(wanted, key=wanted.get)


@pytest.mark.parametrize("looked", [True, False])
def test_no_score_of_a_deleted_stage_chooses_who_serves_or_stays_in_memory(run, looked):
    """Trained again, a stage has the place of the one before in the tree, and another score."""
    for index in (0, 1, 0):
        assert_scores_are_those_of_what_serves(run)
        names = read_slice(run.path / "slices", Place(0, index), roles(run).secret).rows["record"].to_pylist()
        with s3t.Run.open(run.path) as other:
            other.delete(records=names[:1])
            if looked:
                assert_scores_are_those_of_what_serves(run)
            other.repair()
    assert_scores_are_those_of_what_serves(run)
