"""One pass for all members gives what a pass for each gives, whatever the model, the adapters and the depths."""

import numpy as np
import pytest
import torch

from s3t.models.assembly import assemble
from s3t.prediction.ensemble import MERGED_ROWS, Ensemble, Windows, fit_merged
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest
from testing import tiny
from testing.plain import member_logits, random_chain
from tests.models.kinds import KINDS, model_of_kind

DEPTHS = (2, 3, 1, 3, 2)
FEEDFORWARD = {"kind": "ia3", "feedforward_modules": ["output.dense"]}


class World:
    """A model, members with random values, and inputs."""

    def __init__(self, folder, *, kind="text", depths=DEPTHS, precision="float32", adapter=None, bottom_up=None):
        recipe = recipe_from(tiny.recipe(folder, kind=kind, adapter=adapter or {}, training={"precision": precision}))
        self.training = recipe.training.model_copy(update={"threads": 1})
        self.model, self.encoder = assemble(folder, recipe, labels=3)
        self.inputs = ingest(tiny.text_table() if kind == "text" else tiny.image_table(), recipe).rows
        self.chains = [
            random_chain(self.model, depth, seed=seed, bottom_up=bottom_up) for seed, depth in enumerate(depths)
        ]
        self.members = [self.links(chain) for chain in self.chains]

    def links(self, chain, *, merged=None):
        return [self.model.prepare(block, stage, merged=merged) for block, stage in chain.items()]

    def ensemble(self, *, batch_size=7, window_batches=2):
        windows = Windows(self.encoder, batch_size=batch_size, window_batches=window_batches)
        return Ensemble(self.model, windows, training=self.training)

    def logits(self, **settings):
        return self.ensemble(**settings).logits(self.members, self.inputs)

    def merged(self, **settings):
        """Logits of members with merged weights."""
        dtype = torch.bfloat16 if self.training.precision == "bfloat16" else torch.float32
        members = [self.links(chain, merged=dtype) for chain in self.chains]
        return self.ensemble(**settings).logits(members, self.inputs)

    def plain(self):
        encoded = self.encoder.encode(self.inputs)
        return np.stack(
            [
                member_logits(self.model, chain, encoded, encoder=self.encoder, batch_size=7, training=self.training)
                for chain in self.chains
            ]
        )


def assert_close(found, wanted, *, tolerance=1e-5, several=True):
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= tolerance * max(1.0, np.abs(wanted).max())
    assert not several or wanted.std(axis=0).min() > 0.01  # members differ
    assert wanted.std(axis=1).min() > 0.001  # and so do inputs


@pytest.mark.integration
@pytest.mark.parametrize("kind", [kind for kind, fields in KINDS.items() if fields])
def test_every_architecture_answers_as_member_by_member(kind, text_model, tmp_path):
    world = World(model_of_kind(kind.partition(",")[0], text_model, tmp_path / "model", **KINDS[kind]))
    assert_close(world.logits(), world.plain())
    assert_close(world.merged(batch_size=MERGED_ROWS), world.plain())


@pytest.mark.parametrize("batch_size", [pytest.param(1, marks=pytest.mark.integration), 3, 64])
def test_members_may_be_more_than_the_rows_of_a_pass_and_inputs_more_than_a_window(batch_size, text_model):
    world = World(text_model)
    assert_close(world.logits(batch_size=batch_size, window_batches=3), world.plain())


@pytest.mark.integration
@pytest.mark.parametrize("adapter", [{"use_dora": True}, {"kind": "ia3", "feedforward_modules": ["fc2"]}], ids=str)
def test_images_answer_as_member_by_member(adapter, image_model):
    world = World(image_model, kind="image", adapter=adapter)
    assert_close(world.logits(), world.plain())
    assert_close(world.merged(batch_size=MERGED_ROWS), world.plain())


@pytest.mark.integration
@pytest.mark.parametrize("adapter", [{}, {"use_dora": True}, FEEDFORWARD], ids=str)
def test_with_bfloat16_answers_are_as_near_as_it_allows(adapter, text_model):
    """How far two ways of rounding lie apart depends on the processor; which is nearer to the truth does not."""
    truth = World(text_model, precision="float32", adapter=adapter).plain()
    world = World(text_model, precision="bfloat16", adapter=adapter)
    found, merged, plain = (
        np.sqrt(np.mean((logits - truth) ** 2))
        for logits in (world.logits(), world.merged(batch_size=MERGED_ROWS), world.plain())
    )
    assert 0 < found <= 1.1 * plain
    assert 0 < merged <= 1.1 * plain
    assert plain < 0.02


@pytest.mark.integration
@pytest.mark.parametrize("adapter", [{}, {"use_dora": True}, FEEDFORWARD], ids=str)
def test_members_that_lack_the_blocks_at_the_top_pass_them_as_the_base_has_them(adapter, text_model):
    """Bottom-up, a shallow member goes beside deeper ones through layers that it has not trained."""
    world = World(text_model, adapter=adapter, bottom_up=3)
    assert [min(chain) for chain in world.chains] == [2, 1, 3, 1, 2]
    assert_close(world.logits(batch_size=1), world.plain())
    assert_close(world.merged(batch_size=MERGED_ROWS), world.plain())


def rows_through(model, layer):
    """Rows that went through a layer of the model, pass by pass."""
    seen = []
    layers = model.base.layers
    inner = next(module for module in layers[layer].modules() if isinstance(module, torch.nn.Linear))
    inner.register_forward_hook(lambda _module, args, _output: seen.append(args[0].shape[0]))
    return seen


