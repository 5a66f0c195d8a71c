"""Every trap of the design that this code can meet: the leak is planted, and must be caught.

Each test first sees the oracle pass without the leak (or a passing twin does so elsewhere in the suite), then plants
the leak in the real code with `monkeypatch` and sees the oracle fail, or the stage refused.
"""

import hashlib
import itertools
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import s3t
from s3t.core import Place, Stage, stage_seed
from s3t.deletion import protocol
from s3t.errors import IntegrityError, IsolationError
from s3t.ledger import Transaction
from s3t.ledger.presence import Work
from s3t.models import blocks, encoders
from s3t.models.adapters import StageTensors, deserialize, serialize
from s3t.models.blocks import Model
from s3t.orders import SELECTORS
from s3t.recipe import Recipe
from s3t.records import ingest as ingesting
from s3t.records import splitting
from s3t.records.ingest import ingest
from s3t.run import creation, workshop
from s3t.run.workshop import Workshop
from s3t.store.artifacts import Artifacts, Manifest
from s3t.tasks.targets import MultiLabel, Ordinal, TokenClassification
from testing import tiny
from testing.roles import roles
from tests.deletion.listed import place_named
from tests.run.meanwhile import Meanwhile
from tests.run.worlds import SMALL, make_worlds, records_by_slice, trained_run
from tests.slice_files import slice_path

REQUESTS = [["r3"], ["r23"]]
LITTLE = SMALL | {"training": {"epochs": 1}, "adapter": {"target_modules": ["query", "value"]}}
"""A leak that large worlds would show, little ones show in less time."""
TASKS = {
    "text": ({}, tiny.text_table),
    "image": ({"kind": "image", "adapter": {}}, tiny.image_table),
    "tags": ({"task": "token-classification", "labels": tiny.TAGS}, tiny.tagged_table),
    "several labels": (
        {"task": "text-multi-label-classification"},
        lambda: tiny.with_several_labels(tiny.text_table()),
    ),
    "ordered labels": ({"task": "text-ordinal-classification"}, tiny.text_table),
}


@pytest.fixture
def little(text_model, image_model):
    """A function: recipe and table of a task."""

    def of(task="text", **changes):
        fields, table = TASKS[task]
        model = image_model if task == "image" else text_model
        return tiny.recipe(model, **LITTLE | fields | changes), table()

    return of


@pytest.fixture
def worlds_of(little, tmp_path):
    """A function: worlds of a task in which the hard records are deleted."""
    return lambda *task, **changes: make_worlds(tmp_path / "worlds", *little(*task, **changes), REQUESTS)


@pytest.fixture
def untrained(little, tmp_path):
    recipe, table = little()
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        yield run


@pytest.mark.integration
@pytest.mark.parametrize("task", ["text", "image", "tags"])
def test_without_a_leak_the_oracle_passes(task, worlds_of):
    """Of the other tasks, `test_counterfactual.py` sees it."""
    worlds_of(task).assert_exact()


@pytest.mark.integration
def test_a_head_that_has_seen_deeper_slices_is_caught(little, tmp_path, monkeypatch):
    """Switching blocks off leaves the head of the deepest stage, which has seen the deleted slice."""
    recipe, table = little()
    with trained_run(tmp_path / "spy", recipe, table) as run:
        last_head = roles(run).loaded.get().chain([Stage(0, (0, 1, 2))], roles(run).ledger.snapshot())[-1].head
    worlds = make_worlds(tmp_path / "worlds", recipe, table, REQUESTS, trained=tmp_path / "spy")
    assert worlds.predictions_agree()
    chain = Workshop.chain

    def with_the_last_head(self, stage, *given):
        links = chain(self, stage, *given)
        return [*links[:-1], replace(links[-1], head=last_head)]

    with monkeypatch.context() as patch:
        patch.setattr(Workshop, "chain", with_the_last_head)
        leaking = worlds.forgot.predict(worlds.probe)
    honest = worlds.never_knew.predict(worlds.probe, prefixes=leaking.members)
    assert not np.array_equal(leaking.logits, honest.logits)


