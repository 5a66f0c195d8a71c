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
@pytest.mark.parametrize("slices", [1, 2, 3, 6])
def test_the_links_of_a_prefix_train_a_block_each_and_are_the_whole_model_at_the_end(method, slices):
    order = tuple(reversed(range(slices)))
    for depth in range(1, slices + 1):
        links = method.links(order[:depth])
        assert links[-1] == order[:depth]
        assert all(link == order[: len(link)] for link in links)
        trained = [method.trained(len(link), slices) for link in links]
        assert len(set(trained)) == len(trained)
    assert sorted(trained) == list(range(1, method.blocks(slices) + 1))


@pytest.mark.parametrize("method", EVERY, ids=Method.described)
@pytest.mark.parametrize("slices", [2, 5])
def test_a_stage_changes_its_own_block_alone(method, slices):
    """The model of a prefix is that of the prefix before, but for the block that its last stage trains."""

    def model(prefix):
        return {method.trained(len(link), slices): link for link in method.links(prefix)}

    order = tuple(range(slices))
    for depth in range(2, slices + 1):
        own = method.trained(depth, slices)
        assert model(order[:depth]) == model(order[: depth - 1]) | {own: order[:depth]}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_what_it_says_of_itself(name):
    method = method_named(name)
    assert method.declared() == {"name": name, "replay": 1.0, "direction": "top-down", "trainable": "adapter"}
    assert str(method) == method.described() == name


def test_a_method_in_a_few_words():
    assert method_named("s3t", replay=0.5, direction="bottom-up").described() == "s3t, replay 0.5, bottom-up"
    assert method_named("sisa", trainable="all").described() == "sisa, all parameters"


def test_a_new_method_trains_forgets_exactly_and_answers(text_model, tmp_path, monkeypatch):
    """An entry in METHODS is all that it takes."""
    monkeypatch.setitem(METHODS, "pairs", pairs)
    table = tiny.text_table()
    recipe = tiny.recipe(text_model, method="pairs")
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
