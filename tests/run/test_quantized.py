"""Runs whose base model has packed weights: the oracles, what init refuses, and what PEFT answers with an export."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from peft import PeftModel

import s3t
from s3t.errors import InputError, RecipeError
from s3t.models import blocks
from s3t.models.encoders import encoder_for
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest_inputs
from s3t.tasks.task import ANSWERED
from testing import tiny
from testing.language import VOCABULARY, language_recipe, make_language_model, prompt_table
from tests.export.loaded import described, quietly
from tests.models.test_quantized import PACKED
from tests.run.test_counterfactual import TWO_HARDEST, TWO_ORDERS, assert_hard_deletions_are_exact
from tests.run.worlds import SMALL, make_worlds, trained_run

bitsandbytes = pytest.importorskip("bitsandbytes")

ROOT = Path(__file__).resolve().parents[2]
IN_INTEGRATION = pytest.mark.integration
BITS = pytest.mark.parametrize("bits", [pytest.param("8bit", marks=IN_INTEGRATION), "4bit"])


@pytest.fixture(scope="module")
def trained(llama, tmp_path_factory):
    """A small run in 4 bits, for tests that change nothing."""
    recipe = language_recipe(llama, training={"quantization": "4bit", "epochs": 1}, **SMALL)
    with trained_run(tmp_path_factory.mktemp("quantized") / "run", recipe, prompt_table()) as run:
        yield run


@pytest.mark.integration
@BITS
def test_hard_deletions_are_exact(bits, llama, tmp_path):
    training = {"quantization": bits} | TWO_ORDERS["training"]
    recipe = language_recipe(llama, language={"max_length": 8}, **TWO_ORDERS | {"training": training})
    assert_hard_deletions_are_exact(recipe, prompt_table(), tmp_path, names=TWO_HARDEST)


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"quantization": "4bit", "precision": "bfloat16", "micro_batch": 2, "checkpointing": True}},
        {"training": {"quantization": "8bit", "precision": "bfloat16", "trunk_cache": False}},
        {"training": {"quantization": "8bit"}, "method": "sisa", "sequences": {"budget": 1}},
        {"training": {"quantization": "4bit"}, "method": {"name": "s3t", "direction": "bottom-up"}},
        {"training": {"quantization": "4bit"}, "adapter": {"kind": "ia3", "feedforward_modules": ["down_proj"]}},
        {"training": {"quantization": "4bit"}, "adapter": {"use_rslora": True, "dropout": 0.2}},
    ],
    ids=str,
)
@pytest.mark.integration
def test_every_way_of_training_is_exact(changes, llama, tmp_path):
    recipe = language_recipe(llama, **{"partition": {"shards": 1}} | {"sequences": {"budget": 2}} | changes)
    worlds = make_worlds(tmp_path, recipe, prompt_table(), [["r5"], ["r23"]])
    worlds.assert_exact()
    worlds.close()


@pytest.mark.integration
@BITS
def test_a_classifier_is_exact_and_its_head_is_not_packed(bits, text_model, tmp_path):
    """BERT's layers have biases, and its head is trained."""
    recipe = tiny.recipe(text_model, training={"quantization": bits}, **SMALL)
    worlds = make_worlds(tmp_path, recipe, tiny.text_table(), [["r5"]])
    worlds.assert_exact()
    assert all(
        value.is_floating_point() for value in worlds.forgot.parts.loaded.get().model.base.head_parameters().values()
    )
    worlds.close()


REPLAY = """
import sys
import s3t
with s3t.Run.open(sys.argv[1]) as run:
    report = run.audit(replay=9, seed=0)
    print(report.to_json())
    sys.exit(not report.ok)
"""