def test_the_trunk_runs_once_and_members_above_it_run_side_by_side(text_model):
    world = World(text_model, depths=(1, 2, 1))
    ensemble = world.ensemble(batch_size=6, window_batches=64)
    ensemble.logits(world.members, world.inputs.slice(0, 1))  # has found out what can be shared
    deep, middle, top = (rows_through(world.model, layer) for layer in range(3))
    ensemble.logits(world.members, world.inputs)
    assert deep == [6] * 4
    assert sorted(middle) == [2] * 12 + [6] * 4  # the shared rows, and the deeper member alone
    assert top == [6] * 12  # three members with two inputs each


@pytest.mark.parametrize(("depths", "passes"), [((3, 3, 3), 2), ((3, 1, 3), 3)])
def test_members_go_through_layers_and_heads_in_one_pass_from_where_the_last_one_joins(depths, passes, text_model):
    world, runs = World(text_model, depths=depths), []
    ensemble = world.ensemble(batch_size=64)
    ensemble.logits(world.members, world.inputs.slice(0, 1))  # has found out what can be shared
    world.model.base.model.register_forward_pre_hook(lambda *_: runs.append(True))
    found = ensemble.logits(world.members, world.inputs.slice(0, 5))
    assert len(runs) == passes  # one of them the trunk's
    assert_close(found, world.plain()[:, :5])


def test_words_are_answered_by_each_members_own_head(text_model, tmp_path):
    recipe = recipe_from(tiny.tagging_recipe(text_model))
    model, encoder = assemble(text_model, recipe, labels=len(tiny.TAGS))
    chains = [random_chain(model, depth, seed=depth) for depth in (2, 3, 2)]
    members = [[model.prepare(*stage) for stage in chain.items()] for chain in chains]
    training = recipe.training.model_copy(update={"threads": 1, "precision": "float32"})
    ensemble = Ensemble(model, Windows(encoder, batch_size=7, window_batches=2), training=training)
    inputs = ingest(tiny.tagged_table(), recipe).rows
    alone = np.concatenate([ensemble.logits([member], inputs) for member in members])
    np.testing.assert_allclose(ensemble.logits(members, inputs), alone, rtol=1e-4, atol=1e-5)


def test_members_with_merged_weights_pass_alone_but_in_small_batches(text_model):
    world = World(text_model, depths=(2, 2))
    members = [world.links(chain, merged=torch.float32) for chain in world.chains]
    ensemble = world.ensemble(batch_size=MERGED_ROWS, window_batches=64)
    ensemble.logits(members, world.inputs.slice(0, 1))  # has found out what can be shared
    deep, middle, _ = (rows_through(world.model, layer) for layer in range(3))
    ensemble.logits(members, world.inputs.slice(0, MERGED_ROWS))
    assert (deep, middle) == ([MERGED_ROWS], [MERGED_ROWS] * 2)
    middle.clear()
    ensemble.logits(members, world.inputs.slice(0, 3))
    assert middle == [6]


@pytest.mark.parametrize("merged", [None, torch.float32], ids=str)
def test_a_single_member_answers_in_one_pass(merged, text_model):
    world = World(text_model, depths=(2,))
    world.inputs = world.inputs.slice(0, 23)  # the last is twice as long, and would have a pass of its own
    members = [world.links(chain, merged=merged) for chain in world.chains]
    runs = []
    world.model.base.model.register_forward_pre_hook(lambda *_: runs.append(True))
    ensemble = world.ensemble(batch_size=64, window_batches=1)
    ensemble.logits(members, world.inputs)
    runs.clear()
    assert_close(ensemble.logits(members, world.inputs), world.plain(), several=False)
    assert len(runs) == 1 + 4  # four in the plain way


def test_inputs_are_encoded_window_by_window_and_progress_is_heard_of_at_every_pass(text_model, monkeypatch):
    world, heard, encoded = World(text_model), [], []
    encode = world.encoder.encode
    monkeypatch.setattr(world.encoder, "encode", lambda rows: encoded.append(rows.num_rows) or encode(rows))
    ensemble = world.ensemble(batch_size=5, window_batches=2)
    ensemble.logits(world.members, world.inputs, progress=lambda event: heard.append(event.count))
    assert encoded == [10, 10, 4]
    assert sum(heard) == 24 * len(DEPTHS)
    assert max(heard) <= 5
    assert ensemble.logits(world.members, world.inputs.slice(0, 0)).shape[:2] == (len(DEPTHS), 0)


@pytest.mark.parametrize(("spare", "merged"), [((0, 0), True), ((-1, 0), False), ((0, -1), False)])
def test_weights_are_merged_if_those_of_all_members_at_full_depth_fit_and_stay(spare, merged, text_model):
    world = World(text_model, depths=(3,))
    member = world.links(world.chains[0], merged=torch.float32)
    needed = 5 * sum(link.nbytes - without.nbytes for link, without in zip(member, world.members[0], strict=True))
    kept = 5 * sum(link.nbytes for link in member)
    fits = fit_merged(world.model, members=5, blocks=3, memory=needed + spare[0], kept=kept + spare[1])
    assert fits is merged


def test_after_an_answer_the_model_is_bare(text_model):
    world = World(text_model)
    before = {name: value.clone() for name, value in world.model.base.model.state_dict().items()}
    own = dict(world.model.base.model.named_parameters())
    world.logits()
    world.merged(batch_size=MERGED_ROWS)
    after = world.model.base.model.state_dict()
    assert before.keys() == after.keys()
    assert all(parameter is own[name] for name, parameter in world.model.base.model.named_parameters())
    assert all(torch.equal(before[name], value) for name, value in after.items())
    modules = list(world.model.base.model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    assert not any("forward" in vars(module) for module in modules)
