"""The plain procedure and the competent user's loop train what s3t trains, on the same records."""

import json
import shutil

import pyarrow as pa
import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

import s3t
from benchmarks import competent, plain
from benchmarks.flops import step_flops
from s3t.models.adapters import deserialize
from s3t.models.encoders import encoder_for
from s3t.recipe import recipe_from
from s3t.store.artifacts import Manifest
from testing import tiny
from tests.benchmarks.small import ADAPTER, TRAINING, slices_of


def test_every_stage_trains_the_parameters_that_s3t_stores(setting, tmp_path):
    recipe = tiny.recipe(setting.folder, partition={"shards": 1}, sequences={"budget": 1}, adapter=ADAPTER)
    with s3t.Run.create(tmp_path / "run", recipe=recipe | {"training": {"epochs": 0}}, data=tiny.text_table()) as run:
        run.train()
        folder = run.path / "artifacts" / "shard-000"
        manifests = {path.stem: Manifest.model_validate_json(path.read_text()) for path in folder.glob("*.json")}
        stored = {
            len(manifest.prefix): deserialize((folder / f"{key}.safetensors").read_bytes())
            for key, manifest in manifests.items()
        }
    model, head = plain.load(setting)
    for depth in (1, 2, 3):
        own = plain.add_block(model, depth, setting.adapter, head=head)
        theirs = [*stored[depth].block.values(), *stored[depth].head.values()]
        assert sorted(tuple(value.shape) for value in own) == sorted(tuple(value.shape) for value in theirs)
        names = {name for name, value in model.named_parameters() if value.requires_grad}
        assert all(f"layer.{3 - depth}." in name or name in head for name in names)
        assert set(head) == set(stored[depth].head)


PROCEDURES = {"plain": {}, "competent": {"attention": "eager", "train": competent.train_stage}}


@pytest.mark.parametrize("procedure", PROCEDURES.values(), ids=PROCEDURES)
def test_a_stage_leaves_the_blocks_above_and_the_base_as_they_were_and_tells_every_record(procedure, setting):
    slices, told, stages = slices_of(setting, 12), [], []
    hearing = {"on_stage": stages.append, "on_step": told.append}
    (short,) = plain.train_orders(setting, slices, [(2,)], **procedure)
    (long,) = plain.train_orders(setting, slices, [(2, 0)], **procedure, **hearing)
    assert sum(told) == 2 * (4 + 8)
    assert stages == ["stage (2,)", "stage (2, 0)"]
    before = dict(short.named_parameters())
    changed = {name for name, own in long.named_parameters() if name in before and not own.equal(before[name])}
    assert changed == set(plain.load(setting)[1])


def test_from_the_same_start_a_competent_loop_learns_what_the_plain_one_learns_but_for_rounding(setting):
    training = TRAINING | {"epochs": 4, "batch_size": 64, "warmup": 0.0}  # all records in one batch: no order
    quiet = plain.Plain(**vars(setting) | {"training": training, "dropout": False})
    table, moved = tiny.text_table(), []
    records = plain.encoded(quiet, table.text.tolist(), table.label.tolist())
    for procedure in (plain, competent):
        model, head = plain.load(quiet, attention="eager")
        own = plain.add_block(model, 1, ADAPTER, head=head)
        start = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for value in own:
                value.copy_(torch.randn(value.shape, generator=start) * 0.1)
        before = torch.cat([value.detach().flatten().clone() for value in own])
        procedure.train_stage(model, own, records, quiet)
        moved.append(torch.cat([value.detach().flatten() for value in own]) - before)
    assert (moved[0] - moved[1]).norm() < 0.1 * moved[0].norm() > 0.01


def test_from_the_same_start_and_without_dropout_it_gives_what_s3t_gives_but_for_rounding(setting, tmp_path):
    training = TRAINING | {"epochs": 4, "batch_size": 64, "warmup": 0.0}  # all records in one batch: no order
    begun, ended = (stages_by_s3t(setting, tmp_path / str(epochs), training | {"epochs": epochs}) for epochs in (0, 4))
    quiet = plain.Plain(**vars(setting) | {"training": training, "dropout": False})
    model, head = plain.load(quiet)
    table = tiny.text_table()
    records = plain.encoded(quiet, table.text.tolist(), table.label.tolist())
    own = plain.add_block(model, 1, ADAPTER, head=head)
    with torch.no_grad():
        for name, value in named_as_in_plain(begun):
            model.get_parameter(name).copy_(value)
    plain.train_stage(model, own, records, quiet)
    before = dict(named_as_in_plain(begun))
    for name, value in named_as_in_plain(ended):
        torch.testing.assert_close(model.get_parameter(name).detach(), value, rtol=1e-3, atol=1e-4)
        assert float((value - before[name]).abs().max()) > 0.01, name


