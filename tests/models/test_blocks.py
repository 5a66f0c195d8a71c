"""Blocks go on and come off a model without a trace."""

import pytest
import safetensors.torch
import torch
from peft.tuners.tuners_utils import BaseTunerLayer

from s3t.errors import IntegrityError, IsolationError
from s3t.models.adapters import StageTensors, deserialize, serialize
from s3t.models.base import base_digest, load_base
from s3t.models.blocks import Model
from s3t.recipe import recipe_from
from testing import tiny
from testing.plain import as_peft_computes, copy_with, random_chain

ADAPTERS = [{}, {"kind": "ia3"}, {"use_dora": True}, {"dropout": 0.5}]


def loaded(folder, *, precision="float32", **adapter):
    recipe = recipe_from(tiny.recipe(folder, adapter=adapter, training={"precision": precision}))
    return Model(load_base(folder, recipe, labels=3), recipe.adapter)


def chain_of(model, depth):
    """Blocks with random values, as training might leave them."""
    chain = {}
    for number in range(1, depth + 1):
        with model.mounted({}) as mount:
            mount.add_block(number)
            tensors = mount.own_tensors()
        block = {name: torch.randn(value.shape) for name, value in tensors.block.items()}
        chain[number] = StageTensors(block=block, head=tensors.head)
    return chain


def parameters_of(model):
    return {name: (value.data_ptr(), value.clone()) for name, value in model.base.model.named_parameters()}


