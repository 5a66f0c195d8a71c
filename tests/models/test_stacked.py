"""Members side by side give what PEFT's own modules give one by one."""

import dataclasses
from itertools import pairwise

import pytest
import torch

from s3t.errors import IntegrityError
from s3t.models.adapters import Stack, deserialize, mean_of, serialize
from s3t.models.assembly import assemble
from s3t.models.passes import head_owners, tiled
from s3t.recipe import recipe_from
from testing import tiny
from testing.plain import copy_with, random_chain
from tests.models.kinds import assembled

TEXT = {
    "lora": {"alpha": 3},
    "rslora": {"use_rslora": True, "alpha": 3},
    "rank 1": {"rank": 1, "target_modules": ["query", "dense"]},
    "dora": {"use_dora": True, "use_rslora": True, "rank": 3},
    "ia3, feedforward": {"kind": "ia3", "feedforward_modules": ["output.dense"], "layers_per_slice": 1},
}
KINDS = [("text", adapter) for adapter in TEXT] + [("image", "dora"), ("image", "ia3 of fc2")]
ADAPTERS = TEXT | {"ia3 of fc2": {"kind": "ia3", "feedforward_modules": ["fc2"]}}


def made(kind, adapter, folder):
    model, encoder, records = assembled(folder, kind=kind, adapter=ADAPTERS[adapter])
    return model, encoder.collate(records[:5])


def prepared(model, chain, *, merged=False):
    return [model.prepare(block, stage, merged=merged) for block, stage in chain.items()]


@pytest.mark.parametrize(("kind", "adapter"), KINDS, ids=str)
@torch.inference_mode()
def test_every_kind_of_adapter_computes_what_pefts_module_does(kind, adapter, text_model, image_model):
    model, batch = made(kind, adapter, text_model if kind == "text" else image_model)
    chains = [random_chain(model, 1, seed=seed) for seed in range(3)]
    members = [prepared(model, chain) for chain in chains]
    alone = []
    with model.mounted({}) as mount:
        for chain in chains:
            mount.load_head(chain[1].head)
            alone.append(model.base.model(**batch).logits)
    wanted = [copy_with(model, chain)(**batch).logits for chain in chains]
    assert not any(torch.allclose(one, other, rtol=1e-3) for one, other in pairwise([*wanted, alone[-1]]))
    stack = Stack(model.modules, members, dtype=torch.float32)
    with model.mounted({}) as mount:
        for chain, expected, number in zip(chains, wanted, range(3), strict=True):
            mount.load_head(chain[1].head)
            with stack.on([1], slice(0, 3), groups=3):
                together = model.base.model(**tiled(batch, 3)).logits.chunk(3)[number]
            with stack.on([1], slice(number, number + 1), groups=1):
                single = model.base.model(**batch).logits
            torch.testing.assert_close(together, expected, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(single, expected, rtol=1e-5, atol=1e-6)
            assert torch.equal(model.base.model(**batch).logits, alone[number])  # nothing stays on


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.inference_mode()
def test_each_members_rows_go_through_its_own_head(dtype, text_model):
    model, batch = made("text", "lora", text_model)
    chains = [random_chain(model, 1, seed=seed) for seed in range(3)]
    stack = Stack(
        model.modules, [prepared(model, chain) for chain in chains], dtype=dtype, heads=head_owners(model.base)
    )
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16), model.mounted({}) as mount:
        for members in (slice(0, 3), slice(1, 3)):
            count = members.stop - members.start
            with stack.heads_on(members):
                together = model.base.model(**tiled(batch, count)).logits.chunk(count)
            for chain, found in zip(chains[members], together, strict=True):
                mount.load_head(chain[1].head)
                wanted = model.base.model(**batch).logits
                torch.testing.assert_close(found, wanted, rtol=1e-5 if dtype == torch.float32 else 2e-2, atol=1e-5)


