"""A pass of a language model's training: the gradients are those of the plain loss, however it is cut."""

import pyarrow as pa
import pytest
import torch

from s3t.models.assembly import assemble
from s3t.models.passes import pack
from s3t.recipe import recipe_from
from s3t.tasks.task import ANSWERED
from s3t.training.stage import Ready, learn
from testing.language import language_recipe, make_language_model, prompt_table


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A model with a block to train, its encoder, and encoded records."""
    folder = make_language_model(tmp_path_factory.mktemp("llama"))
    recipe = recipe_from(language_recipe(folder))
    model, encoder = assemble(folder, recipe, labels=1)
    table = prompt_table()
    rows = pa.table({name: table[name].tolist() for name in ("prompt", "completion")})
    return model, encoder, encoder.encode(rows), rows, recipe.task.target


def ready(encoder, records, rows, target, *, packed=False):
    batch = encoder.collate(records)
    targets = torch.cat(list(target.targets(rows, records, ())))
    return Ready(batch=batch, start=None, targets=targets, packing=pack(batch["attention_mask"]) if packed else None)


def gradients(mount, compute):
    parameters = mount.thaw()
    for parameter in parameters:
        parameter.grad = None
    compute()
    return [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]


def plain_loss(model, batch):
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = torch.where(batch[ANSWERED][:, :-1], batch["input_ids"][:, 1:], -100)
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels.flatten(), ignore_index=-100)


def test_gradients_are_those_of_the_whole_loss_in_parts_packed_and_with_checkpoints(stage, monkeypatch):
    model, encoder, records, rows, target = stage
    one = ready(encoder, records, rows, target)
    total = len(one.targets)

    def ours(given, *, checkpointing=False):
        return lambda: learn(model.passes, target, given, total=total, checkpointing=checkpointing)

    with model.mounted({}) as mount:
        mount.add_block(1)
        for parameter in mount.thaw():
            torch.nn.init.normal_(parameter, std=0.3)
        plain = gradients(mount, lambda: plain_loss(model.base.model, one.batch).backward())
        whole = gradients(mount, ours(one))
        saved = gradients(mount, ours(one, checkpointing=True))
        packed = gradients(mount, ours(ready(encoder, records, rows, target, packed=True)))
        monkeypatch.setattr("s3t.training.stage.HEAD_TOKENS", 7)
        parts = gradients(mount, ours(one))
        halves = [
            ready(encoder, records[part], rows.slice(part.start, 12), target) for part in (slice(0, 12), slice(12, 24))
        ]
        both = gradients(mount, lambda: [ours(half)() for half in halves])
    assert len(plain) > 0
    assert all(torch.equal(a, b) for a, b in zip(whole, saved, strict=True))
    for found in (whole, packed, parts, both):
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(plain, found, strict=True))


def test_records_cut_before_their_completion_teach_nothing(stage):
    model, encoder, _, _, target = stage
    rows = pa.table({"prompt": [" ".join(["w1"] * 40)], "completion": ["w2"]})
    one = ready(encoder, encoder.encode(rows), rows, target)
    with model.mounted({}) as mount:
        mount.add_block(1)
        found = gradients(mount, lambda: learn(model.passes, target, one, total=9, checkpointing=False))
    assert found == []
