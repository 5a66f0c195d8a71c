"""Layers by parsed index; modules of a block by full name."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForSequenceClassification

from s3t.errors import RecipeError
from s3t.models.layers import block_layers, block_modules, feedforward_modules, find_layers
from s3t.recipe import Adapter

SIZES = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "num_hidden_layers": 12}


@pytest.fixture(scope="module")
def model():
    with torch.device("meta"):
        return AutoModelForSequenceClassification.from_config(AutoConfig.for_model("bert", vocab_size=9, **SIZES))


def test_layer_1_is_not_layer_10_or_11(model):
    names = block_modules(model, find_layers(model, 12), Adapter(target_modules=["query"]), 11)
    assert names == ("bert.encoder.layer.1.attention.self.query",)


def test_a_target_names_whole_components_and_may_be_a_longer_tail(model):
    layers = find_layers(model, 12)
    dense = block_modules(model, layers, Adapter(target_modules=["dense"]), 1)
    assert len(dense) == 3
    one = block_modules(model, layers, Adapter(target_modules=["attention.output.dense"]), 1)
    assert one == ("bert.encoder.layer.11.attention.output.dense",)
    with pytest.raises(RecipeError, match=r"attention\.self\.query"):
        block_modules(model, layers, Adapter(target_modules=["uery"]), 1)


def test_feedforward_modules_are_matched_like_targets():
    adapter = Adapter(kind="ia3", target_modules=["key", "output.dense"], feedforward_modules=["output.dense"])
    assert feedforward_modules(["a.key", "a.output.dense"], adapter) == ["a.output.dense"]


def test_a_model_with_two_stacks_is_refused_rather_than_guessed():
    twice = torch.nn.ModuleDict(
        {name: torch.nn.ModuleList([torch.nn.Linear(1, 1)] * 2) for name in ("encoder", "decoder")}
    )
    with pytest.raises(RecipeError, match="2 lists of 2 layers"):
        find_layers(twice, 2)


@given(slices=st.integers(1, 12), per_slice=st.integers(1, 4), spare=st.integers(0, 5))
def test_blocks_are_disjoint_and_go_from_the_top_down_leaving_the_bottom(slices, per_slice, spare):
    layers = slices * per_slice + spare
    blocks = [block_layers(k, layers=layers, layers_per_slice=per_slice) for k in range(1, slices + 1)]
    assert sorted(layer for block in blocks for layer in block) == list(range(spare, layers))
    assert all(min(upper) > max(lower) for upper, lower in pairwise(blocks))
