"""Exported adapters answer as the run does, when PEFT loads them."""

import json

import numpy as np
import pytest
from safetensors.torch import load_file

from testing import tiny
from tests.export.loaded import SMALL, answers, assert_equal_logits, described
from tests.models.kinds import LLAMA, MODERN, TEXT, model_of_kind
from tests.run.worlds import records_by_slice, trained_run
from tests.slow import test_architectures as architectures

QWEN = LLAMA | {"head_dim": 4}
KINDS = TEXT | {"llama": LLAMA, "qwen3": QWEN, "modernbert": MODERN}
TEXTS = ["w1 w2 w3", "w4", "w30 w31 w5 w6 w7"]


def a_run(folder, model, table=None, *, kind="text", **changes):
    recipe = tiny.recipe(model, kind=kind, **SMALL, **changes)
    return trained_run(folder / "run", recipe, tiny.text_table() if table is None else table)


def test_adapters_answer_as_their_members_before_a_deletion_and_after_it(trained, tmp_path):
    before = trained.export(tmp_path / "out")
    assert [export.stage.shard for export in before.exports] == [0, 1]
    for export in before.exports:
        assert_equal_logits(export.path, trained, TEXTS)
    # The comparison would see the head of another stage, or a block more.
    shallow = trained.predict(TEXTS, prefixes=[(1, export.stage.prefix[:1])]).logits[0]
    assert np.abs(answers(export.path, trained, TEXTS) - shallow).max() > 1e-3
    trained.delete(records=["r3"])
    after = trained.export(tmp_path / "out")
    assert {export.name for export in before.exports} != {export.name for export in after.exports}
    for export in after.exports:
        assert_equal_logits(export.path, trained, TEXTS)


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_architectures(kind, text_model, tmp_path):
    with a_run(tmp_path, model_of_kind(kind, text_model, tmp_path / "model", **KINDS[kind])) as run:
        (export,) = run.export(tmp_path / "out").exports
        assert_equal_logits(export.path, run, TEXTS)
        run.delete(records=["r0"])
        run.repair()
        (export,) = run.export(tmp_path / "out").exports
        assert_equal_logits(export.path, run, TEXTS)


POOLED = {  # whether transformers' own classifier has the pooling; else the export is for sentence-transformers
    ("text", "first"): True,
    ("text", "mean"): False,
    ("text", "last"): False,
    ("llama", "last"): True,
    ("llama", "first"): False,
}


@pytest.mark.parametrize(("kind", "pooling"), POOLED)
def test_poolings(kind, pooling, text_model, tmp_path):
    model = text_model if kind == "text" else model_of_kind(kind, text_model, tmp_path / "model", **KINDS[kind])
    with a_run(tmp_path, model, text={"pooling": pooling, "max_length": 20}) as run:
        (export,) = run.export(tmp_path / "out", merge=kind == "text").exports
        own = described(export.path)["auto_class"] == "AutoModelForSequenceClassification"
        assert own == POOLED[kind, pooling]
        assert_equal_logits(export.path, run, TEXTS)


@pytest.mark.parametrize("kind", ["mobilebert", pytest.param("xlnet", marks=pytest.mark.integration)])
def test_classifiers_that_read_large_states_or_more_than_states_are_left_to_sentence_transformers(kind, tmp_path):
    """MobileBERT normalises no state, so a tanh would bend it; XLNet's classifier reads its memory, too."""
    model = architectures.make_model(kind, architectures.WORDS, tmp_path / "model")
    with a_run(tmp_path, model) as run:
        (export,) = run.export(tmp_path / "out").exports
        assert described(export.path)["auto_class"] == "AutoModel"
        assert_equal_logits(export.path, run, TEXTS)


ADAPTERS = {
    "rslora": {"use_rslora": True, "alpha": 3},
    "dora": {"use_dora": True},
    "ia3": {"kind": "ia3", "target_modules": ["query", "output.dense"], "feedforward_modules": ["output.dense"]},
    "some-modules": {"target_modules": ["query", "value"]},
    "gaussian": {"init_lora_weights": "gaussian", "dropout": 0.1},
}


@pytest.mark.integration
@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_kinds_of_adapters(adapter, text_model, tmp_path):
    with a_run(tmp_path, text_model, adapter=adapter) as run:
        (export,) = run.export(tmp_path / "out").exports
        assert_equal_logits(export.path, run, TEXTS)