@pytest.mark.integration
def test_layers_chosen_by_substring_are_caught(tmp_path, monkeypatch):
    """`layer.1` also matches layers 10 and 11: the last stage would thaw the blocks on top."""
    model = tiny.make_text_model(tmp_path / "deep", layers=12)
    recipe = tiny.recipe(
        model,
        partition={"shards": 1, "slices": 11},
        sequences={"budget": 1},
        adapter={"target_modules": ["query"]},
        training={"batch_size": 2, "epochs": 1},
    )
    run = s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table(14))
    thaw = Model.thaw

    def by_substring(self):
        own = thaw(self)
        layer = f"layer.{self._targets[0].split('.')[3]}"
        more = [
            value
            for name, value in self.base.model.named_parameters()
            if layer in name and name.endswith("query.weight")
        ]
        for value in more:
            value.requires_grad_(True)
        return [*own, *(value for value in more if all(value is not known for known in own))]

    monkeypatch.setattr(Model, "thaw", by_substring)
    with pytest.raises(IsolationError, match="merged weight"):
        run.train()
    assert max(stage.depth for stage in run.inventory().alive) == 10
    monkeypatch.undo()
    run.train()
    assert run.status().missing == 0


def carried_generator(patch):
    generator = random.Random(0)
    patch.setattr(workshop, "stage_seed", lambda *about: generator.getrandbits(62))


def carried_optimiser(patch):
    moments = {}

    class Carried(torch.optim.AdamW):
        def step(self, closure=None):
            parameters = [parameter for group in self.param_groups for parameter in group["params"]]
            for parameter in parameters:
                if parameter not in self.state and tuple(parameter.shape) in moments:
                    self.state[parameter] = moments[tuple(parameter.shape)]
            super().step(closure)
            for parameter in parameters:
                moments[tuple(parameter.shape)] = self.state[parameter]

    patch.setattr(torch.optim, "AdamW", Carried)


@pytest.mark.integration
@pytest.mark.parametrize("carry", [carried_generator, carried_optimiser])
def test_what_goes_on_from_stage_to_stage_is_caught(carry, worlds_of, monkeypatch):
    carry(monkeypatch)
    worlds = worlds_of()
    assert worlds.differing_artifacts()
    assert not worlds.forgot.audit(replay=3, seed=0).ok


@pytest.mark.integration
def test_an_adapter_that_changes_base_weights_is_caught(untrained, monkeypatch):
    """The recipe refuses PiSSA; if it came in by another door, the stage would be refused."""
    inject = blocks.inject_adapter_in_model

    def pissa(config, model, **named):
        config.init_lora_weights = "pissa"
        return inject(config, model, **named)

    with monkeypatch.context() as patch:
        patch.setattr(blocks, "inject_adapter_in_model", pissa)
        with pytest.raises(IsolationError, match="base model"):
            untrained.train()
    assert tiny.artifacts(untrained.path) == {}
    untrained.train()
    assert untrained.audit(replay=1).ok


@pytest.mark.integration
def test_a_buffer_that_follows_the_data_is_caught(untrained):
    module: nn.Module = roles(untrained).loaded.get().model.base.model
    embeddings = module.get_submodule("bert.embeddings")

    def follow(_module, _inputs, output):
        embeddings.get_buffer("token_type_ids").add_(output.shape[1]).clamp_(0, 1)

    module.get_submodule("bert.embeddings.word_embeddings").register_forward_hook(follow)
    with pytest.raises(IsolationError, match="buffer"):
        untrained.train()


def test_the_right_key_with_other_bytes_is_caught(trained):
    """A parent trained elsewhere, with a manifest of its own that is right."""
    snapshot = roles(trained).ledger.snapshot()
    parent, child = Stage(0, (0,)), Stage(0, (0, 1))
    store: Artifacts = roles(trained).store
    artifact = store.get(0, snapshot.stages[parent])
    tensors = deserialize(artifact.content)
    other = serialize(StageTensors(block=tensors.block, head={n: t + 1 for n, t in tensors.head.items()}))
    forged = Manifest.model_validate(artifact.manifest.model_dump() | {"sha256": hashlib.sha256(other).hexdigest()})
    store.erase({(0, snapshot.stages[parent])})
    store.put(0, snapshot.stages[parent], other, forged)
    assert any(mismatch.get("prefix") == list(child.prefix) for mismatch in trained.audit().mismatches)
    with pytest.raises(IntegrityError, match="another parent"):
        trained.predict(["w1"])
    with pytest.raises(IntegrityError, match="another parent"):
        roles(trained).loaded.get().train(Stage(0, (0, 1, 2)), snapshot)