def stages_by_s3t(setting, path, training):
    """The first stage of a run of one shard and one slice."""
    size = {"partition": {"shards": 1, "slices": 1}, "sequences": {"budget": 1}, "adapter": ADAPTER}
    recipe = tiny.recipe(setting.folder, training={**training, "precision": "float32"}, **size)
    with s3t.Run.create(path, recipe=recipe, data=tiny.text_table()) as run:
        run.train()
        (file,) = run.path.glob("artifacts/shard-000/*.safetensors")
        return deserialize(file.read_bytes())


def named_as_in_plain(stage):
    for name, value in stage.block.items():
        module, _, parameter = name.partition("/")
        kind, _, leaf = parameter.partition(".")
        yield f"{module}.{kind}.block1.{leaf}", value
    yield from stage.head.items()


def test_operations_of_a_step_are_those_that_a_pencil_finds(text_model):
    def bare():
        return AutoModelForSequenceClassification.from_config(
            AutoConfig.from_pretrained(text_model, num_labels=3), attn_implementation="eager"
        )

    records, tokens, width, inner, rank, labels = 4, 10, 8, 16, 2, 3
    rows = records * tokens
    linear = {"query": (8, 8), "key": (8, 8), "value": (8, 8), "out": (8, 8), "up": (8, 16), "down": (16, 8)}
    assert linear["up"] == (width, inner)
    products = 2 * rows * sum(wide * high for wide, high in linear.values())
    attention = 2 * 2 * rows * tokens * width  # scores, and their sum of the values
    layer = products + attention
    lora = 2 * rows * rank * sum(sum(linear[name]) for name in ("query", "out", "up", "down"))
    pooler, classifier = 2 * records * width * width, 2 * records * width * labels
    # Backwards: a product again for the gradient of each input, and one more for that of what is trained. Nothing below
    # the block is trained, so the inputs of query, key and value need no gradient; nor do key and value themselves.
    no_input = 2 * rows * (3 * width * width + width * rank)
    block = (products + attention + lora) + (products - no_input + attention + 2 * lora)
    found = step_flops(bare, {"input_ids": (records, tokens)}, depth=1, adapter=ADAPTER)
    assert found.trunk == 2 * layer
    assert found.whole == 2 * layer + block + 2 * pooler + 3 * classifier


@pytest.mark.parametrize("own", [False, True])
def test_images_are_encoded_as_s3t_encodes_them(own, image_model, tmp_path):
    folder = shutil.copytree(image_model, tmp_path / "model")
    if own:
        size = {"height": 8, "width": 8}
        fields = {"image_processor_type": "ViTImageProcessor", "do_rescale": True, "rescale_factor": 1 / 255}
        fields |= {"do_resize": False, "do_center_crop": True, "image_mean": [0.3], "image_std": [0.2], "size": size}
        (folder / "preprocessor_config.json").write_text(json.dumps(fields | {"crop_size": size}))
    setting = plain.Plain(folder=folder, labels=["a", "b", "c"], adapter=ADAPTER, training=TRAINING, images=True)
    table = tiny.image_table(4)
    model, head = plain.load(setting)  # the checkpoint's head has seven labels, and is drawn anew
    assert head == ["classifier.bias", "classifier.weight"]
    assert len(model.classifier.weight) == 3
    found = plain.encoded(setting, table.image.tolist(), table.label.tolist())
    encoder = encoder_for(folder, recipe_from(tiny.recipe(folder, kind="image")))
    ours = encoder.collate(encoder.encode(pa.table({"image": table.image.tolist()})))["pixel_values"]
    torch.testing.assert_close(found["pixel_values"][:], ours, rtol=0, atol=1e-6)
