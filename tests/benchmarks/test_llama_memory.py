"""The arithmetic of a Llama's memory: compared with tensors of tiny ones, and with what torch saves of a pass."""

import pytest
import torch
import transformers

from benchmarks.llama_memory import MODELS, computed
from benchmarks.llama_sizes import BITS, Llama, Training, adapter_numbers, base_bytes, operations, saved_bytes
from s3t.models.assembly import assemble
from s3t.models.passes import Start
from s3t.recipe import recipe_from
from testing.language import VOCABULARY, language_recipe, make_language_model
from tests.export.loaded import quietly

ROWS, LENGTH, RANK = 2, 64, 4
WIDTHS = [(64, 128, 4, 64), (64, 128, 4, 32), (128, 192, 4, 128)]
"""Width, inner width, heads, width of keys."""


def model_of(width, inner, heads, keys, **more):
    return Llama(width=width, inner=inner, layers=4, heads=heads, keys=keys, vocabulary=len(VOCABULARY), **more)


def load(folder, sizes, **changes):
    make_language_model(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    side = sizes.width // sizes.heads
    config.update({"hidden_size": sizes.width, "intermediate_size": sizes.inner, "num_hidden_layers": sizes.layers})
    config.update({"num_attention_heads": sizes.heads, "num_key_value_heads": sizes.keys // side, "head_dim": side})
    config.update({"max_position_embeddings": LENGTH})
    with quietly():
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    training = {"precision": "bfloat16", "attention": "sdpa", "threads": 1, **changes.pop("training", {})}
    adapter = {"rank": RANK, "layers_per_slice": 2, **changes}
    size = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 1}}
    content = language_recipe(folder, adapter=adapter, training=training, **size)
    return assemble(folder, recipe_from(content), labels=1)[0]


@pytest.mark.parametrize(("bits", "widths"), [*zip(BITS, WIDTHS, strict=True)], ids=str)
def test_the_bases_bytes_are_those_of_its_tensors(bits, widths, tmp_path):
    if bits != "none":
        pytest.importorskip("bitsandbytes")
    sizes = model_of(*widths)
    model = load(tmp_path / "model", sizes, training={"quantization": bits}).base.model
    buffers = sum(buffer.nbytes for name, buffer in model.named_buffers() if "rotary" not in name)
    assert base_bytes(sizes, bits) == sum(parameter.nbytes for parameter in model.parameters()) + buffers


@pytest.mark.parametrize(
    ("widths", "dropout", "depth"), [(WIDTHS[0], 0.0, 1), (WIDTHS[1], 0.1, 2), (WIDTHS[2], 0.1, 1), (WIDTHS[2], 0.0, 2)]
)
def test_a_pass_saves_what_is_computed(widths, dropout, depth, tmp_path):
    """Also with a frozen block merged into the weights."""
    sizes = model_of(*widths)
    model = load(tmp_path / "model", sizes, dropout=dropout)
    saved = {}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in own:
            saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    batch = {
        "input_ids": torch.randint(5, 40, (ROWS, LENGTH)),
        "attention_mask": torch.ones(ROWS, LENGTH, dtype=torch.int64),
        "answered": torch.ones(ROWS, LENGTH, dtype=torch.bool),
    }
    frozen = {}
    if depth == 2:
        with model.mounted({}) as mount:
            mount.add_block(1)
            frozen[1] = mount.own_tensors()
    with model.mounted(frozen) as mount, torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        mount.add_block(depth)
        trained = sum(parameter.numel() for parameter in mount.thaw())
        tensors = (*model.base.model.parameters(), *model.base.model.buffers(), *mount._beside)
        own = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        border = model.border(depth)
        states = model.passes.states(batch, [border])[border].detach()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model.passes.reached(batch, Start(border, states))
    shape = {"slices": 2, "block": 2, "rank": RANK, "tokens": ROWS * LENGTH, "records": ROWS, "mask_bytes": 2}
    training = Training(dropout=dropout > 0, checkpointing=False, **shape)
    assert trained == adapter_numbers(sizes, training)
    assert sum(each.untyped_storage().nbytes() for each in saved.values()) == saved_bytes(sizes, training, depth=depth)


@pytest.mark.parametrize(("name", "billions"), [("1B", 1.236), ("8B", 8.030), ("13B", 13.016)])
def test_parameters_are_those_that_the_models_are_known_for(name, billions):
    assert round(MODELS[name].parameters / 1e9, 3) == billions


def test_operations_of_one_layer_and_one_slice_by_hand():
    sizes = Llama(width=2, inner=3, layers=1, heads=1, keys=2, vocabulary=5)
    training = Training(slices=1, block=1, rank=1, dropout=False, checkpointing=False, tokens=1, records=1)
    weights = 4 * 2 * 2 + 3 * 2 * 3
    assert operations(sizes, training, tokens=10, epochs=1) == 10 * 2 * (2 * weights) + 10 * 2 * (2 * 2 * 5)


def test_fewer_bits_and_checkpoints_take_less_memory():
    for sizes in computed(MODELS["1B"])["models"].values():
        totals = [each["total"] for each in sizes["bits"].values()]
        for kind in ("without checkpoints", "with checkpoints"):
            of_kind = [total[kind] for total in totals]
            assert of_kind == sorted(of_kind, reverse=True)
        assert all(total["with checkpoints"] < total["without checkpoints"] for total in totals)