@pytest.mark.integration
def test_another_process_trains_the_same_bytes(trained):
    done = subprocess.run([sys.executable, "-c", REPLAY, str(trained.path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_bits_of_the_base_are_in_the_key_and_change_what_is_trained(llama, trained, tmp_path):
    artifacts = [tiny.artifacts(trained.path)]
    for bits in ("none", "8bit"):
        recipe = language_recipe(llama, training={"quantization": bits, "epochs": 1}, **SMALL)
        with trained_run(tmp_path / bits, recipe, prompt_table()) as run:
            artifacts.append(tiny.artifacts(run.path))
    count = sum(map(len, artifacts))
    assert len({name for each in artifacts for name in each}) == count
    assert len({content for each in artifacts for content in each.values()}) == count


def test_the_manifest_names_what_unpacked_the_weights(trained):
    manifests = [json.loads(content) for name, content in tiny.artifacts(trained.path).items() if ".json" in name]
    assert {each["environment"]["bitsandbytes"] for each in manifests} == {bitsandbytes.__version__}


def test_members_of_a_quantised_base_are_never_merged(trained):
    ensemble = trained.parts.loaded.get().ensemble
    assert trained.recipe.prediction.merged_memory > 0
    assert not ensemble._merged


@pytest.mark.parametrize("part", ["weight", "nested_absmax"])
def test_a_stage_that_writes_to_packed_weights_is_not_stored(part, llama, tmp_path, monkeypatch):
    real = blocks.Model.thaw

    def thaw(mount):
        linear = mount.base.model.get_submodule("model.layers.0.self_attn.q_proj")
        linear = getattr(linear, "base_layer", linear)
        getattr(linear, part).data.view(-1)[0] += 1
        return real(mount)

    monkeypatch.setattr(blocks.Model, "thaw", thaw)
    recipe = language_recipe(llama, training={"quantization": "4bit"}, **SMALL)
    with (
        s3t.Run.create(tmp_path / "run", recipe=recipe, data=prompt_table()) as run,
        pytest.raises(s3t.S3TError, match="a tensor of the base model changed"),
    ):
        run.train()
    assert tiny.artifacts(tmp_path / "run") == {}


def test_all_that_cannot_be_quantised_is_refused_at_once(llama):
    changes = {
        "adapter": {"use_dora": True},
        "method": {"name": "sisa", "trainable": "all"},
        "sequences": {"budget": 1},
    }
    with pytest.raises(RecipeError) as caught:
        recipe_from(language_recipe(llama, training={"quantization": "4bit"}, **changes))
    text = " | ".join(caught.value.problems)
    assert "set trainable: adapter" in text
    assert "set adapter.use_dora: false" in text


def test_a_checkpoint_that_is_quantised_already_is_refused_with_the_remedy(tmp_path):
    model = make_language_model(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (model / "config.json").write_text(json.dumps(config))
    for bits in ("none", "4bit"):
        recipe = language_recipe(model, training={"quantization": bits})
        with pytest.raises(RecipeError, match="quantised already") as caught:
            s3t.Run.create(tmp_path / bits, recipe=recipe, data=prompt_table())
        assert len(caught.value.problems) == 1
        assert not (tmp_path / bits).exists()


def test_without_bitsandbytes_init_says_so_beside_what_else_is_wrong(llama, tmp_path, monkeypatch):
    monkeypatch.setattr("s3t.models.base.missing_package", lambda: "needs the package")
    recipe = language_recipe(llama, training={"quantization": "8bit"}, language={"max_length": 99})
    with pytest.raises(RecipeError) as caught:
        s3t.Run.create(tmp_path / "run", recipe=recipe, data=prompt_table())
    missing, longest = caught.value.problems
    assert missing == "training.quantization: 8bit needs the package"
    assert "max_length" in longest
    assert not (tmp_path / "run").exists()


def test_a_merged_export_is_refused_with_the_reason(trained, tmp_path):
    with pytest.raises(InputError, match="weights of 4 bits, which take no adapter in"):
        trained.export(tmp_path / "out", merge=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.integration
@BITS
def test_peft_loads_an_export_on_the_base_that_transformers_packs(bits, tmp_path):
    """A width of 64, since bitsandbytes unpacks other widths wrongly on a CPU. Its 8-bit product rounds inputs, too."""
    model = make_language_model(tmp_path / "model")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "head_dim": 32}
    config = transformers.AutoConfig.from_pretrained(model)
    config.update(sizes | {"initializer_range": 0.1})
    with quietly(), torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(model)
    recipe = language_recipe(model, training={"quantization": bits}, **SMALL)
    with trained_run(tmp_path / "run", recipe, prompt_table()) as run:
        report = run.export(tmp_path / "out")
        (export,) = report.exports
        assert any("weights of" in notice for notice in report.notices)
        said, table = described(export.path), prompt_table(seed=5)
        expected = torch.tensor(run.score(table, prefixes=[(said["shard"], tuple(said["prefix"]))]).logits[0, :, 0])
        records = encoder_for(model, run.recipe).encode(ingest_inputs(table, run.recipe).features)
    assert f"BitsAndBytesConfig(load_in_{bits}=True" in (export.path / "README.md").read_text()
    with quietly():
        base = transformers.AutoModelForCausalLM.from_pretrained(
            model, quantization_config=transformers.BitsAndBytesConfig(**PACKED[bits]), device_map="cpu"
        )
    bare = _likelihoods(base, records)
    with quietly():
        loaded = _likelihoods(PeftModel.from_pretrained(base, export.path).eval(), records)
    error, effect = (loaded - expected).abs().mean(), (bare - expected).abs().mean()
    assert effect > 0.1
    assert error < {"4bit": 1e-4, "8bit": 0.05}[bits] * effect


def _likelihoods(model, records):
    """Log-probabilities of the learned tokens, record after record."""
    for module in model.modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            module.support_avx512bf16_for_cpu = False  # else it computes in bfloat16
    found = []
    for record in records:
        with torch.no_grad():
            logits = model(input_ids=record["input_ids"][None]).logits[0, :-1].float().log_softmax(-1)
        each = logits.gather(1, record["input_ids"][1:, None])[record[ANSWERED][:-1]]
        found.append(each[:, 0])
    return torch.cat(found)


def test_texts_are_written_and_evaluated(trained):
    (text,) = trained.generate(["w1 w2"], max_new_tokens=4).texts
    assert set(text.split()) <= set(VOCABULARY)
    assert trained.evaluate(prompt_table(seed=3)).metrics["perplexity"] > 1
