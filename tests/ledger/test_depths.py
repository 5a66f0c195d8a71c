"""The history of depths: written by what changes them, from which slices were hit alone, and of bounded size."""

from contextlib import suppress

from s3t.core import Stage
from s3t.ledger import Acceptance, DepthChange
from testing.trained import commit
from tests.ledger.world import PLACES, ROWS, STAGES, accept, seen_by, states, taking

SLICES = states(ROWS.values())


def changes(ledger):
    with ledger.reading() as transaction:
        return [(each.shard, each.depth_before, each.depth) for each in transaction.rows.all(DepthChange)]


TRAINED = [(0, 0, 1), (0, 1, 2), (1, 0, 1)]
"""Of the ledger's four stages; the second of shard 0 made no shard deeper."""


def test_training_and_deletion_are_noted_where_they_change_a_depth(ledger):
    assert changes(ledger) == TRAINED
    accept(ledger, taking(1))  # slice 0 of shard 0: stages (0) and (1, 0)
    assert changes(ledger) == [*TRAINED, (0, 2, 1)]
    accept(ledger, taking(2))  # the same slice again
    assert changes(ledger) == [*TRAINED, (0, 2, 1)]
    with ledger.reading() as transaction:
        times = [each.changed_at for each in transaction.rows.all(DepthChange)]
    assert times == sorted(times)


def test_a_shard_that_loses_its_last_chain_falls_to_0_also_if_its_slice_is_empty_then(ledger):
    accept(ledger, taking(5, 6))
    assert changes(ledger)[-1] == (1, 1, 0)


def test_a_chain_without_a_record_is_no_depth(ledger):
    none = Acceptance(rows=[ROWS[1], ROWS[2]], losses={PLACES[0]: 2}, tainted={})
    accept(ledger, none)  # as if its stages were gone before
    with ledger.writing() as transaction:
        transaction.forget_stages({Stage(0, (1,)): "k1", Stage(0, (1, 0)): "k10"})
    assert changes(ledger)[-1] == (0, 2, 0)  # (0) is left, and slice 0 is empty


def test_a_chain_with_a_hole_counts_up_to_it(ledger):
    with ledger.writing() as transaction:
        transaction.forget_stages({Stage(0, (1,)): "k1"})
    assert changes(ledger)[-1] == (0, 2, 1)


def test_what_is_rolled_back_leaves_no_note(ledger):
    with suppress(RuntimeError), ledger.writing() as transaction:
        transaction.accept([taking(1)])
        raise RuntimeError
    assert changes(ledger) == TRAINED


def test_only_the_newest_changes_are_kept(ledger, monkeypatch):
    monkeypatch.setattr("s3t.ledger.history.MOST_DEPTHS", 4)
    stage = Stage(1, (0,))
    for number in range(9):
        with ledger.writing() as transaction:
            transaction.forget_stages({stage: transaction.snapshot().stages[stage]})
            seen = {place: transaction.snapshot().slices[place] for place in seen_by(SLICES, stage)}
            assert commit(transaction, stage, f"key {number}", seen=seen)
        kept = changes(ledger)
        assert len(kept) <= 6
        assert kept[-1] == (1, 0, 1), number
    assert {shard for shard, *_ in kept} == {1}
    assert STAGES.keys() == ledger.snapshot().stages.keys()
