"""Methods: what holds of every one, and a new one that is defined here alone, trained, deleted from and asked."""

import math

import numpy as np
import pytest

import s3t
from s3t.core import METHODS, Method, Stage, method_named
from s3t.models.adapters import deserialize
from s3t.records.ingest import ingest
from testing import tiny
from testing.plain import member_logits
from testing.roles import roles
from tests.run.worlds import make_worlds


class Pairs(Method):
    """A block for every two slices: the second stage of a pair trains the first one's block on."""

    def blocks(self, slices):
        return math.ceil(slices / 2)

    def trained(self, depth, slices):
        return math.ceil(depth / 2)

    def links(self, prefix):
        return (*(prefix[:depth] for depth in range(2, len(prefix), 2)), prefix)


def pairs(**options):
    return Pairs(name="pairs", **options)


EVERY = [
    *(method_named(name) for name in METHODS),
    method_named("s3t", direction="bottom-up", replay=0.5),
    pairs(),
]


@pytest.mark.parametrize("method", EVERY, ids=Method.described)
@pytest.mark.parametrize("slices", [1, 3, 6])
def test_links_train_a_block_each_a_stage_its_own_alone_and_the_last_one_the_whole_model(method, slices):
    order, before = tuple(reversed(range(slices))), {}
    for depth in range(1, slices + 1):
        links = method.links(order[:depth])
        assert links[-1] == order[:depth]
        assert all(link == order[: len(link)] for link in links)
        model = {method.trained(len(link), slices): link for link in links}
        assert len(model) == len(links)
        assert model == before | {method.trained(depth, slices): order[:depth]}
        before = model
    assert sorted(model) == list(range(1, method.blocks(slices) + 1))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_what_it_says_of_itself(name):
    method = method_named(name)
    assert method.declared() == {"name": name, "replay": 1.0, "direction": "top-down", "trainable": "adapter"}
    assert str(method) == method.described() == name
    assert method_named("s3t", replay=0.5, direction="bottom-up").described() == "s3t, replay 0.5, bottom-up"


def test_a_new_method_trains_forgets_exactly_and_answers(text_model, tmp_path, monkeypatch):
    """An entry in METHODS is all that it takes."""
    monkeypatch.setitem(METHODS, "pairs", pairs)
    table = tiny.text_table()
    small = {"training": {"epochs": 1}, "partition": {"shards": 1}, "sequences": {"budget": 2}}
    recipe = tiny.recipe(text_model, method="pairs", **small)
    worlds = make_worlds(tmp_path, recipe, table, [["r1"]])
    worlds.assert_exact()
    assert worlds.forgot.audit(replay=2).ok
    run = worlds.never_knew
    order = run.inventory().orders[0][0]
    stages = [stage_tensors(run, order[:depth]) for depth in (1, 2, 3)]
    assert [layers_of(tensors) for tensors in stages] == [{2}, {2}, {1}]
    assert any(not value.equal(stages[1].block[name]) for name, value in stages[0].block.items())
    answered = run.predict(table, prefixes={0: order}).logits[0]
    shop = roles(run).loaded.get()
    plain = member_logits(
        shop.model,
        {1: stages[1], 2: stages[2]},
        shop.encoder.encode(ingest(table, run.recipe).rows),
        encoder=shop.encoder,
        batch_size=4,
        training=run.recipe.training,
    )
    assert np.allclose(answered, plain, atol=1e-5)
    worlds.close()


def test_what_a_new_method_does_not_allow_is_refused_by_its_own_name(text_model, monkeypatch):
    monkeypatch.setitem(METHODS, "pairs", lambda **options: Pairs(name="pairs", one_order=True, **options))
    with pytest.raises(s3t.RecipeError, match="method pairs has one order a shard"):
        s3t.Run.create("never", recipe=tiny.recipe(text_model, method="pairs"), data=tiny.text_table())
    with pytest.raises(s3t.RecipeError, match="'ridge' or 'pairs'"):
        s3t.Run.create("never", recipe=tiny.recipe(text_model, method="triples"), data=tiny.text_table())


def stage_tensors(run, prefix):
    key = run.inventory().alive[Stage(0, prefix)]
    return deserialize((run.path / "artifacts" / "shard-000" / f"{key}.safetensors").read_bytes())


def layers_of(tensors):
    return {int(name.split("layer.")[1].split(".")[0]) for name in tensors.block}
