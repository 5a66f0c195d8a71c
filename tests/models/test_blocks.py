"""Blocks go on and come off a model without a trace."""

import pytest
import torch
from peft.tuners.tuners_utils import BaseTunerLayer

from s3t.errors import IntegrityError, IsolationError
from s3t.models.adapters import deserialize, serialize
from s3t.models.base import load_base
from s3t.models.blocks import Model
from s3t.recipe import recipe_from
from testing import tiny
from testing.plain import as_peft_computes, copy_with, random_chain

ADAPTERS = [{}, {"kind": "ia3"}, {"use_dora": True}, {"dropout": 0.5}]
INPUTS = {"input_ids": torch.tensor([[2, 5, 6, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}


def loaded(folder, *, precision="float32", **adapter):
    recipe = recipe_from(tiny.recipe(folder, adapter=adapter, training={"precision": precision}))
    return Model(load_base(folder, recipe, labels=3), recipe.adapter)


def parameters_of(model):
    return {name: (value.data_ptr(), value.clone()) for name, value in model.base.model.named_parameters()}


@pytest.mark.parametrize("adapter", ADAPTERS, ids=str)
def test_after_mounting_the_model_is_the_base_model_again(adapter, text_model):
    """And until then it computes the same bits again: no dropout is on outside training, not even the adapter's."""
    model = loaded(text_model, **adapter)
    with torch.no_grad():
        before = model.base.model(**INPUTS).logits
        chain = random_chain(model, 2, seed=0)
        parameters = parameters_of(model)
        with model.mounted(chain) as mount:
            mount.add_block(3)
            wrapped = [name for name, module in model.base.model.named_modules() if isinstance(module, BaseTunerLayer)]
            assert wrapped
            assert all(".layer.0." in name for name in wrapped)
            mounted, again = (model.base.model(**INPUTS).logits for _ in range(2))
        after = model.base.model(**INPUTS).logits
    assert torch.equal(mounted, again)
    assert not torch.equal(before, mounted)
    for name, (address, value) in parameters_of(model).items():
        assert address == parameters[name][0]
        assert torch.equal(value, parameters[name][1])
    assert torch.equal(before, after)
    assert not any(isinstance(module, BaseTunerLayer) for module in model.base.model.modules())
    assert not hasattr(model.base.model, "peft_config")


def test_loaded_tensors_lie_in_aligned_memory(text_model):
    """From a file's buffer they would lie anywhere, and a matrix product's bits may depend on where."""
    model = loaded(text_model)
    with model.mounted(random_chain(model, 2, seed=0)):
        assert all(value.data_ptr() % 64 == 0 for value in model.base.model.parameters())


def test_only_the_deepest_block_and_the_head_can_be_trained_and_are_not_stored_in_bfloat16(text_model):
    model = loaded(text_model, precision="bfloat16")
    with model.mounted(random_chain(model, 1, seed=0)) as mount:
        mount.add_block(2)
        trained = set(mount.thaw())
        types = {(parameter in trained, parameter.dtype) for parameter in model.base.model.parameters()}
        thawed = {name for name, value in model.base.model.named_parameters() if value.requires_grad}
    assert types == {(True, torch.float32), (False, torch.bfloat16)}
    assert all(".layer.1." in name or name in model.base.head for name in thawed)
    assert all("lora" in name for name in thawed - set(model.base.head))


def test_the_head_is_one_linear_module_of_the_labels_and_is_drawn_from_the_seed(text_model, image_model):
    """The images' checkpoint has one of another label set, which is dropped."""
    images = load_base(image_model, recipe_from(tiny.recipe(image_model, kind="image")), labels=3)
    assert images.head == ("classifier.weight", "classifier.bias")
    assert images.model.get_parameter("classifier.weight").shape[0] == 3
    model, drawn = loaded(text_model), []
    assert model.base.head == ("classifier.weight", "classifier.bias")
    for seed in (1, 2, 1):
        model.reset_head(seed=seed)
        drawn.append(model.base.model.get_parameter("classifier.weight").clone())
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])


def test_a_model_is_not_mounted_twice_and_one_block_is_trained_at_a_time(text_model):
    model = loaded(text_model)
    with model.mounted({}) as mount:
        with pytest.raises(IsolationError, match="blocks on it already"), model.mounted({}):
            pass
        mount.add_block(1)
        with pytest.raises(IsolationError, match="one is trained at a time"):
            mount.add_block(2)


def test_tensors_survive_the_file_and_give_the_same_bytes(text_model):
    (stage,) = random_chain(loaded(text_model), 1, seed=0).values()
    again = deserialize(serialize(stage))
    assert again.block.keys() == stage.block.keys()
    assert all(torch.equal(again.head[name], value) for name, value in stage.head.items())
    assert serialize(again) == serialize(stage)
    with pytest.raises(IntegrityError, match="safetensors"):
        deserialize(b"not a safetensors file")


@pytest.mark.parametrize(
    ("precision", "adapter"),
    [("float32", adapter) for adapter in ({"alpha": 3}, {"use_rslora": True}, {"kind": "ia3"}, {"use_dora": True})]
    + [("bfloat16", adapter) for adapter in ({"alpha": 3}, {"use_dora": True})],
    ids=str,
)
def test_mounted_blocks_compute_what_pefts_modules_do(adapter, precision, text_model):
    """In bfloat16 both differ from float32 by rounding; the merged ones by no more than twice as much."""
    model, exact = (loaded(text_model, precision=kind, **adapter) for kind in (precision, "float32"))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 20, (16, 12), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    chain = random_chain(exact, 2, seed=0)
    with torch.no_grad():
        wanted = copy_with(exact, chain)(**inputs).logits
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            by_peft = copy_with(model, chain)(**inputs).logits.float()
            bare = model.base.model(**inputs).logits.float()
            with model.mounted(chain):
                assert not any(isinstance(module, BaseTunerLayer) for module in model.base.model.modules())
                merged = model.base.model(**inputs).logits.float()
    rounding = max(float((by_peft - wanted).norm()), 1e-4)
    assert (bare - wanted).norm() > 5 * rounding
    assert (merged - wanted).norm() <= 2 * rounding


def test_members_answer_with_the_bytes_that_later_stages_were_trained_on(text_model):
    """One formula folds a block in for both."""
    model = loaded(text_model, precision="bfloat16")
    chain = random_chain(model, 1, seed=0)
    link = model.prepare(1, chain[1], merged=True)
    with model.mounted(chain):
        parameters = dict(model.base.model.named_parameters())
        for target, merged in link.merged.items():
            for name, parameter in merged.items():
                assert parameter.dtype == torch.bfloat16
                assert torch.equal(parameter, parameters[f"{target}.{name}"])


def test_weights_that_change_beside_or_under_a_merged_block_are_noticed(text_model):
    model = loaded(text_model)
    chain = random_chain(model, 1, seed=0)
    name = next(iter(chain[1].block)).partition("/")[0]
    module = model.base.model.get_submodule(name)
    own, embeddings = module.weight, model.base.model.get_parameter("bert.embeddings.word_embeddings.weight")
    with model.mounted(chain) as mount:
        mount.add_block(2)
        for weight, what in ((module.weight, "merged"), (own, "base model"), (embeddings, "base model")):
            kept = weight.data.clone()
            weight.data[0, 0] += 1
            with pytest.raises(IsolationError, match=what):
                mount.check_isolation()
            weight.data.copy_(kept)
        mount.check_isolation()
        assert module.weight is not own
    assert module.weight is own


@pytest.mark.parametrize("adapter", [{"alpha": 3}, {"use_rslora": True}], ids=str)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_fused_lora_computes_what_pefts_does_and_its_gradients(adapter, precision, text_model):
    model = loaded(text_model, **adapter)
    peft, fused, again = (gradients(model, precision, fused=fused) for fused in (False, True, False))
    assert all(map(torch.equal, peft, again))  # a mount that was fused leaves nothing of it to the next
    assert any((one != other).any() for one, other in zip(peft, fused, strict=True))  # or it was not on
    exact = gradients(model, torch.float32, fused=False)
    worst = max(float((one - true).norm() / true.norm()) for one, true in zip(peft, exact, strict=True))
    for one, true in zip(fused, exact, strict=True):
        assert (one - true).norm() <= max(1e-5, 2 * worst) * true.norm()


@pytest.mark.parametrize("adapter", [{"kind": "ia3"}, {"use_dora": True}], ids=str)
def test_what_cannot_be_fused_stays_as_peft_computes_it(adapter, text_model):
    model = loaded(text_model, **adapter)
    for one, other in zip(*[gradients(model, torch.float32, fused=fused) for fused in (False, True)], strict=True):
        assert torch.equal(one, other)


def gradients(model, precision, *, fused):
    """Logits, and gradients of the deeper of two blocks and the head."""
    chain = random_chain(model, 2, seed=0, spread=0.1)
    own_block = chain.pop(2)
    torch.manual_seed(0)
    inputs = {"input_ids": torch.randint(5, 20, (8, 12)), "attention_mask": torch.ones(8, 12, dtype=torch.int64)}
    with model.mounted(chain) as mount, torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        mount.add_block(2)
        mount.load_block(2, own_block.block)
        own = mount.thaw()
        model.base.model.zero_grad()
        if not fused:
            as_peft_computes(model.base.model)
        logits = model.base.model(**inputs).logits
        logits.float().square().sum().backward()
        return [logits.detach().float(), *(parameter.grad.clone() for parameter in own)]


def test_dropout_of_a_fused_adapter_is_on_in_training_alone(text_model):
    model = loaded(text_model, dropout=0.5)
    block = random_chain(model, 1, seed=0)[1].block
    with model.mounted({}) as mount, torch.no_grad():
        mount.add_block(1)
        mount.load_block(1, block)
        assert torch.equal(model.base.model(**INPUTS).logits, model.base.model(**INPUTS).logits)
        mount.thaw()
        assert not torch.equal(model.base.model(**INPUTS).logits, model.base.model(**INPUTS).logits)
