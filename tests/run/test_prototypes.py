"""ProtoSISA: class means beside SISA, exact slice by slice, and what they answer."""

from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pytest
import torch

import s3t
from s3t.core import Stage
from s3t.prediction.prototypes import TEMPERATURE
from s3t.recipe import recipe_from
from testing import tiny
from testing.roles import roles
from tests.run.worlds import records_by_slice, trained_run

pytestmark = pytest.mark.integration


def recipe_with(model, *, method="protosisa", shards=2, **prediction):
    recipe = tiny.recipe(model, partition={"shards": shards}, prediction=prediction) | {"method": {"name": method}}
    del recipe["sequences"]
    return recipe


@pytest.fixture
def made(tmp_path):
    """A function that makes and trains a run."""
    with ExitStack() as runs:
        yield lambda recipe: runs.enter_context(trained_run(tmp_path / "run", recipe, tiny.text_table()))


def kinds(members):
    return [(member.shard, member.kind) for member in members]


def test_every_slice_has_prototypes_that_are_trained_once_and_replayed(text_model, made):
    run = made(recipe_with(text_model))
    alive = run.inventory().alive
    assert {stage for stage in alive if stage.kind == "prototypes"} == {
        Stage(shard, (index,), "prototypes") for shard in (0, 1) for index in (0, 1, 2)
    }
    assert len(alive) == 6 + 6
    assert run.train().stages == ()
    assert run.audit(replay=12).ok


def feature_of(run, text):
    """By transformers alone, the model bare."""
    model, encoder = roles(run).loaded.get().model, roles(run).loaded.get().encoder
    batch = encoder.collate(encoder.encode(pa.table({"text": [text]})))
    with torch.no_grad():
        states = model.base.model.backbone(**batch).last_hidden_state[0]
    return torch.nn.functional.normalize(states.mean(dim=0), dim=0).double().numpy()


def test_a_classifier_answers_with_the_cosine_to_the_mean_of_its_slices_records(text_model, made):
    table = tiny.text_table()
    recipe = recipe_with(text_model)
    run = made(recipe)
    probe = ["w1 w30 w7", "w2"]
    answer = run.predict(probe)
    assert kinds(answer.members) == [(0, "model"), (0, "prototypes"), (1, "model"), (1, "prototypes")]
    places = records_by_slice(recipe, table)
    own = [record for (shard, _), records in places.items() if shard == 0 for record in records]
    rows = table[table.id.isin(own)]
    means = []
    for label in "abc":
        found = [feature_of(run, text) for text in rows[rows.label == label].text]
        means.append(np.sum(found, axis=0) / np.linalg.norm(np.sum(found, axis=0)) if found else None)
    for number, text in enumerate(probe):
        feature = feature_of(run, text)
        wanted = [(-1.0 if mean is None else float(feature @ mean)) / TEMPERATURE for mean in means]
        assert np.allclose(answer.logits[1, number], wanted, atol=1e-4)
    assert np.ptp(answer.logits[1]) > 0.1


def test_a_shards_logits_are_weighted_and_its_metric_is_that_of_both_together(text_model, made):
    table = tiny.text_table()
    run = made(recipe_with(text_model, sisa_weight=0.25))
    answer = run.predict(table)
    mixed = (0.25 * answer.logits[[0, 2]] + 0.75 * answer.logits[[1, 3]]).mean(axis=0)
    shifted = np.exp(mixed - mixed.max(axis=-1, keepdims=True))
    assert np.allclose(answer.probabilities, shifted / shifted.sum(axis=-1, keepdims=True))
    found = run.evaluate(table)
    assert [row["shard"] for row in found.per_shard] == [0, 1]
    assert [row["depth"] for row in found.per_depth] == [1, 2, 3]
    assert found.per_depth[-1]["accuracy"] == found.accuracy


@pytest.mark.parametrize("alone", [False, True])
def test_where_no_checkpoint_is_left_the_system_is_dead_or_prototypes_answer(alone, text_model, made):
    table, recipe = tiny.text_table(), recipe_with(text_model, prototypes_alone=alone)
    run, places = made(recipe), records_by_slice(recipe, table)
    run.delete(records=[places[shard, run.inventory().orders[shard][0][0]][0] for shard in (0, 1)])
    assert run.status().depths == (0, 0)
    if not alone:
        with pytest.raises(s3t.NoLiveShardError):
            run.predict(table)
        return
    answer = run.predict(table)
    assert kinds(answer.members) == [(0, "prototypes"), (1, "prototypes")]
    assert {len(member.prefix) for member in answer.members} == {2}  # without the slice that lost a record
    assert [row["depth"] for row in run.evaluate(table).per_shard] == [0, 0]


def test_a_deletion_takes_the_prototypes_of_its_slice_alone(text_model, made):
    table, recipe = tiny.text_table(), recipe_with(text_model, shards=1)
    run = made(recipe)
    order = run.inventory().orders[0][0]
    report = run.delete(records=records_by_slice(recipe, table)[0, order[2]][:1])
    assert report.stages_lost == 2  # the last checkpoint, and these
    assert [stage.prefix for stage in run.inventory().missing()] == [(order[2],), order]
    document = run.status().to_json()["shards"][0]
    assert document["prototypes"] == sorted(order[:2])
    assert [(member.kind, set(member.prefix)) for member in run.predict(table).members] == [
        ("model", set(order[:2])),
        ("prototypes", set(order[:2])),
    ]
    trained = run.repair()
    assert {stage.kind for stage in trained.stages} == {"model", "prototypes"}
    described = [(stage["prefix"], stage.get("kind")) for stage in trained.to_json()["summaries"]]
    assert ([order[2]], "prototypes") in described


def test_what_prototypes_cannot_do_is_refused(text_model):
    numbers = {"task": "text-regression", "labels": None, "columns": {"text": "t", "label": "y"}}
    with pytest.raises(s3t.RecipeError, match="one label a record"):
        recipe_from(recipe_with(text_model) | numbers)
    with pytest.raises(s3t.RecipeError, match="prototypes_alone belongs to protosisa"):
        recipe_from(recipe_with(text_model, method="sisa", prototypes_alone=True))
