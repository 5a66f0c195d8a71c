"""The pooling for which a base model was made, and one vector of a text's states."""

import json

import pytest
import torch
from transformers import BertConfig, GPT2Config, LlamaConfig, ModernBertConfig

from s3t.errors import RecipeError
from s3t.models.base import made_for, pooled

FILES = {
    "mean": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
    "first": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    "last": {"pooling_mode": "lasttoken"},
}
NOT_OURS = [{"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, {"pooling_mode": ["cls", "mean"]}]
NOT_OURS += [{"pooling_mode_max_tokens": True}, {"pooling_mode": "weightedmean"}]


def of_file(content, tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(content and json.dumps(content))
    return made_for(tmp_path, BertConfig())


@pytest.mark.parametrize("pooling", FILES)
def test_files_of_sentence_transformers_say_it(pooling, tmp_path):
    assert of_file(FILES[pooling], tmp_path) == pooling


@pytest.mark.parametrize("content", NOT_OURS, ids=str)
def test_what_is_not_one_of_ours_is_refused(content, tmp_path):
    with pytest.raises(RecipeError, match=r"was made for .*, which s3t lacks; set mean, first or last"):
        of_file(content, tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(RecipeError, match=r"1_Pooling/config\.json cannot be read"):
        of_file("", tmp_path)


def test_without_a_pooling_file_their_default_is_the_mean(tmp_path):
    (tmp_path / "config_sentence_transformers.json").write_text("{}")
    assert made_for(tmp_path, BertConfig()) == "mean"


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        (BertConfig(), "first"),
        (BertConfig(is_decoder=True), "last"),
        (GPT2Config(), "last"),
        (LlamaConfig(), "last"),
        (ModernBertConfig(classifier_pooling="cls"), "first"),
        (ModernBertConfig(classifier_pooling="mean"), "mean"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_else_the_architecture_does(config, pooling, tmp_path):
    assert made_for(tmp_path, config) == pooling


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_padding_is_never_read(pooling):
    """Whatever stands in it."""
    states, lengths = torch.randn(3, 5, 4), (5, 1, 3)
    mask = torch.tensor([[1] * length + [0] * (5 - length) for length in lengths])
    states[~mask.bool()] = torch.nan
    for row, length in enumerate(lengths):
        alone = states[row, :length]
        expected = {"mean": alone.mean(dim=0), "first": alone[0], "last": alone[-1]}[pooling]
        torch.testing.assert_close(pooled(states, mask, pooling)[row], expected)
