"""The competent user's loop trains what s3t trains, on the same records."""

import torch

from benchmarks import competent, plain
from testing import tiny
from tests.benchmarks.small import ADAPTER, TRAINING, slices_of


def train_orders(setting, slices, orders, **hearing):
    return plain.train_orders(setting, slices, orders, attention="eager", train=competent.train_stage, **hearing)


def test_steps_tell_every_record_of_every_epoch(setting):
    told, stages = [], []
    train_orders(setting, slices_of(setting, 30), [(2, 0, 1)], on_stage=stages.append, on_step=told.append)
    assert sum(told) == 2 * (10 + 20 + 30)
    assert stages == ["stage (2,)", "stage (2, 0)", "stage (2, 0, 1)"]


def test_a_stage_leaves_the_blocks_above_and_the_base_as_they_were(setting):
    slices = slices_of(setting)
    (short,) = train_orders(setting, slices, [(0,)])
    (long,) = train_orders(setting, slices, [(0, 1)])
    before = dict(short.named_parameters())
    changed = {
        name
        for name, value in long.named_parameters()
        if name in before and not torch.equal(value.float(), before[name].float())
    }
    assert changed == set(plain.load(setting)[1])


def test_from_the_same_start_it_learns_what_the_plain_procedure_learns_but_for_rounding(setting):
    training = TRAINING | {"epochs": 10, "batch_size": 64, "warmup": 0.0}  # all records in one batch: no order
    quiet = plain.Plain(**vars(setting) | {"training": training, "dropout": False})
    table = tiny.text_table()
    records = plain.encoded(quiet, table.text.tolist(), table.label.tolist())
    moved = []
    for procedure in (plain, competent):
        model, head = plain.load(quiet, attention="eager")
        own = plain.add_block(model, 1, ADAPTER, head=head)
        start = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for value in own:
                value.copy_(torch.randn(value.shape, generator=start) * 0.1)
        before = torch.cat([value.detach().flatten().clone() for value in own])
        procedure.train_stage(model, own, records, quiet)
        moved.append(torch.cat([value.detach().flatten() for value in own]) - before)
    apart = (moved[0] - moved[1]).norm() / moved[0].norm()
    assert moved[0].norm() > 0.1
    assert apart < 0.1
