"""Linear modules with packed weights: what they compute, and that nothing of them changes unnoticed."""

import pytest
import torch
import transformers
from torch import nn

from s3t.errors import IsolationError
from s3t.models.adapters import Link, Stack, merge
from s3t.models.assembly import assemble
from s3t.models.quantized import QuantizedLinear
from s3t.recipe import recipe_from
from testing.language import language_recipe, make_language_model
from testing.plain import random_chain
from tests.export.loaded import quietly

bitsandbytes = pytest.importorskip("bitsandbytes")

ROUNDING = {"8bit": 0.58 / 127, "4bit": 0.16}
"""Largest error of a weight, by the largest weight: half a step, and a bit for 16-bit rounding. NF4's widest step is
0.3, and its own scales are rounded."""
BITS = pytest.mark.parametrize("kind", ["8bit", "4bit"])
PACKED = {
    "8bit": {"load_in_8bit": True},
    "4bit": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
}


def linear(inputs=96, outputs=40, *, bias=True, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Linear(inputs, outputs, bias=bias).requires_grad_(False)


def drawn(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def loaded(tmp_path):
    """Makes a tiny Llama with weights of some bits."""

    def load(kind, folder="model", **changes):
        model = tmp_path / folder
        if not model.is_dir():
            make_language_model(model)
        recipe = recipe_from(language_recipe(model, **{"training": {"quantization": kind}} | changes))
        return assemble(model, recipe, labels=1)[0]

    return load


@BITS
@pytest.mark.parametrize("shape", [(96, 40), (33, 7), (128, 130)], ids=str)
def test_unpacked_weights_are_the_packed_ones_within_half_a_step(kind, shape):
    """Also where blocks of 64 weights do not end with a row; bitsandbytes' own module on a CPU is wrong there."""
    bare = linear(*shape)
    found = QuantizedLinear(bare, kind, dtype=torch.float32).unpacked()
    scale = bare.weight.abs().max()
    assert found.shape == bare.weight.shape
    assert (found - bare.weight).abs().max() <= ROUNDING[kind] * scale


@BITS
def test_the_layers_linear_modules_and_no_others_have_the_packed_bytes_of_transformers(kind, tmp_path, loaded):
    ours = loaded(kind).base.model
    with quietly():
        theirs = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "model",
            quantization_config=transformers.BitsAndBytesConfig(**PACKED[kind]),
            dtype=torch.float32,
            device_map="cpu",
        )
    assert ours.lm_head.weight.dtype == ours.get_input_embeddings().weight.dtype == torch.float32
    for name, own in ours.named_modules():
        packed = isinstance(own, nn.Linear) and ".layers." in name
        assert isinstance(own, QuantizedLinear) == packed, name
        if not packed:
            continue
        other = theirs.get_submodule(name)
        assert torch.equal(own.weight, other.weight)
        if kind == "8bit":
            assert torch.equal(own.scale, other.weight.SCB)
        else:
            state = other.weight.quant_state
            assert torch.equal(own.absmax, state.absmax)
            assert torch.equal(own.nested_absmax, state.state2.absmax)
            assert torch.equal(own.offset, state.offset)


@BITS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_product_and_its_gradient_are_those_of_the_unpacked_weight(kind, dtype):
    """Also beside an input with large numbers, for which bitsandbytes' own 8-bit module rounds the others otherwise."""
    module = QuantizedLinear(linear(), kind, dtype=dtype)
    unpacked = linear().to(dtype)
    unpacked.weight.data.copy_(module.unpacked())
    given = drawn(5, 3, 96).to(dtype)
    given[0, :, 7] = 50
    ours, theirs = (given.clone().requires_grad_() for _ in range(2))
    products = module(ours), unpacked(theirs)
    assert torch.equal(*products)
    for product in products:
        (product * drawn(5, 3, 40, seed=2).to(dtype)).sum().backward()
    assert torch.equal(ours.grad, theirs.grad)


@BITS
def test_a_pass_without_gradients_changes_nothing(kind, loaded):
    """bitsandbytes' own 4-bit module packs its weight anew then, and passes no gradient from there on."""
    base = loaded(kind, training={"quantization": kind, "precision": "bfloat16"}).base
    batch = {"input_ids": torch.tensor([[8, 9, 10]]), "attention_mask": torch.ones(1, 3, dtype=torch.int64)}
    before = {name: value.clone() for name, value in (*base.model.named_parameters(), *base.model.named_buffers())}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        base.model(**batch)
    for name, value in (*base.model.named_parameters(), *base.model.named_buffers()):
        assert value.dtype == before[name].dtype, name
        assert torch.equal(value, before[name]), name
    states = base.model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        base.model(inputs_embeds=states, attention_mask=batch["attention_mask"]).logits.sum().backward()
    assert states.grad.abs().sum() > 0


CHANGES = {
    "8bit": ["weight", "scale"],
    "4bit": ["weight", "absmax", "nested_absmax", "code", "nested_code", "offset"],
}


@BITS
def test_a_change_of_a_packed_weight_or_a_scale_is_noticed(kind, loaded):
    model = loaded(kind)
    with model.mounted({}) as mount:
        mount.add_block(1)
        for part in CHANGES[kind]:
            tensor = getattr(model.base.model.get_submodule("model.layers.0.mlp.up_proj"), part).data.view(-1)
            kept = tensor[0].clone()
            tensor[0] += 1
            with pytest.raises(IsolationError, match="a tensor of the base model changed"):
                mount.check_isolation()
            tensor[0] = kept
        mount.check_isolation()


@BITS
@pytest.mark.parametrize("adapter", [{}, {"use_rslora": True}, {"kind": "ia3", "feedforward_modules": ["down_proj"]}])
def test_frozen_blocks_compute_what_pefts_modules_do(kind, adapter, loaded):
    model = loaded(kind, adapter=adapter)
    blocks = random_chain(model, 1, seed=0)
    batch = {"input_ids": torch.tensor([[8, 9, 10]]), "attention_mask": torch.ones(1, 3, dtype=torch.int64)}
    with torch.no_grad():
        bare = model.base.model(**batch).logits
        with model.mounted(blocks):
            beside = model.base.model(**batch).logits
        with model.mounted({}) as mount:
            mount.add_block(1)
            mount.load_block(1, blocks[1].block)
            wrapped = model.base.model(**batch).logits
        torch.testing.assert_close(beside, wrapped, rtol=1e-4, atol=1e-5)
        assert (beside - bare).abs().max() > 1e-2
        assert torch.equal(model.base.model(**batch).logits, bare)


@BITS
def test_a_change_of_a_frozen_block_is_noticed(kind, loaded):
    model = loaded(kind)
    with model.mounted(random_chain(model, 1, seed=0)) as mount:
        mount.add_block(2)
        mount.check_isolation()
        mount._beside[0].data.view(-1)[0] += 1
        with pytest.raises(IsolationError, match="a block that was trained before changed"):
            mount.check_isolation()


@pytest.mark.parametrize("biased", [True, False])
def test_gradients_pass_updates_as_they_pass_merged_weights(biased):
    bare, gains = linear(bias=biased), drawn(40, seed=3)
    update = {"down": drawn(96, 2), "up": 0.1 * drawn(2, 40), "gain": gains}
    update |= {"shift": drawn(40, seed=4)} if biased else {}
    merged = nn.utils.stateless._reparametrize_module(bare, dict(merge(bare, update)))
    ours, theirs = (drawn(5, 3, 96).requires_grad_() for _ in range(2))
    stack = Stack({"here": bare}, [[Link(block=1, updates={"here": update}, head={})]], dtype=torch.float32)
    with stack.on([1], slice(0, 1), groups=1):
        product = bare(ours)
    with merged:
        expected = bare(theirs)
    torch.testing.assert_close(product, expected, rtol=1e-4, atol=1e-4)
    product.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-3)
    assert not bare._forward_hooks
