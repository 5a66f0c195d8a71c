"""Every method holds to the counterfactual, serves what its definition says, and is replayed by an audit."""

import numpy as np
import pytest
import safetensors.torch
import torch
from transformers import AutoModelForSequenceClassification

import s3t
from s3t.core import Stage
from s3t.models.blocks import Model, copy_exactly
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest
from s3t.run import workshop
from s3t.run.material import Material
from testing import tiny
from testing.roles import roles
from tests.run.worlds import SMALL, make_worlds, records_by_slice, trained_run

METHODS = {
    "sisa": {"name": "sisa"},
    "protosisa": {"name": "protosisa"},
    "sisa, all parameters": {"name": "sisa", "trainable": "all"},
    "full": {"name": "full"},
    "ridge": {"name": "ridge"},
    "bottom-up": {"direction": "bottom-up"},
    "half replayed": {"replay": 0.5},
    "nothing replayed": {"replay": 0},
    "bottom-up, half replayed": {"direction": "bottom-up", "replay": 0.5},
}
QUICKLY = ("sisa", "protosisa", "full", "ridge", "half replayed")
"""Each trains in a way of its own; the others are tests of integration."""


def recipe_of(method, model, *, kind="text", **changes):
    recipe = tiny.recipe(model, kind=kind, **changes) | {"method": METHODS[method]}
    if METHODS[method].get("name") in ("sisa", "protosisa", "full", "ridge"):
        del recipe["sequences"]
    if method == "ridge":
        recipe["partition"] = {"shards": 1, "slices": 4, "salt": tiny.SALT}
    if method == "full":
        recipe["partition"] = {"shards": 1, "slices": 1, "salt": tiny.SALT}
    return recipe


def schedules(recipe, table):
    places = records_by_slice(recipe, table)
    slices = {} if len(places) == 1 else {"a slice": [list(next(iter(places.values())))]}
    return slices | {
        "one": [["r0"]],
        "two at a time": [["r1", "r5"], ["r2"]],
        "everything but one": [list(table.id[1:])],
    }


