"""Every trap of the design that this code can meet: the leak is planted, and must be caught.

Each test first sees the oracle pass without the leak (or a passing twin does so elsewhere in the suite), then plants
the leak in the real code with `monkeypatch` and sees the oracle fail, or the stage refused.
"""

import dataclasses
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import s3t
from s3t.core import Stage, stage_seed
from s3t.errors import IntegrityError, IsolationError
from s3t.ledger import Transaction
from s3t.ledger.presence import Work
from s3t.models import blocks, encoders
from s3t.models.adapters import StageTensors, deserialize, serialize
from s3t.models.blocks import Model
from s3t.orders import SELECTORS
from s3t.records.ingest import ingest
from s3t.run import creation, workshop
from s3t.run.workshop import Workshop
from s3t.store.artifacts import Artifacts, Manifest
from s3t.tasks.targets import MultiLabel, Ordinal, TokenClassification
from testing import tiny
from testing.roles import roles
from tests.run.worlds import SMALL, make_worlds, records_by_slice, trained_run
from tests.slice_files import slice_path

REQUESTS = [["r3"], ["r23"]]


def make(tmp_path, model, name="worlds", **changes):
    """Small worlds: a leak that large ones would show, these show in less time."""
    recipe = tiny.recipe(model, **SMALL | changes)
    return make_worlds(tmp_path / name, recipe, tiny.text_table(), REQUESTS)


def test_without_a_leak_the_oracle_passes(text_model, tmp_path):
    make(tmp_path, text_model).assert_exact()


def test_a_head_that_has_seen_deeper_slices_is_caught(text_model, tmp_path, monkeypatch):
    """Switching blocks off leaves the head of the deepest stage, which has seen the deleted slice."""
    run = trained_run(tmp_path / "spy", tiny.recipe(text_model, **SMALL), tiny.text_table())
    last_head = roles(run).loaded.get().chain([Stage(0, (0, 1, 2))], roles(run).ledger.snapshot())[-1].head
    chain = Workshop.chain

    def with_the_last_head(self, stage, *given):
        links = chain(self, stage, *given)
        return [*links[:-1], dataclasses.replace(links[-1], head=last_head)]

    worlds = make(tmp_path, text_model)
    assert worlds.predictions_agree()
    answer = worlds.forgot.predict(worlds.probe)
    monkeypatch.setattr(Workshop, "chain", with_the_last_head)
    leaking = worlds.forgot.predict(worlds.probe)
    monkeypatch.undo()
    honest = worlds.never_knew.predict(worlds.probe, prefixes=answer.members)
    assert not np.array_equal(leaking.logits, honest.logits)


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
    run = s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table(40))
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


def test_a_random_generator_that_goes_on_from_stage_to_stage_is_caught(text_model, tmp_path, monkeypatch):
    generator = random.Random(0)
    monkeypatch.setattr(workshop, "stage_seed", lambda *about: generator.getrandbits(62))
    worlds = make(tmp_path, text_model)
    assert not worlds.forgot.audit(replay=2, seed=0).ok
    assert worlds.differing_artifacts()


def test_an_optimiser_that_goes_on_from_stage_to_stage_is_caught(text_model, tmp_path, monkeypatch):
    moments: dict[tuple[int, ...], dict[str, torch.Tensor]] = {}

    class Carried(torch.optim.AdamW):
        def step(self, closure=None):
            parameters = [parameter for group in self.param_groups for parameter in group["params"]]
            for parameter in parameters:
                if parameter not in self.state and tuple(parameter.shape) in moments:
                    self.state[parameter] = moments[tuple(parameter.shape)]
            super().step(closure)
            for parameter in parameters:
                moments[tuple(parameter.shape)] = self.state[parameter]

    monkeypatch.setattr(torch.optim, "AdamW", Carried)
    worlds = make(tmp_path, text_model)
    assert worlds.differing_artifacts()
    assert not worlds.forgot.audit(replay=3, seed=0).ok