@pytest.mark.integration
@pytest.mark.parametrize("method", ["sisa", {"name": "s3t", "direction": "bottom-up"}, "protosisa"])
def test_methods(method, text_model, tmp_path):
    sequences = {} if isinstance(method, dict) else {"sequences": {}}
    recipe = tiny.recipe(text_model, method=method, partition={"shards": 1}, training={"epochs": 1}) | sequences
    with trained_run(tmp_path / "run", recipe, tiny.text_table()) as run:
        report = run.export(tmp_path / "out")
        assert_equal_logits(report.exports[0].path, run, TEXTS)
        assert any("prototypes" in notice for notice in report.notices) == (method == "protosisa")


LINEAR = {"head": "ridge", "ridge": {"layers": 0}}
MEAN = {**LINEAR, "prediction": {"ensemble": "merged"}}
SOLVED = {
    "each": LINEAR,
    "merged": MEAN,
    "merged, rslora": {**MEAN, "adapter": {"use_rslora": True}},
    "merged, ia3": {**MEAN, "adapter": {"kind": "ia3"}},
}


@pytest.mark.parametrize("merge", [False, pytest.param(True, marks=pytest.mark.integration)])
@pytest.mark.parametrize(
    "changes",
    [pytest.param(own, id=name, marks=[pytest.mark.integration] * (name != "merged")) for name, own in SOLVED.items()],
)
def test_heads_that_are_solved(changes, merge, text_model, tmp_path):
    """A deletion in any slice of the run hits the export."""
    recipe = tiny.recipe(text_model, sequences={"budget": 1}, training={"epochs": 1}, **changes)
    table = tiny.text_table()
    with trained_run(tmp_path / "run", recipe, table) as run:
        exports = run.export(tmp_path / "out", merge=merge).exports
        assert len(exports) == (1 if "prediction" in changes else 2)
        for export in exports:
            assert_equal_logits(export.path, run, TEXTS)
        assert run.export(tmp_path / "out", merge=merge).exports[0].new is False
        for place, records in records_by_slice(recipe, table).items():
            forecast = run.delete(records=records[:1], dry_run=True)
            assert {each.name for each in forecast.to_withdraw} == {each.name for each in exports}, place
        done = run.delete(records=records_by_slice(recipe, table)[1, 0][:1])
        assert (done.state, len(done.to_withdraw)) == ("effective", len(exports))


@pytest.mark.integration
def test_images_and_words_with_tags(image_model, text_model, tmp_path):
    table = tiny.image_table()
    with a_run(tmp_path / "images", image_model, table, kind="image") as run:
        (export,) = run.export(tmp_path / "out").exports
        assert described(export.path)["pad_token_id"] is None
        assert_equal_logits(export.path, run, table[:3])
    table, tags = tiny.tagged_table(), {"task": "token-classification", "labels": tiny.TAGS}
    with a_run(tmp_path / "words", text_model, table, **tags) as run:
        (export,) = run.export(tmp_path / "out").exports
        assert_equal_logits(export.path, run, table[:3])


def test_the_configuration_names_modules_in_full_and_leaves_nothing_to_defaults(trained, tmp_path):
    trained.delete(records=["r3"])  # so that some members have no block at the bottom
    for export in trained.export(tmp_path / "out").exports:
        config = json.loads((export.path / "adapter_config.json").read_text())
        tensors = load_file(export.path / "adapter_model.safetensors")
        adapted = {name.rpartition(".lora_")[0] for name in tensors if ".lora_" in name}
        assert adapted == {f"base_model.model.{name}" for name in config["target_modules"]}
        assert config["modules_to_save"] == ["bert.pooler", "classifier"]
        assert (config["r"], config["lora_alpha"], config["bias"], config["task_type"]) == (2, 4, "none", "SEQ_CLS")
        assert (config["use_rslora"], config["use_dora"], config["peft_type"]) == (False, False, "LORA")
        assert config["base_model_name_or_path"] == trained.recipe.base_model


@pytest.mark.integration
def test_a_run_that_never_saw_the_record_exports_the_same_bytes_under_the_same_name(text_model, tmp_path):
    table = tiny.text_table()
    with a_run(tmp_path / "one", text_model, table) as forgot:
        forgot.delete(records=["r5"])
        forgot.repair()
        (one,) = forgot.export(tmp_path / "one" / "out").exports
    with a_run(tmp_path / "other", text_model, table[table.id != "r5"]) as never_knew:
        (other,) = never_knew.export(tmp_path / "other" / "out").exports
    assert one.name == other.name
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (one.path / name).read_bytes() == (other.path / name).read_bytes()
