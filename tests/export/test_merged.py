"""Merged exports answer as the run does, when transformers loads them."""

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2Model
from transformers.pytorch_utils import Conv1D

import s3t
from s3t.export.merged import _as_transformers_has_them
from s3t.tasks.targets import Classification
from testing import tiny
from tests.export.loaded import SMALL, assert_equal_logits, load
from tests.models.kinds import LLAMA, TEXT, model_of_kind
from tests.run.worlds import trained_run

TEXTS = ["w1 w2 w3", "w4", "w30 w31 w5 w6 w7"]
KINDS = {"roberta": TEXT["roberta"], "llama": LLAMA}


def merged(folder, model, table=None, *, kind="text", **changes):
    recipe = tiny.recipe(model, kind=kind, **SMALL, **changes)
    run = trained_run(folder / "run", recipe, tiny.text_table() if table is None else table)
    (export,) = run.export(folder / "out", merge=True).exports
    return run, export.path


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_architectures(kind, text_model, tmp_path):
    run, folder = merged(tmp_path, model_of_kind(kind, text_model, tmp_path / "model", **KINDS[kind]))
    with run:
        assert_equal_logits(folder, run, TEXTS)


@pytest.mark.integration
def test_a_merged_model_has_its_tokenizer_and_the_names_of_its_labels(text_model, tmp_path):
    run, folder = merged(tmp_path, text_model, adapter={"use_dora": True})
    with run:
        assert_equal_logits(folder, run, TEXTS)
        assert load(folder).config.id2label == {0: "a", 1: "b", 2: "c"}
        assert (folder / "tokenizer.json").read_bytes() == (text_model / "tokenizer.json").read_bytes()
        assert not list(folder.glob("*.index.json"))
        unchanged = run.predict(TEXTS).logits
        assert (run.predict(TEXTS).logits == unchanged).all()  # nothing of it stays on the run's model


def test_outputs_that_are_no_labels_are_not_named_as_labels(text_model, tmp_path, monkeypatch):
    """transformers makes as many outputs as it reads names."""
    monkeypatch.setattr(Classification, "outputs", lambda self, labels: len(labels) + 1)
    run, folder = merged(tmp_path, text_model)
    with run:
        assert load(folder).config.num_labels == 4


@pytest.mark.integration
def test_images_have_the_processor_of_the_recipe(image_model, tmp_path):
    table = tiny.image_table()
    run, folder = merged(tmp_path, image_model, table, kind="image", image={"mean": [0.25], "std": [0.75]})
    with run:
        from transformers import AutoImageProcessor

        assert_equal_logits(folder, run, table[:3])
        assert AutoImageProcessor.from_pretrained(folder, backend="pil").image_mean == (0.25,)


@pytest.mark.integration
@pytest.mark.parametrize("method", ["sisa", "full"])
def test_methods_that_train_the_model_itself_are_exported_merged_alone(method, text_model, tmp_path):
    changes = {"sequences": {}, "partition": {"shards": 1, "slices": 1 if method == "full" else 2, "salt": tiny.SALT}}
    recipe = tiny.recipe(text_model) | changes | {"method": {"name": method, "trainable": "all"}, "adapter": {}}
    with trained_run(tmp_path / "run", recipe, tiny.text_table()) as run:
        with pytest.raises(s3t.InputError, match="so there is no adapter; export it merged"):
            run.export(tmp_path / "out")
        assert not (tmp_path / "out").exists()
        (export,) = run.export(tmp_path / "out", merge=True).exports
        assert_equal_logits(export.path, run, TEXTS)


def test_modules_that_were_turned_at_loading_are_turned_back():
    """GPT-2 keeps its weights transposed; a run has them as linear modules."""
    torch.manual_seed(0)
    bare = GPT2Model(
        GPT2Config(n_embd=8, n_layer=1, n_head=2, n_positions=8, vocab_size=9, bos_token_id=0, eos_token_id=0)
    )
    turned = GPT2Model(bare.config)
    turned.load_state_dict(bare.state_dict())
    for name, module in list(turned.named_modules()):
        if isinstance(module, Conv1D):
            linear = nn.Linear(*module.weight.shape)
            linear.weight.data, linear.bias.data = module.weight.data.t().clone(), module.bias.data
            turned.set_submodule(name, linear)
    given = _as_transformers_has_them(turned, bare)
    assert given.keys() == bare.state_dict().keys()
    assert all(torch.equal(given[name], value) for name, value in bare.state_dict().items())