def test_an_adapter_that_changes_base_weights_is_caught(text_model, tmp_path, monkeypatch):
    """The recipe refuses PiSSA; if it came in by another door, the stage would be refused."""
    run = s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model, **SMALL), data=tiny.text_table())
    inject = blocks.inject_adapter_in_model

    def pissa(config, model, **named):
        config.init_lora_weights = "pissa"
        return inject(config, model, **named)

    monkeypatch.setattr(blocks, "inject_adapter_in_model", pissa)
    with pytest.raises(IsolationError, match="base model"):
        run.train()
    assert tiny.artifacts(run.path) == {}
    monkeypatch.undo()
    run.train()
    assert run.audit(replay=1).ok


def test_a_buffer_that_follows_the_data_is_caught(text_model, tmp_path, monkeypatch):
    run = s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model, **SMALL), data=tiny.text_table())
    model = roles(run).loaded.get().model
    module: nn.Module = model.base.model
    embeddings = module.get_submodule("bert.embeddings")

    def follow(_module, _inputs, output):
        embeddings.get_buffer("token_type_ids").add_(output.shape[1]).clamp_(0, 1)

    handle = module.get_submodule("bert.embeddings.word_embeddings").register_forward_hook(follow)
    with pytest.raises(IsolationError, match="buffer"):
        run.train()
    handle.remove()


def test_the_right_key_with_other_bytes_is_caught(trained):
    """A parent trained elsewhere, with a manifest of its own that is right."""
    snapshot = roles(trained).ledger.snapshot()
    parent, child = Stage(0, (0,)), Stage(0, (0, 1))
    store: Artifacts = roles(trained).store
    artifact = store.get(0, snapshot.stages[parent])
    tensors = deserialize(artifact.content)
    other = serialize(StageTensors(block=tensors.block, head={n: t + 1 for n, t in tensors.head.items()}))
    import hashlib

    forged = Manifest.model_validate(artifact.manifest.model_dump() | {"sha256": hashlib.sha256(other).hexdigest()})
    store.erase({(0, snapshot.stages[parent])})
    store.put(0, snapshot.stages[parent], other, forged)
    assert any(mismatch.get("prefix") == list(child.prefix) for mismatch in trained.audit().mismatches)
    with pytest.raises(IntegrityError, match="another parent"):
        trained.predict(["w1"])
    with pytest.raises(IntegrityError, match="another parent"):
        roles(trained).loaded.get().train(Stage(0, (0, 1, 2)), snapshot)