@pytest.mark.parametrize(
    "method",
    [pytest.param(method, marks=[pytest.mark.integration] * (method not in QUICKLY)) for method in METHODS],
)
def test_a_deletion_is_exact_by_every_method(method, text_model, tmp_path):
    worlds = make_worlds(tmp_path, recipe_of(method, text_model, **SMALL), tiny.text_table(), [["r1"]])
    worlds.assert_exact()
    assert worlds.forgot.audit(replay=2).ok
    worlds.close()


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["text", pytest.param("image", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
def test_every_schedule_is_exact_by_every_method(method, kind, text_model, image_model, tmp_path):
    model, table = (text_model, tiny.text_table()) if kind == "text" else (image_model, tiny.image_table())
    recipe = recipe_of(method, model, kind=kind)
    for name, requests in schedules(recipe, table).items():
        worlds = make_worlds(tmp_path / name.replace(" ", "-"), recipe, table, requests)
        worlds.assert_exact()
        assert worlds.forgot.audit(replay=2).ok
        worlds.close()


def artifact_of(run, prefix):
    """Tensors of the only stage of shard 0 with a prefix, by name."""
    key = run.inventory().alive[Stage(0, prefix)]
    return safetensors.torch.load_file(run.path / "artifacts" / "shard-000" / f"{key}.safetensors")


def layers_in(tensors):
    return {int(name.split("layer.")[1].split(".")[0]) for name in tensors if name.startswith("block/")}


def test_each_stage_of_sisa_holds_the_whole_adapter_and_goes_on_from_the_one_before(text_model, tmp_path, monkeypatch):
    starts = []
    load = Model.load_block
    monkeypatch.setattr(
        Model, "load_block", lambda self, block, tensors: starts.append(tensors) or load(self, block, tensors)
    )
    with trained_run(tmp_path / "run", recipe_of("sisa", text_model), tiny.text_table()) as run:
        (order,) = run.inventory().orders[0]
        stages = [artifact_of(run, order[:depth]) for depth in (1, 2, 3)]
        assert [layers_in(stage) for stage in stages] == [{0, 1, 2}] * 3
        begun_with = [{f"block/{name}": tensor for name, tensor in block.items()} for block in starts]
        for before in stages[:2]:
            wanted = {name: tensor for name, tensor in before.items() if name.startswith("block/")}
            assert any(all(wanted[name].equal(block[name]) for name in wanted) for block in begun_with)
        assert all(not stages[0][name].equal(stages[1][name]) for name in stages[0] if "lora_B" in name)


@pytest.mark.integration
def test_a_deletion_takes_sisa_back_to_the_checkpoint_before_the_slice(text_model, tmp_path):
    table = tiny.text_table()
    recipe = recipe_of("sisa", text_model)
    with trained_run(tmp_path / "run", recipe, table) as run:
        (order,) = run.inventory().orders[0]
        before = run.predict(table, prefixes={0: order[:1]})
        hit = records_by_slice(recipe, table)[0, order[1]][0]
        run.delete(records=[hit])
        assert run.inventory().members()[0].prefix == order[:1]
        after = run.predict(table, prefixes={0: order[:1]})
        assert (before.logits == after.logits).all()


@pytest.mark.integration
def test_with_all_parameters_a_checkpoint_is_a_model_that_transformers_loads(text_model, tmp_path):
    table = tiny.text_table()
    with trained_run(tmp_path / "run", recipe_of("sisa, all parameters", text_model), table) as run:
        (order,) = run.inventory().orders[0]
        checkpoint = artifact_of(run, order)
        answered = run.predict(table, prefixes={0: order}).logits[0]
        encoder = roles(run).loaded.get().encoder
        batch = encoder.collate([encoder.encode(ingest(table, run.recipe).rows)[number] for number in range(24)])
    plain = AutoModelForSequenceClassification.from_pretrained(text_model, num_labels=3)
    before = {name: value.detach().clone() for name, value in plain.named_parameters()}
    values = {name.removeprefix("block/").removeprefix("head/"): tensor for name, tensor in checkpoint.items()}
    assert values.keys() == {name for name in before if "pooler" not in name}
    assert sum(not value.equal(before[name]) for name, value in values.items()) > len(values) / 2
    with torch.no_grad():
        plain.load_state_dict(values, strict=False)
        wanted = plain.classifier(plain.eval().bert(**batch).last_hidden_state[:, 0]).numpy()
    assert np.allclose(answered, wanted, atol=1e-5)


def test_full_training_is_one_stage_on_everything_and_dies_with_any_deletion(text_model, tmp_path):
    recipe = tiny.recipe(text_model) | {"method": "full"}
    for part in ("partition", "sequences"):
        del recipe[part]
    with trained_run(tmp_path / "run", recipe, tiny.text_table()) as run:
        assert (run.recipe.partition.shards, run.recipe.partition.slices) == (1, 1)
        assert layers_in(artifact_of(run, (0,))) == {0, 1, 2}
        run.delete(records=["r0"])
        with pytest.raises(s3t.NoLiveShardError, match="s3t repair"):
            run.predict(tiny.text_table())
        run.repair()
        assert len(run.predict(tiny.text_table()).predicted) == 24


@pytest.mark.integration
def test_an_adapter_of_some_layers_lies_on_the_top_ones_and_starts_from_the_trunk(text_model, tmp_path):
    recipe = recipe_of("sisa", text_model, adapter={"layers": 2})
    with trained_run(tmp_path / "run", recipe, tiny.text_table()) as run:
        assert layers_in(artifact_of(run, run.inventory().orders[0][0])) == {1, 2}
        assert run.recipe.training.trunk_cache is True
    with trained_run(tmp_path / "all", recipe_of("sisa", text_model), tiny.text_table()) as run:
        assert run.recipe.training.trunk_cache is False  # nothing lies below


def test_bottom_up_trains_the_bottom_block_first(text_model, tmp_path):
    with trained_run(tmp_path / "run", recipe_of("bottom-up", text_model), tiny.text_table()) as run:
        order = run.inventory().orders[0][0]
        assert [layers_in(artifact_of(run, order[:depth])) for depth in (1, 2, 3)] == [{0}, {1}, {2}]
        assert run.recipe.training.trunk_cache is False


@pytest.mark.integration
@pytest.mark.parametrize("share", [0, 0.4, 1])
def test_a_stage_sees_its_own_slice_and_a_share_of_the_others(share, text_model, tmp_path, monkeypatch):
    seen = {}
    examples = Material.examples

    def noted(self, stage, digests, *, progress):
        found = examples(self, stage, digests, progress=progress)
        seen[stage] = len(found)
        return found

    monkeypatch.setattr(Material, "examples", noted)
    recipe = tiny.recipe(text_model, **SMALL, training={"epochs": 0}) | {"method": {"replay": share}}
    with trained_run(tmp_path / "run", recipe, tiny.text_table(120)) as run:
        records = run.inventory().records
    for stage, count in seen.items():
        *before, own = (records[place] for place in stage.places)
        assert (share - 0.2) * sum(before) <= count - own <= (share + 0.2) * sum(before)
    again = {stage.prefix: count for stage, count in seen.items()}
    assert any(again[one] != again[other] for one in again for other in again) or share == 0


def test_a_model_that_is_not_put_back_is_caught(text_model, tmp_path, monkeypatch):
    """The next shard's first stage would begin where the one before ended."""
    last, own, add = {}, Model.own_tensors, Model.add_block

    def kept(self):
        found = own(self)
        last.update(found.block)
        return found

    def warm(self, block):
        add(self, block)
        if last:
            copy_exactly(self._block_parameters(), last, what="what is left")

    monkeypatch.setattr(Model, "own_tensors", kept)
    monkeypatch.setattr(Model, "add_block", warm)
    worlds = make_worlds(tmp_path, recipe_of("sisa, all parameters", text_model), tiny.text_table(), [["r1"]])
    worlds.forgot.repair()
    assert not worlds.identical()
    worlds.close()


@pytest.mark.parametrize("leak", ["a start in memory", "old positions"])
def test_planted_leaks_are_caught(leak, text_model, tmp_path, monkeypatch):
    """A shard that goes on from what it trained last; records that are chosen as they lay before the deletion."""
    if leak == "a start in memory":
        last, train = {}, workshop.train_stage

        def warm(*args, start=None, **options):
            last["tensors"], steps = train(*args, start=last.get("tensors", start), **options)
            return last["tensors"], steps

        monkeypatch.setattr(workshop, "train_stage", warm)
        recipe = recipe_of("sisa", text_model, partition={"shards": 1})
    else:
        first, encode = {}, Material._encode

        def remembered(self, place, digest, rows):
            found = encode(self, place, digest, rows)
            positions = first.setdefault((id(self), place), found.replayed)
            kept = [position for position in positions if position < len(found.records)]
            return type(found)(**{**found.__dict__, "replayed": kept})

        monkeypatch.setattr(Material, "_encode", remembered)
        recipe = recipe_of("half replayed", text_model, partition={"shards": 1})
    worlds = make_worlds(tmp_path, recipe, tiny.text_table(), [["r1"], ["r2"], ["r3"]])
    worlds.forgot.repair()
    assert not worlds.identical()
    worlds.close()


def test_what_does_not_go_together_is_refused_all_at_once(text_model):
    recipe = tiny.recipe(text_model) | {"method": "full"}
    with pytest.raises(s3t.RecipeError) as failure:
        recipe_from(recipe)
    assert [problem.partition(";")[0] for problem in failure.value.problems] == [
        "method full trains on one slice of one shard",
        "sequences.budget: method full has one order a shard",
    ]
    with pytest.raises(s3t.RecipeError, match="replay and direction belong to s3t"):
        recipe_from(tiny.recipe(text_model) | {"method": {"name": "sisa", "replay": 0.5}})
    with pytest.raises(s3t.RecipeError, match="trainable: all belongs to sisa"):
        recipe_from(tiny.recipe(text_model) | {"method": {"trainable": "all"}})
    with pytest.raises(s3t.RecipeError, match="there is no adapter"):
        recipe_from(recipe_of("sisa, all parameters", text_model, adapter={"layers": 1}))
    with pytest.raises(s3t.RecipeError, match="trunk_cache: what lies below"):
        recipe_from(tiny.recipe(text_model, training={"trunk_cache": True}) | {"method": {"direction": "bottom-up"}})


def test_no_order_is_added_to_a_method_that_has_one(text_model, tmp_path):
    with (
        s3t.Run.create(tmp_path / "run", recipe=recipe_of("sisa", text_model), data=tiny.text_table()) as run,
        pytest.raises(s3t.InputError, match="method sisa has one order a shard"),
    ):
        run.extend(budget=2)


@pytest.mark.integration
def test_the_status_names_the_method_and_what_it_stores(text_model, tmp_path):
    with trained_run(tmp_path / "run", recipe_of("bottom-up, half replayed", text_model), tiny.text_table()) as run:
        document = run.status(full=True).to_json()
        assert document["method"] == "s3t, replay 0.5, bottom-up"
        assert document["stored_bytes"] == sum(map(len, tiny.artifacts(run.path).values()))


@pytest.mark.integration
def test_all_live_sequences_of_a_shard_vote_and_a_deletion_leaves_those_that_survive(text_model, tmp_path):
    table = tiny.text_table()
    recipe = tiny.recipe(text_model, prediction={"ensemble": "sequences"})
    with trained_run(tmp_path / "run", recipe, table) as run:
        whole = run.predict(table)
        orders = run.inventory().orders
        assert [(member.shard, member.prefix) for member in whole.members] == sorted(
            (shard, order) for shard in (0, 1) for order in orders[shard]
        )
        alone = [run.predict(table, prefixes=[member]).logits[0] for member in whole.members]
        assert abs(whole.logits - alone).max() < 1e-5
        assert len(run.evaluate(table).per_shard) == 2
        assert orders[0] == ((0, 1, 2), (1, 2, 0), (2, 0, 1))
        run.delete(records=records_by_slice(recipe, table)[0, 0][:1])
        left = run.predict(table)
        assert [member.prefix for member in left.members if member.shard == 0] == [(1, 2), (2,)]
        again = run.predict(table, prefixes=left.members)
        assert (again.logits == left.logits).all()
        assert again.predicted == left.predicted


@pytest.mark.integration
@pytest.mark.parametrize("aggregation", ["logits", "probabilities", "vote"])
def test_an_ensemble_of_sequences_is_exact(aggregation, text_model, tmp_path):
    recipe = tiny.recipe(text_model, prediction={"ensemble": "sequences", "aggregation": aggregation})
    worlds = make_worlds(tmp_path, recipe, tiny.text_table(), [["r1"], ["r2", "r5"]])
    worlds.assert_exact()
    worlds.close()
