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
"""Each trains in a way of its own."""
LITTLE = SMALL | {"training": {"epochs": 1}}


def recipe_of(method, model, *, kind="text", **changes):
    slices = {"ridge": 4, "full": 1}.get(method)
    recipe = tiny.recipe(model, kind=kind, **changes) | {"method": METHODS[method]}
    if METHODS[method].get("name") in ("sisa", "protosisa", "full", "ridge"):
        del recipe["sequences"]
    if slices is not None:
        recipe["partition"] = {"shards": 1, "slices": slices, "salt": tiny.SALT}
    return recipe


def schedules(recipe, table):
    places = records_by_slice(recipe, table)
    slices = {} if len(places) == 1 else {"a slice": [list(next(iter(places.values())))]}
    return slices | {
        "one": [["r0"]],
        "two at a time": [["r1", "r5"], ["r2"]],
        "everything but one": [list(table.id[1:])],
    }


IN_INTEGRATION = [
    pytest.param(method, kind, True, marks=[pytest.mark.integration] + [pytest.mark.slow] * (kind == "image"))
    for method in METHODS
    for kind in ("text", "image")
]


@pytest.mark.parametrize(
    ("method", "kind", "large"), [*((method, "text", False) for method in QUICKLY), *IN_INTEGRATION]
)
def test_deletions_are_exact_by_every_method(method, kind, large, text_model, image_model, tmp_path):
    model, table = (text_model, tiny.text_table()) if kind == "text" else (image_model, tiny.image_table())
    recipe = recipe_of(method, model, kind=kind, **{} if large else LITTLE)
    for name, requests in schedules(recipe, table).items() if large else [("one", [["r1"]])]:
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


def test_each_stage_of_sisa_goes_on_from_the_one_before(text_model, tmp_path, monkeypatch):
    starts = []
    load = Model.load_block
    monkeypatch.setattr(
        Model, "load_block", lambda self, block, tensors: starts.append(tensors) or load(self, block, tensors)
    )
    with trained_run(tmp_path / "run", recipe_of("sisa", text_model, **LITTLE), tiny.text_table()) as run:
        (order,) = run.inventory().orders[0]
        stages = [artifact_of(run, order[:depth]) for depth in (1, 2, 3)]
        begun_with = [{f"block/{name}": tensor for name, tensor in block.items()} for block in starts]
        for before in stages[:2]:
            wanted = {name: tensor for name, tensor in before.items() if name.startswith("block/")}
            assert any(all(wanted[name].equal(block[name]) for name in wanted) for block in begun_with)
        assert all(not stages[0][name].equal(stages[1][name]) for name in stages[0] if "lora_B" in name)


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
    recipe = recipe_of("full", text_model, training={"epochs": 1})
    del recipe["partition"]
    with trained_run(tmp_path / "run", recipe, tiny.text_table()) as run:
        assert (run.recipe.partition.shards, run.recipe.partition.slices) == (1, 1)
        assert layers_in(artifact_of(run, (0,))) == {0, 1, 2}
        run.delete(records=["r0"])
        with pytest.raises(s3t.NoLiveShardError, match="s3t repair"):
            run.predict(tiny.text_table())
        run.repair()
        assert len(run.predict(tiny.text_table()).predicted) == 24


@pytest.mark.parametrize(
    ("method", "changes", "layers", "cached"),
    [
        ("bottom-up", {}, [{0}, {1}, {2}], False),
        ("sisa", {}, [{0, 1, 2}] * 3, False),  # nothing lies below
        ("sisa", {"adapter": {"layers": 2}}, [{1, 2}] * 3, True),
    ],
)
def test_adapters_lie_where_the_method_puts_them(method, changes, layers, cached, text_model, tmp_path):
    recipe = recipe_of(method, text_model, **SMALL | {"training": {"epochs": 0}} | changes)
    with trained_run(tmp_path / "run", recipe, tiny.text_table()) as run:
        order = run.inventory().orders[0][0]
        assert [layers_in(artifact_of(run, order[:depth])) for depth in (1, 2, 3)] == layers
        assert run.recipe.training.trunk_cache is cached


@pytest.mark.integration
def test_a_stage_sees_its_own_slice_and_a_share_of_the_others(text_model, tmp_path, monkeypatch):
    share, seen, examples = 0.4, {}, Material.examples

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
    assert len(set(seen.values())) > 1


def begin_where_the_one_before_ended(patch):
    """A model that is not put back: the next shard's first stage goes on from it."""
    last, own, add = {}, Model.own_tensors, Model.add_block

    def kept(self):
        found = own(self)
        last.update(found.block)
        return found

    def warm(self, block):
        add(self, block)
        if last:
            copy_exactly(self._block_parameters(), last, what="what is left")

    patch.setattr(Model, "own_tensors", kept)
    patch.setattr(Model, "add_block", warm)


def start_from_memory(patch):
    """A shard goes on from what it trained last."""
    last, train = {}, workshop.train_stage

    def warm(*args, start=None, **options):
        last["tensors"], steps = train(*args, start=last.get("tensors", start), **options)
        return last["tensors"], steps

    patch.setattr(workshop, "train_stage", warm)


def remember_positions(patch):
    """Records are chosen as they lay before the deletion."""
    first, encode = {}, Material._encode

    def remembered(self, place, *given):
        found = encode(self, place, *given)
        positions = first.setdefault((id(self), place), found.replayed)
        kept = [position for position in positions if position < len(found.records)]
        return type(found)(**{**found.__dict__, "replayed": kept})

    patch.setattr(Material, "_encode", remembered)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("leak", "method"),
    [
        (begin_where_the_one_before_ended, "sisa, all parameters"),
        (start_from_memory, "sisa"),
        (remember_positions, "half replayed"),
    ],
)
def test_planted_leaks_are_caught(leak, method, text_model, tmp_path, monkeypatch):
    leak(monkeypatch)
    shards = {"partition": {"shards": 2 if "all" in method else 1}}
    recipe = recipe_of(method, text_model, **LITTLE | shards)
    worlds = make_worlds(tmp_path, recipe, tiny.text_table(), [["r1"], ["r2"], ["r3"]])
    worlds.forgot.repair()
    assert not worlds.identical()
    worlds.close()


def test_what_does_not_go_together_is_refused_all_at_once(text_model):
    with pytest.raises(s3t.RecipeError) as failure:
        recipe_from(tiny.recipe(text_model) | {"method": "full"})
    assert [problem.partition(";")[0] for problem in failure.value.problems] == [
        "method full trains on one slice of one shard",
        "sequences.budget: method full has one order a shard",
    ]
    for recipe, said in (
        (tiny.recipe(text_model) | {"method": {"name": "sisa", "replay": 0.5}}, "replay and direction belong to s3t"),
        (tiny.recipe(text_model) | {"method": {"trainable": "all"}}, "trainable: all belongs to sisa"),
        (recipe_of("sisa, all parameters", text_model, adapter={"layers": 1}), "there is no adapter"),
        (recipe_of("bottom-up", text_model, training={"trunk_cache": True}), "trunk_cache: what lies below"),
    ):
        with pytest.raises(s3t.RecipeError, match=said):
            recipe_from(recipe)


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
def test_an_ensemble_of_sequences_is_exact(text_model, tmp_path):
    recipe = tiny.recipe(text_model, prediction={"ensemble": "sequences", "aggregation": "probabilities"})
    worlds = make_worlds(tmp_path, recipe, tiny.text_table(), [["r1"], ["r2", "r5"]])
    worlds.assert_exact()
    worlds.close()