def test_orders_are_drawn_from_declared_inputs_alone_and_kept(text_model, tmp_path, monkeypatch):
    few = s3t.Run.create(tmp_path / "few", recipe=tiny.recipe(text_model), data=tiny.text_table(8))
    many = s3t.Run.create(tmp_path / "many", recipe=tiny.recipe(text_model), data=tiny.text_table(30))
    assert few.inventory().orders == many.inventory().orders
    monkeypatch.setitem(SELECTORS, "cyclic", lambda setting: 1 / 0)
    assert s3t.Run.open(tmp_path / "few").inventory().orders == few.inventory().orders


@pytest.mark.integration
def test_a_partition_by_position_is_caught(little, tmp_path, monkeypatch):
    recipe, table = little()

    def trained(name, table):
        position = itertools.count()
        monkeypatch.setattr(splitting, "place_of", lambda *_, slices, **__: Place(0, next(position) % slices))
        return trained_run(tmp_path / name, recipe, table)

    forgot, never_knew = trained("forgot", table), trained("never-knew", table.drop(index=3))
    forgot.delete(records=["r3"])
    forgot.repair()
    assert tiny.artifacts(forgot.path) != tiny.artifacts(never_knew.path)


def slices_by_size(patch):
    """The bigger group gets two slices: without r3 that is the other one."""

    def by_size(groups, group):
        biggest = Counter(sorted(groups, reverse=True)).most_common(1)[0][0]
        return [(0, 1) if name == biggest else (2,) for name in groups]

    patch.setattr(ingesting, "among_of", by_size)


def orders_by_counts(patch):
    """Orders that shun the slices of the bigger group tell, and depend on, how many records it has."""

    def counts(records):
        return [sum(index in among for among in records.among) for index in range(3)]

    seen, declared = fit_at_init(patch, counts), Recipe.slice_prior.fget

    def prior(recipe):
        return declared(recipe) if seen[0] is None else tuple(count / sum(seen[0]) for count in seen[0])

    patch.setattr(Recipe, "slice_prior", property(prior))


def fit_at_init(patch, fit):
    """What is fitted on all records when a run is made, in a list."""
    kept, checked = [None], creation.ingest_into

    def fitted(split, data, recipe):
        kept[:] = [fit(ingest(data, recipe))]
        return checked(split, data, recipe)

    patch.setattr(creation, "ingest_into", fitted)
    return kept


