"""ProtoSISA: class means beside SISA, exact slice by slice, and what they answer."""

import numpy as np
import pyarrow as pa
import pytest
import torch

import s3t
from s3t.core import Stage
from s3t.deletion import acceptance
from s3t.models.adapters import StageTensors
from s3t.prediction.prototypes import TEMPERATURE
from s3t.recipe import recipe_from
from s3t.run import workshop
from testing import tiny
from testing.roles import roles
from tests.run.worlds import make_worlds, records_by_slice

pytestmark = pytest.mark.integration


def recipe_with(model, *, method="protosisa", shards=2, **prediction):
    recipe = tiny.recipe(model, partition={"shards": shards}, prediction=prediction) | {"method": {"name": method}}
    del recipe["sequences"]
    return recipe


@pytest.fixture
def made(tmp_path):
    """A function that makes and trains a run; closed in the end."""
    runs = []

    def make(recipe, table=None):
        table = tiny.text_table() if table is None else table
        runs.append(s3t.Run.create(tmp_path / str(len(runs)), recipe=recipe, data=table))
        runs[-1].train()
        return runs[-1]

    yield make
    for run in runs:
        run.close()


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


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_a_shards_logits_are_weighted(weight, text_model, made):
    table = tiny.text_table()
    run = made(recipe_with(text_model, sisa_weight=weight))
    answer = run.predict(table)
    model, prototypes = answer.logits[[0, 2]], answer.logits[[1, 3]]
    mixed = (weight * model + (1 - weight) * prototypes).mean(axis=0)
    shifted = np.exp(mixed - mixed.max(axis=-1, keepdims=True))
    assert np.allclose(answer.probabilities, shifted / shifted.sum(axis=-1, keepdims=True))
    if weight == 1.0:
        sisa = made(recipe_with(text_model, method="sisa"))
        assert np.allclose(sisa.predict(table).probabilities, answer.probabilities)


def test_a_metric_of_a_shard_is_that_of_both_together(text_model, made):
    run = made(recipe_with(text_model))
    found = run.evaluate(tiny.text_table())
    assert [row["shard"] for row in found.per_shard] == [0, 1]
    assert [row["depth"] for row in found.per_depth] == [1, 2, 3]
    assert found.per_depth[-1]["accuracy"] == found.accuracy


def first_slice_of(recipe, run, shard):
    order = run.inventory().orders[shard][0]
    return records_by_slice(recipe, tiny.text_table())[shard, order[0]][0]


def test_where_no_checkpoint_is_left_the_system_is_dead_and_with_leave_prototypes_answer(text_model, made):
    table = tiny.text_table()
    for alone in (False, True):
        recipe = recipe_with(text_model, prototypes_alone=alone)
        run = made(recipe)
        run.delete(records=[first_slice_of(recipe, run, shard) for shard in (0, 1)])
        assert run.status().depths == (0, 0)
        if not alone:
            with pytest.raises(s3t.NoLiveShardError):
                run.predict(table)
            continue
        answer = run.predict(table)
        assert kinds(answer.members) == [(0, "prototypes"), (1, "prototypes")]
        assert {len(member.prefix) for member in answer.members} == {2}  # without the slice that lost a record
        assert [row["depth"] for row in run.evaluate(table).per_shard] == [0, 0]


def test_a_deletion_takes_the_prototypes_of_its_slice_alone(text_model, made):
    table = tiny.text_table()
    recipe = recipe_with(text_model, shards=1)
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


def single(prototypes):
    return StageTensors(block={name: tensor.float() for name, tensor in prototypes.block.items()}, head={})


def less_what_left():
    """Prototypes in single precision that are subtracted from, instead of being made again. (Ours are sums of single
    numbers in double precision: with so few records, subtracting from them would happen to be exact.)"""
    first, make = {}, workshop.Workshop._of_slice

    def subtracted(self, stage, *given):
        sums = make(self, stage, *given)
        known = first.setdefault((id(self), stage), sums)
        if known is sums:
            return single(sums)
        loss = single(StageTensors(block={name: known.block[name] - sums.block[name] for name in sums.block}, head={}))
        rest = {name: single(known).block[name] - loss.block[name] for name in sums.block}
        return StageTensors(block=rest, head={})

    return subtracted


@pytest.mark.parametrize("leak", ["subtraction", "not taken"])
def test_planted_leaks_are_caught(leak, text_model, tmp_path, monkeypatch):
    if leak == "subtraction":
        monkeypatch.setattr(workshop.Workshop, "_of_slice", less_what_left())
    else:
        plan = acceptance.plan_deletion

        def models_alone(inventory, losses):
            return tuple(stage for stage in plan(inventory, losses) if stage.kind == "model")

        monkeypatch.setattr(acceptance, "plan_deletion", models_alone)
    worlds = make_worlds(tmp_path, recipe_with(text_model, shards=1), tiny.text_table(), [["r1"], ["r4"], ["r9"]])
    worlds.forgot.repair()
    assert not worlds.identical()
    worlds.close()


def test_what_prototypes_cannot_do_is_refused(text_model):
    with pytest.raises(s3t.RecipeError, match="one label a record"):
        recipe_from(
            recipe_with(text_model)
            | {"task": "text-regression", "labels": None, "columns": {"text": "t", "label": "y"}}
        )
    with pytest.raises(s3t.RecipeError, match="prototypes_alone belongs to protosisa"):
        recipe_from(recipe_with(text_model, method="sisa", prototypes_alone=True))