@pytest.mark.parametrize("adapter", ADAPTERS, ids=str)
def test_after_mounting_the_model_is_the_base_model_again(adapter, text_model):
    model = loaded(text_model, **adapter)
    inputs = {"input_ids": torch.tensor([[2, 5, 6, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}
    with torch.no_grad():
        before = model.base.model(**inputs).logits
        chain = chain_of(model, 2)
        parameters = parameters_of(model)
        with model.mounted(chain) as mount:
            mount.add_block(3)
            wrapped = [name for name, module in model.base.model.named_modules() if isinstance(module, BaseTunerLayer)]
            assert wrapped
            assert all(".layer.0." in name for name in wrapped)
            mounted = model.base.model(**inputs).logits
        after = model.base.model(**inputs).logits
    assert not torch.equal(before, mounted)
    for name, (address, value) in parameters_of(model).items():
        assert address == parameters[name][0]
        assert torch.equal(value, parameters[name][1])
    assert torch.equal(before, after)
    assert not any(isinstance(module, BaseTunerLayer) for module in model.base.model.modules())
    assert not hasattr(model.base.model, "peft_config")


@pytest.mark.parametrize("adapter", ADAPTERS, ids=str)
def test_two_passes_through_mounted_blocks_give_the_same_bits(adapter, text_model):
    """No dropout is on outside training, not even the adapter's."""
    model = loaded(text_model, **adapter)
    inputs = {"input_ids": torch.tensor([[2, 5, 6, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}
    with model.mounted(chain_of(model, 2)) as mount, torch.no_grad():
        mount.add_block(3)
        assert torch.equal(model.base.model(**inputs).logits, model.base.model(**inputs).logits)


def test_what_is_mounted_leaves_the_base_digest_and_what_changes_it_is_noticed(text_model):
    model = loaded(text_model)
    bare = base_digest(model.base)
    embeddings = model.base.model.get_parameter("bert.embeddings.word_embeddings.weight")
    with model.mounted(chain_of(model, 2)) as mount:
        mount.add_block(3)
        mount.check_isolation()
        embeddings.data[0, 0] += 1
        with pytest.raises(IsolationError, match="base model"):
            mount.check_isolation()
    assert base_digest(model.base) != bare


def test_loaded_tensors_lie_in_aligned_memory(text_model):
    """From a file's buffer they would lie anywhere, and a matrix product's bits may depend on where."""
    model = loaded(text_model)
    with model.mounted(chain_of(model, 2)):
        assert all(value.data_ptr() % 64 == 0 for value in model.base.model.parameters())
    raw = safetensors.torch.load_file(text_model / "model.safetensors")
    assert any(value.data_ptr() % 64 for value in raw.values())


def test_only_the_deepest_block_and_the_head_can_be_trained(text_model):
    model = loaded(text_model)
    with model.mounted(chain_of(model, 1)) as mount:
        mount.add_block(2)
        mount.thaw()
        thawed = {name for name, value in model.base.model.named_parameters() if value.requires_grad}
    assert thawed
    assert all(".layer.1." in name or name in model.base.head for name in thawed)
    assert all("lora" in name for name in thawed - set(model.base.head))


def test_the_head_of_texts_is_one_linear_module_and_is_drawn_from_the_seed(text_model):
    model = loaded(text_model)
    assert model.base.head == ("classifier.weight", "classifier.bias")
    model.reset_head(seed=1)
    first = model.base.model.get_parameter("classifier.weight").clone()
    model.reset_head(seed=2)
    assert not torch.equal(first, model.base.model.get_parameter("classifier.weight"))
    model.reset_head(seed=1)
    assert torch.equal(first, model.base.model.get_parameter("classifier.weight"))


def test_a_pretrained_head_of_another_label_set_is_dropped(image_model):
    recipe = recipe_from(tiny.recipe(image_model, kind="image"))
    base = load_base(image_model, recipe, labels=3)
    assert base.model.get_parameter("classifier.weight").shape[0] == 3
    assert base.head == ("classifier.weight", "classifier.bias")


def test_an_artifact_that_lacks_a_tensor_or_has_one_too_many_is_refused(text_model):
    model = loaded(text_model)
    (stage,) = chain_of(model, 1).values()
    name = next(iter(stage.block))
    lacking = {key: value for key, value in stage.block.items() if key != name}
    for block in (lacking, stage.block | {"other": torch.zeros(1)}, stage.block | {name: torch.zeros(1)}):
        wrong = StageTensors(block=block, head=stage.head)
        with pytest.raises(IntegrityError, match="block 1"), model.mounted({1: wrong}):
            pass
    assert not any(isinstance(module, BaseTunerLayer) for module in model.base.model.modules())


def test_a_model_is_not_mounted_twice(text_model):
    model = loaded(text_model)
    with model.mounted({}), pytest.raises(IsolationError, match="blocks on it already"), model.mounted({}):
        pass


def test_tensors_survive_the_file_and_give_the_same_bytes(text_model):
    (stage,) = chain_of(loaded(text_model), 1).values()
    again = deserialize(serialize(stage))
    assert again.block.keys() == stage.block.keys()
    assert all(torch.equal(again.head[name], value) for name, value in stage.head.items())
    assert serialize(again) == serialize(stage)
    with pytest.raises(IntegrityError, match="safetensors"):
        deserialize(b"not a safetensors file")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("adapter", [{"alpha": 3}, {"use_rslora": True}, *ADAPTERS], ids=str)
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


def test_one_block_is_trained_at_a_time(text_model):
    model = loaded(text_model)
    with model.mounted({}) as mount:
        mount.add_block(1)
        with pytest.raises(IsolationError, match="one is trained at a time"):
            mount.add_block(2)


def test_weights_that_change_beside_or_under_a_merged_block_are_noticed(text_model):
    model = loaded(text_model)
    chain = chain_of(model, 1)
    name = next(iter(chain[1].block)).partition("/")[0]
    module = model.base.model.get_submodule(name)
    own = module.weight
    with model.mounted(chain) as mount:
        for weight, what in ((module.weight, "merged"), (own, "base model")):
            kept = weight.data.clone()
            weight.data[0, 0] += 1
            with pytest.raises(IsolationError, match=what):
                mount.check_isolation()
            weight.data.copy_(kept)
        mount.check_isolation()
        assert module.weight is not own
    assert module.weight is own


def test_in_bfloat16_what_is_frozen_is_stored_so_and_what_is_trained_is_not(text_model):
    recipe = recipe_from(tiny.recipe(text_model, training={"precision": "bfloat16"}))
    base = load_base(text_model, recipe, labels=3)
    model = Model(base, recipe.adapter)
    with model.mounted({}) as mount:
        mount.add_block(1)
        trained = set(mount.thaw())
        types = {(parameter in trained, parameter.dtype) for parameter in base.model.parameters()}
    assert types == {(True, torch.float32), (False, torch.bfloat16)}


@pytest.mark.parametrize("adapter", [{"alpha": 3}, {"use_rslora": True}], ids=str)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_fused_lora_computes_what_pefts_does_and_its_gradients(adapter, precision, text_model):
    model = loaded(text_model, **adapter)
    peft, fused = (gradients(model, precision, fused=fused) for fused in (False, True))
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
    torch.manual_seed(0)
    chain = {
        block: StageTensors(block={name: value / 10 for name, value in stage.block.items()}, head=stage.head)
        for block, stage in chain_of(model, 2).items()
    }
    own_block = chain.pop(2)
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


def test_a_mount_that_was_fused_leaves_nothing_of_it_to_the_next(text_model):
    model = loaded(text_model)
    first = gradients(model, torch.float32, fused=False)
    gradients(model, torch.float32, fused=True)
    assert all(map(torch.equal, first, gradients(model, torch.float32, fused=False)))


def test_dropout_of_a_fused_adapter_is_on_in_training_alone(text_model):
    model = loaded(text_model, dropout=0.5)
    block = chain_of(model, 1)[1].block
    inputs = {"input_ids": torch.tensor([[2, 5, 6, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}
    with model.mounted({}) as mount, torch.no_grad():
        mount.add_block(1)
        mount.load_block(1, block)
        assert torch.equal(model.base.model(**inputs).logits, model.base.model(**inputs).logits)
        mount.thaw()
        assert not torch.equal(model.base.model(**inputs).logits, model.base.model(**inputs).logits)