@pytest.mark.integration
@pytest.mark.parametrize("leak", [None, slices_by_size, orders_by_counts])
def test_groups_whose_sizes_decide_anything_are_caught(leak, little, tmp_path, monkeypatch):
    """24 records, 12 of each group; without r3 the one group is smaller than the other."""
    group = {"column": "band", "slices": {"x": [0, 1], "y": [2]}, "deletion": {"x": 0.3, "y": 0.1}}
    orders = {"budget": 2, "selector": "cyclic" if leak is slices_by_size else "sorted-cyclic"}
    recipe, table = little(partition={"shards": 1, "group": group}, sequences=orders)
    table["band"] = ["xy"[number % 4 // 2] for number in range(24)]
    if leak is not None:
        leak(monkeypatch)
    worlds = make_worlds(tmp_path, recipe, table, [["r3"]])
    if leak is None:
        worlds.assert_exact()
    worlds.forgot.repair()
    assert worlds.identical() is (leak is None)


def test_inferred_labels_are_a_gap_that_is_real_and_named(untrained, worlds_of):
    """r23 alone has the label c: without it the head has another shape."""
    worlds = worlds_of(labels="infer")
    assert worlds.differing_artifacts()
    assert any("labels: infer" in gap for gap in worlds.forgot.status().gaps)
    assert untrained.status().gaps == ()


def mean_pixel(records):
    """The black image is the only extreme one: without it the mean is another."""
    return np.mean([np.frombuffer(content, np.uint8).mean() for content in records.rows["image"].to_pylist()])


def rareness(records):
    """As tutorials of several labels weigh rare ones."""
    counts = [sum(label in labels for labels in records.rows["label"].to_pylist()) for label in "abc"]
    return records.rows.num_rows / torch.tensor(counts).clamp(min=1)


def importance(records):
    """CORAL's weights of thresholds: the root of the larger side's share of the records."""
    labels = records.rows["label"].to_pylist()
    above = np.array([np.mean([label > threshold for label in labels]) for threshold in "ab"])
    return torch.tensor(np.sqrt(np.maximum(above, 1 - above)), dtype=torch.float32)


def mean_words(records):
    """A mean over words that is no batch's own: the longest record counts most."""
    return float(np.mean([len(words) for words in records.rows["text"].to_pylist()]))


COLLATE, BINARY = encoders.ImageEncoder.collate, nn.functional.binary_cross_entropy_with_logits
FITTED = {
    "image": (
        mean_pixel,
        (encoders.ImageEncoder, "collate"),
        lambda fitted, *given: {name: pixels - (fitted or 0) / 255 for name, pixels in COLLATE(*given).items()},
    ),
    "several labels": (
        rareness,
        (MultiLabel, "loss"),
        lambda fitted, _, logits, targets: BINARY(logits, targets, pos_weight=fitted),
    ),
    "ordered labels": (
        importance,
        (Ordinal, "loss"),
        lambda fitted, _, logits, targets: BINARY(logits, targets, weight=fitted),
    ),
    "tags": (
        mean_words,
        (TokenClassification, "loss"),
        lambda fitted, _, *given: nn.functional.cross_entropy(*given, reduction="sum") / fitted,
    ),
}
"""By task: what is fitted on all records when a run is made, and what then uses it."""


@pytest.mark.integration
@pytest.mark.parametrize("task", FITTED)
def test_what_is_fitted_on_all_records_is_caught(task, worlds_of, monkeypatch):
    fit, planted, leak = FITTED[task]
    fitted = fit_at_init(monkeypatch, fit)
    monkeypatch.setattr(*planted, lambda *given: leak(fitted[0], *given))
    assert worlds_of(task).differing_artifacts()


@pytest.mark.integration
def test_batches_padded_to_the_longest_text_ever_seen_are_caught(text_model, tmp_path, monkeypatch):
    """r23 has the longest text; a width that it set would outlive it in stages that never held it.

    Attention to padding is switched on with the leak, since bits need not differ where padding is masked.
    """
    widest = [0]
    encoded, collate = encoders.TextEncoder.encode, encoders.TextEncoder.collate

    def watching(self, rows):
        records = encoded(self, rows)
        widest[0] = max([widest[0], *(len(record["input_ids"]) for record in records)])
        return records

    def padded(self, records):
        batch = collate(self, records)
        missing = widest[0] - batch["input_ids"].shape[1]
        return {
            name: nn.functional.pad(tensor, (0, max(0, missing)), value=int(name == "attention_mask"))
            for name, tensor in batch.items()
        }

    training = {"epochs": 1, "trunk_cache": False, "shortcuts": []}  # as for a model that sees padding
    recipe, table = tiny.recipe(text_model, sequences={"budget": 2}, training=training), tiny.text_table()
    forgot = s3t.Run.create(tmp_path / "forgot", recipe=recipe, data=table)
    never_knew = s3t.Run.create(tmp_path / "never-knew", recipe=recipe, data=table[:-1])
    # Planted after init, which refuses a model that sees padding.
    monkeypatch.setattr(encoders.TextEncoder, "encode", watching)
    monkeypatch.setattr(encoders.TextEncoder, "collate", padded)
    for run in (forgot, never_knew):
        widest[0] = 0
        run.train()
    forgot.delete(records=["r23"])
    left = tiny.artifacts(forgot.path)
    assert left
    assert not left.items() <= tiny.artifacts(never_knew.path).items()


@pytest.fixture
def overtaken(untrained, little):
    """A record of slice 1, and progress that deletes it by another handle while stage (0, 1) trains on it."""
    record = records_by_slice(*little())[0, 1][0]

    def delete():
        with s3t.Run.open(untrained.path) as other:
            roles(other).deleter.patience = 0.0
            assert other.delete(records=[record]).deleted == 1

    return record, Meanwhile(delete, stage=Stage(0, (0, 1)))


def test_a_stage_whose_slice_loses_a_record_while_it_trains_is_discarded(untrained, overtaken, little, tmp_path):
    record, progress = overtaken
    report = untrained.train(progress=progress)
    assert (report.discarded, report.missing) == (1, 0)
    recipe, table = little()
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[table.id != record])
    assert tiny.artifacts(untrained.path) == tiny.artifacts(never_knew.path)


@pytest.mark.integration
def test_committing_such_a_stage_all_the_same_is_caught(untrained, overtaken, monkeypatch):
    monkeypatch.setattr(Work, "look", lambda self, snapshot: None)  # nor is it stopped while it trains
    for step in ("announce", "commit"):
        proper = getattr(Transaction, step)
        blind = lambda self, trained, proper=proper: proper(self, replace(trained, seen={}, parents={}))  # noqa: E731
        monkeypatch.setattr(Transaction, step, blind)
    try:
        untrained.train(progress=overtaken[1])
    except IntegrityError:
        return
    assert not untrained.audit().ok


@pytest.mark.integration
def test_a_record_left_in_its_slice_is_caught(trained, monkeypatch):
    before = trained.status().records
    monkeypatch.setattr(protocol, "without_records", lambda rows, tokens, secret: rows)
    with pytest.raises(IntegrityError, match="other records than the ledger counts"):
        trained.delete(records=["r3"])
    monkeypatch.undo()
    with s3t.Run.open(trained.path) as reopened:
        assert reopened.status().records == before - 1
        assert reopened.audit().ok


@pytest.mark.integration
def test_a_record_put_back_into_its_slice_is_caught(trained):
    place = trained.delete(records=["r3"]).slices[0]
    path = slice_path(trained.path / "slices", place)
    other = next(file for file in sorted(path.parent.iterdir()) if file != path)
    path.write_bytes(other.read_bytes())
    problems = [mismatch["problem"] for mismatch in trained.audit().mismatches]
    assert any("not the one that the ledger knows" in problem for problem in problems)
    with pytest.raises(IntegrityError, match="ledger knows"):
        trained.repair()


@pytest.mark.parametrize("task", ["text", "tags"])
def test_nothing_of_a_deleted_record_is_left_in_the_folder_or_in_memory(task, little, tmp_path):
    recipe, table = little(task)
    recipe["columns"]["subject"], canary = "person", ["w1", "w2", "canaryword"]
    table.at[3, "id"], table.at[3, "text"] = "canary-id", canary if task == "tags" else " ".join(canary)
    if task == "tags":
        table.at[3, "label"] = ["O", "B-a", "I-a"]
    table["person"] = [f"p{number}" if number != 3 else "canary-person" for number in range(len(table))]
    run = trained_run(tmp_path / "run", recipe, table)

    def left():
        return [name for name, content in tiny.all_files(run.path).items() if b"canary" in content]

    assert left()
    place = run.delete(subjects=["canary-person"]).slices[0]
    assert place not in roles(run).loaded.get().material.held
    assert left() == []
    run.repair()
    run.close()
    assert left() == []


def test_a_backup_copy_of_a_slice_is_caught_by_the_list_of_places(trained):
    """What the code writes and the list does not name is a leak: the list must not name everything."""
    assert all(place_named(name) for name in tiny.all_files(trained.path))
    slice_file = next(trained.path.glob("slices/**/*.parquet"))
    slice_file.with_suffix(".parquet.bak").write_bytes(slice_file.read_bytes())
    assert not all(place_named(name) for name in tiny.all_files(trained.path))


def test_seeds_depend_on_declared_numbers_alone():
    seeds = {
        stage_seed(seed, Stage(shard, prefix), purpose)
        for seed in (0, 1)
        for shard in (0, 1)
        for prefix in ((0,), (1,), (0, 1), (1, 0))
        for purpose in ("block", "head")
    }
    assert len(seeds) == 32


def test_training_leaves_the_global_generators_alone(little, tmp_path):
    """A stage neither reads nor moves them."""
    recipe, table = little(adapter={"dropout": 0.2})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        torch.manual_seed(5)
        before = torch.get_rng_state()
        run.train()
        assert torch.equal(torch.get_rng_state(), before)