def test_an_artifact_that_lacks_a_tensor_or_has_one_too_many_is_refused(text_model):
    model, _ = made("text", "dora", text_model)
    (stage,) = random_chain(model, 1, seed=0).values()
    name = next(iter(stage.block))
    lacking = {key: value for key, value in stage.block.items() if key != name}
    for block in (lacking, stage.block | {"other": torch.zeros(1)}, stage.block | {name: torch.zeros(1)}):
        with pytest.raises(IntegrityError, match="block 1 of an artifact does not fit"):
            model.prepare(1, dataclasses.replace(stage, block=block))
    with pytest.raises(IntegrityError, match="the head of an artifact does not fit"):
        model.prepare(1, dataclasses.replace(stage, head={}))
    with pytest.raises(IntegrityError, match="block 2"):
        model.prepare(2, stage)


@pytest.mark.parametrize("adapter", ["lora", "dora", "ia3, feedforward"])
def test_a_prepared_link_lies_in_aligned_memory_of_its_own(adapter, text_model):
    """As read it lies anywhere in the file's buffer, and would keep all of that in memory."""
    model, _ = made("text", adapter, text_model)
    stage = deserialize(serialize(random_chain(model, 1, seed=0)[1]))
    link = model.prepare(1, stage)
    tensors = [tensor for update in link.updates.values() for tensor in update.values()]
    read = {tensor.untyped_storage().data_ptr() for tensor in (*stage.block.values(), *stage.head.values())}
    for tensor in (*tensors, *link.head.values()):
        assert tensor.data_ptr() % 64 == 0
        assert tensor.untyped_storage().data_ptr() not in read
    held = sum(tensor.untyped_storage().nbytes() for tensor in (*tensors, *link.head.values()))
    assert link.nbytes == 2 * held  # once more in a stack


@pytest.mark.parametrize("adapter", TEXT)
def test_the_memory_of_links_is_known_before_they_are_prepared_and_bounds_a_stacks(adapter, text_model):
    model, _ = made("text", adapter, text_model)
    members = [prepared(model, random_chain(model, 2, seed=seed), merged=True) for seed in range(3)]
    _, known = model.prepared_nbytes((1, 2))
    assert [sum(link.nbytes for link in member) for member in members] == [known] * 3
    stack = Stack(model.modules, members, dtype=torch.float32, heads=head_owners(model.base))
    copies = sum(tensor.nbytes for tensor in stack.tensors())
    links = [link for member in members for link in member]
    assert 0 < copies <= sum(link.nbytes - sum(tensor.nbytes for tensor in link.tensors()) for link in links)


def test_the_longest_member_comes_first(text_model):
    model, _ = made("text", "lora", text_model)
    members = [prepared(model, random_chain(model, depth, seed=depth)) for depth in (1, 2)]
    with pytest.raises(ValueError, match="longest"):
        Stack(model.modules, members, dtype=torch.float32)


@pytest.mark.parametrize("adapter", [*(name for name, own in TEXT.items() if "use_dora" not in own), "all"])
@torch.inference_mode()
def test_the_mean_of_members_has_the_mean_of_their_weights(adapter, text_model):
    """Also of members that are not as deep, whose weights are then the base's."""
    whole = adapter == "all"
    changes = {"method": {"name": "sisa", "trainable": "all"}} if whole else {"adapter": TEXT[adapter]}
    recipe = tiny.recipe(text_model, **changes)
    if whole:
        del recipe["sequences"]
    model, _ = assemble(text_model, recipe_from(recipe), labels=3)
    chains = [random_chain(model, 1 if whole else depth, seed=seed) for seed, depth in enumerate((1, 2, 2))]
    mean = mean_of(chains, model.adapter)

    def weights(chain):
        with model.mounted(chain):
            return {name: value.clone() for name, value in model.base.model.state_dict().items()}

    each = [weights(chain) for chain in chains]
    found, bare = weights(mean), weights({})
    assert found.keys() == bare.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, torch.stack([own[name] for own in each]).mean(dim=0), rtol=1e-4, atol=1e-6)
    assert sum(not torch.equal(found[name], bare[name]) for name in bare) > 2