def test_changed_bytes_under_an_honest_manifest_are_caught(trained):
    path = next(trained.path.glob("artifacts/**/*.safetensors"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert not trained.audit().ok


def test_orders_are_drawn_from_declared_inputs_alone_and_kept(text_model, tmp_path, monkeypatch):
    few = s3t.Run.create(tmp_path / "few", recipe=tiny.recipe(text_model), data=tiny.text_table(8))
    many = s3t.Run.create(tmp_path / "many", recipe=tiny.recipe(text_model), data=tiny.text_table(30))
    assert few.inventory().orders == many.inventory().orders
    monkeypatch.setitem(SELECTORS, "cyclic", lambda setting: 1 / 0)
    assert s3t.Run.open(tmp_path / "few").inventory().orders == few.inventory().orders


def test_a_partition_by_position_is_caught(text_model, tmp_path, monkeypatch):
    from s3t.core import Place
    from s3t.records import splitting

    def by_position(position):
        def place(record, subject, *, secret, shards, slices, among):
            number = next(position)
            return Place(number % shards, number // shards % slices)

        return place

    import itertools

    folder = tmp_path / "worlds"
    folder.mkdir()
    recipe, table = tiny.recipe(text_model, **SMALL), tiny.text_table()
    monkeypatch.setattr(splitting, "place_of", by_position(itertools.count()))
    forgot = trained_run(folder / "forgot", recipe, table)
    monkeypatch.setattr(splitting, "place_of", by_position(itertools.count()))
    never_knew = trained_run(folder / "never-knew", recipe, table.drop(index=3))
    forgot.delete(records=["r3"])
    forgot.repair()
    assert tiny.artifacts(forgot.path) != tiny.artifacts(never_knew.path)


def grouped(tmp_path, model, name):
    """24 records, 12 of each group; without r3 the one group is smaller than the other."""
    group = {"column": "band", "slices": {"x": [0, 1], "y": [2]}, "deletion": {"x": 0.3, "y": 0.1}}
    table = tiny.text_table()
    table["band"] = ["xy"[number % 4 // 2] for number in range(24)]
    part, orders = {"shards": 1, "group": group}, {"budget": 2, "selector": "sorted-cyclic"}
    recipe = tiny.recipe(model, partition=part, sequences=orders)
    return make_worlds(tmp_path / name, recipe, table, [["r3"]])


def test_slices_that_a_group_gets_by_its_size_are_caught(text_model, tmp_path, monkeypatch):
    """The bigger group would get two slices: without r3 that is the other one."""
    from collections import Counter

    from s3t.records import ingest as ingesting

    def by_size(groups, group):
        biggest = Counter(sorted(groups, reverse=True)).most_common(1)[0][0]
        return [(0, 1) if name == biggest else (2,) for name in groups]

    grouped(tmp_path, text_model, "honest").assert_exact()
    monkeypatch.setattr(ingesting, "among_of", by_size)
    worlds = grouped(tmp_path, text_model, "leaking")
    worlds.forgot.repair()
    assert not worlds.identical()


def test_a_prior_that_follows_counts_is_caught(text_model, tmp_path, monkeypatch):
    """Orders that shun the slices of the bigger group would tell, and depend on, how many records it has."""
    from s3t.recipe import Recipe

    seen = {}
    checked = creation.ingest_into

    def watching(split, data, recipe):
        records = ingest(data, recipe)
        seen["counts"] = [sum(index in among for among in records.among) for index in range(3)]
        return checked(split, data, recipe)

    monkeypatch.setattr(creation, "ingest_into", watching)
    honest = grouped(tmp_path, text_model, "honest")
    assert honest.forgot.inventory().orders == honest.never_knew.inventory().orders
    honest.assert_exact()

    def counted(recipe):
        return tuple(count / sum(seen["counts"]) for count in seen["counts"])

    monkeypatch.setattr(Recipe, "slice_prior", property(counted))
    leaking = grouped(tmp_path, text_model, "leaking")
    assert leaking.forgot.inventory().orders != leaking.never_knew.inventory().orders
    leaking.forgot.repair()
    assert not leaking.identical()


def test_inferred_labels_are_a_gap_that_is_real_and_named(text_model, tmp_path):
    """r23 alone has the label c: without it the head has another shape."""
    worlds = make(tmp_path, text_model, labels="infer")
    assert worlds.differing_artifacts()
    assert any("labels: infer" in gap for gap in worlds.forgot.status().to_json()["gaps"])
    declared = make(tmp_path, text_model, name="declared")
    assert declared.forgot.status().to_json()["gaps"] == []


def test_a_normaliser_fitted_on_all_images_is_caught(image_model, tmp_path, monkeypatch):
    """The black image is the only extreme one: without it the fitted mean is another."""
    mean = [0.0]
    checked, collate = creation.ingest_into, encoders.ImageEncoder.collate

    def fitted(split, data, recipe):
        records = ingest(data, recipe)
        contents = records.rows["image"].to_pylist()
        mean[0] = float(np.mean([np.frombuffer(content, np.uint8).mean() for content in contents]))
        return checked(split, data, recipe)

    def normalised(self, records):
        return {name: pixels - mean[0] / 255 for name, pixels in collate(self, records).items()}

    recipe, table = tiny.recipe(image_model, kind="image", **SMALL), tiny.image_table()
    make_worlds(tmp_path / "honest", recipe, table, REQUESTS).assert_exact()
    monkeypatch.setattr(creation, "ingest_into", fitted)
    monkeypatch.setattr(encoders.ImageEncoder, "collate", normalised)
    assert make_worlds(tmp_path / "fitted", recipe, table, REQUESTS).differing_artifacts()


def test_a_loss_that_weighs_labels_by_how_often_all_records_have_them_is_caught(text_model, tmp_path, monkeypatch):
    """As tutorials of several labels do it: rare labels weigh more, and how rare they are is counted at first."""
    weights = [torch.ones(3)]
    checked = creation.ingest_into

    def fitted(split, data, recipe):
        records = ingest(data, recipe)
        counts = [sum(label in labels for labels in records.rows["label"].to_pylist()) for label in "abc"]
        weights[0] = records.rows.num_rows / torch.tensor(counts).clamp(min=1)
        return checked(split, data, recipe)

    def weighed(_target, logits, targets):
        return nn.functional.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights[0])

    recipe = tiny.recipe(text_model, task="text-multi-label-classification", **SMALL)
    table = tiny.with_several_labels(tiny.text_table())
    make_worlds(tmp_path / "honest", recipe, table, REQUESTS).assert_exact()
    monkeypatch.setattr(creation, "ingest_into", fitted)
    monkeypatch.setattr(MultiLabel, "loss", weighed)
    assert make_worlds(tmp_path / "fitted", recipe, table, REQUESTS).differing_artifacts()


def test_a_loss_that_weighs_thresholds_by_the_labels_of_all_records_is_caught(text_model, tmp_path, monkeypatch):
    """CORAL's importance weights: the root of the larger side's share of the records, counted at first."""
    weights = [torch.ones(2)]
    checked = creation.ingest_into

    def fitted(split, data, recipe):
        labels = ingest(data, recipe).rows["label"].to_pylist()
        above = np.array([np.mean([label > threshold for label in labels]) for threshold in "ab"])
        weights[0] = torch.tensor(np.sqrt(np.maximum(above, 1 - above)), dtype=torch.float32)
        return checked(split, data, recipe)

    def weighed(_target, logits, targets):
        return nn.functional.binary_cross_entropy_with_logits(logits, targets, weight=weights[0])

    recipe, table = tiny.recipe(text_model, task="text-ordinal-classification", **SMALL), tiny.text_table()
    make_worlds(tmp_path / "honest", recipe, table, REQUESTS).assert_exact()
    monkeypatch.setattr(creation, "ingest_into", fitted)
    monkeypatch.setattr(Ordinal, "loss", weighed)
    assert make_worlds(tmp_path / "fitted", recipe, table, REQUESTS).differing_artifacts()


def test_a_loss_that_is_divided_by_the_words_of_all_records_is_caught(text_model, tmp_path, monkeypatch):
    """A mean over words that is no batch's own: it is counted at first, and the longest record counts most."""
    words = [1.0]
    checked = creation.ingest_into

    def fitted(split, data, recipe):
        records = ingest(data, recipe)
        words[0] = float(np.mean([len(each) for each in records.rows["text"].to_pylist()]))
        return checked(split, data, recipe)

    def divided(_target, logits, targets):
        return nn.functional.cross_entropy(logits, targets, reduction="sum") / words[0]

    recipe, table = tiny.tagging_recipe(text_model, **SMALL), tiny.tagged_table()
    make_worlds(tmp_path / "honest", recipe, table, REQUESTS).assert_exact()
    monkeypatch.setattr(creation, "ingest_into", fitted)
    monkeypatch.setattr(TokenClassification, "loss", divided)
    assert make_worlds(tmp_path / "fitted", recipe, table, REQUESTS).differing_artifacts()


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

    recipe, table = tiny.recipe(text_model, sequences={"budget": 2}), tiny.text_table()
    recipe["training"] |= {"trunk_cache": False, "shortcuts": []}  # as for a model that sees padding
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


class DeleteMeanwhile:
    """Progress that deletes a record, through another handle, while a stage trains on it."""

    def __init__(self, folder, record, stage):
        self.folder, self.record, self.stage = folder, record, stage
        self.deleted = False
        self.now = None

    def __call__(self, event):
        if isinstance(event, s3t.StageStart):
            self.now = event.stage
        if isinstance(event, s3t.WorkStep) and self.now == self.stage and not self.deleted:
            self.deleted = True
            with s3t.Run.open(self.folder) as other:
                assert other.delete(records=[self.record]).deleted == 1


def test_a_stage_whose_slice_loses_a_record_while_it_trains_is_discarded(text_model, tmp_path):
    table, recipe = tiny.text_table(), tiny.recipe(text_model, **SMALL)
    record = records_by_slice(recipe, table)[0, 1][0]
    run = s3t.Run.create(tmp_path / "run", recipe=recipe, data=table)
    report = run.train(progress=DeleteMeanwhile(tmp_path / "run", record, Stage(0, (0, 1))))
    assert report.discarded == 1
    assert report.missing == 0
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[table.id != record])
    assert tiny.artifacts(run.path) == tiny.artifacts(never_knew.path)


def test_committing_such_a_stage_all_the_same_is_caught(text_model, tmp_path, monkeypatch):
    table, recipe = tiny.text_table(), tiny.recipe(text_model, **SMALL)
    monkeypatch.setattr(Work, "look", lambda self, snapshot: None)  # nor is it stopped while it trains
    for step in ("announce", "commit"):
        proper = getattr(Transaction, step)
        blind = lambda self, trained, proper=proper: proper(self, replace(trained, seen={}, parents={}))  # noqa: E731
        monkeypatch.setattr(Transaction, step, blind)
    record = records_by_slice(recipe, table)[0, 1][0]
    run = s3t.Run.create(tmp_path / "run", recipe=recipe, data=table)
    run_error = None
    try:
        run.train(progress=DeleteMeanwhile(tmp_path / "run", record, Stage(0, (0, 1))))
    except IntegrityError as error:
        run_error = error
    assert run_error is not None or not run.audit().ok


def test_artifacts_that_erasure_forgot_are_caught(trained, monkeypatch):
    monkeypatch.setattr(Artifacts, "erase", lambda self, artifacts: None)
    trained.delete(records=["r3"])
    assert any("no live stage names it" in mismatch["problem"] for mismatch in trained.audit().mismatches)
    monkeypatch.undo()
    with s3t.Run.open(trained.path) as reopened:
        assert reopened.audit().ok


def test_a_record_left_in_its_slice_is_caught(trained, monkeypatch):
    from s3t.deletion import protocol

    before = trained.status().records
    monkeypatch.setattr(protocol, "without_records", lambda rows, tokens, secret: rows)
    with pytest.raises(IntegrityError, match="other records than the ledger counts"):
        trained.delete(records=["r3"])
    monkeypatch.undo()
    with s3t.Run.open(trained.path) as reopened:
        assert reopened.status().records == before - 1
        assert reopened.audit().ok


def test_a_record_put_back_into_its_slice_is_caught(trained):
    place = trained.delete(records=["r3"]).slices[0]
    path = slice_path(trained.path / "slices", place)
    other = next(file for file in sorted(path.parent.iterdir()) if file != path)
    path.write_bytes(other.read_bytes())
    problems = [mismatch["problem"] for mismatch in trained.audit().mismatches]
    assert any("not the one that the ledger knows" in problem for problem in problems)
    with pytest.raises(IntegrityError, match="ledger knows"):
        trained.repair()


@pytest.mark.parametrize("words_have_tags", [False, True])
def test_nothing_of_a_deleted_record_is_left_in_the_folder_or_in_memory(words_have_tags, text_model, tmp_path):
    table, canary, person = tiny.text_table(), "w1 w2 canaryword", "canary-person"
    recipe = tiny.recipe(text_model, columns={"subject": "person"}, **SMALL)
    if words_have_tags:
        table, canary = tiny.tagged_table(), canary.split()
        table.at[3, "label"] = ["O", "B-a", "I-a"]
        recipe = tiny.tagging_recipe(text_model, columns={"subject": "person"}, **SMALL)
    table.at[3, "id"], table.at[3, "text"] = "canary-id", canary
    table["person"] = [f"p{number}" for number in range(len(table))]
    table.loc[3, "person"] = person
    run = trained_run(tmp_path / "run", recipe, table)
    words = (b"canaryword", b"canary-id", b"canary-person")
    assert any(word in content for content in tiny.all_files(run.path).values() for word in words)
    place = run.delete(subjects=[person]).slices[0]
    assert place not in roles(run).loaded.get().material.held
    for name, content in tiny.all_files(run.path).items():
        assert not any(word in content for word in words), name
    run.repair()
    run.close()
    for name, content in tiny.all_files(run.path).items():
        assert not any(word in content for word in words), name


def test_a_backup_copy_of_a_slice_is_caught_by_the_list_of_places(trained):
    """What the code writes and the list does not name is a leak: the list must not name everything."""
    from tests.deletion.listed import place_named

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


def test_training_leaves_the_global_generators_alone(text_model, tmp_path):
    """A stage neither reads nor moves them."""
    run = s3t.Run.create(
        tmp_path / "run", recipe=tiny.recipe(text_model, adapter={"dropout": 0.2}, **SMALL), data=tiny.text_table()
    )
    torch.manual_seed(5)
    before = torch.get_rng_state()
    run.train()
    assert torch.equal(torch.get_rng_state(), before)
