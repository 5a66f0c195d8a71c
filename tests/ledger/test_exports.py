"""Exports in the ledger: known before they are written, hit by what their slices lose, in use only if nothing came."""

from dataclasses import replace

from s3t.core import Stage
from s3t.ledger import ExportRow
from tests.ledger.world import NEW, PLACES, accept, an_export, erase, log, settle, taking

OTHER = Stage(1, (0,))


def announced(ledger, *exports):
    with ledger.writing() as transaction:
        return [transaction.exports.announce(export, transaction.snapshot()) for export in exports]


def test_an_export_is_announced_while_its_stages_are_alive_alone(ledger):
    assert announced(ledger, an_export()) == [True]
    accept(ledger, taking(1))
    assert announced(ledger, an_export("m2"), an_export("m3", stage=OTHER)) == [False, True]


def test_a_deletion_hits_the_exports_of_the_slices_that_lose_a_record(ledger, other):
    announced(ledger, an_export("m1"), an_export("m2", stage=OTHER, name="shard-001-cd"))
    accept(other, taking(3))
    with ledger.reading() as transaction:
        assert transaction.exports.tainted() == {"m1": frozenset({1})}
        assert transaction.exports.waited_for() == {1: ("shard-000-ab",)}
        assert [export.mark for export in transaction.exports.to_withdraw()] == ["m1"]


def test_an_export_that_was_hit_is_not_committed_and_another_is(ledger):
    hit, spared = an_export("m1"), an_export("m2", stage=OTHER)
    announced(ledger, hit, spared)
    accept(ledger, taking(1))
    with ledger.writing() as transaction:
        snapshot = transaction.snapshot()
        assert not transaction.exports.commit(hit, snapshot)
        assert transaction.exports.commit(spared, snapshot)
        assert not transaction.exports.commit(an_export("m9", stage=OTHER), snapshot)  # never announced
    with ledger.reading() as transaction:
        assert [export.made_at is None for export in transaction.exports.standing()] == [True, False]


def test_a_deletion_is_erased_when_its_exports_are_withdrawn_and_not_before(ledger):
    announced(ledger, an_export("m1"), an_export("m2", name="shard-000-cd"))
    accept(ledger, taking(1))
    erase(ledger)
    settle(ledger)
    (entry,) = log(ledger, [1])
    assert (entry.state, entry.to_withdraw) == ("effective", ("shard-000-ab", "shard-000-cd"))
    for mark, state in (("m1", "effective"), ("m2", "erased")):
        with ledger.writing() as transaction:
            transaction.exports.withdraw([mark])
            transaction.settle()
        (entry,) = log(ledger, [1])
        assert entry.state == state


def test_one_that_is_withdrawn_is_hit_no_more_and_stays_in_the_list(ledger):
    announced(ledger, an_export())
    with ledger.writing() as transaction:
        transaction.exports.withdraw(["m1"])
        transaction.accept([taking(1)])
        assert (transaction.exports.tainted(), transaction.exports.standing()) == ({}, [])
        assert [export.mark for export in transaction.rows.all(ExportRow)] == ["m1"]


def test_exports_that_a_ledger_lacked_are_compared_with_its_slices(ledger):
    right, older = an_export("m1"), replace(an_export("m2"), digests=(NEW, NEW))
    gone = replace(older, mark="m3", withdrawn_at=1.0)
    with ledger.writing() as transaction:
        slices = transaction.snapshot().slices
        transaction.exports.remember([right, older, gone], slices=slices, generation=0)
        assert [export.mark for export in transaction.exports.to_withdraw()] == ["m2"]
        assert [export.mark for export in transaction.exports.standing()] == ["m1", "m2"]


def test_a_slice_that_is_losing_a_record_is_not_the_one_that_an_export_was_made_of(ledger):
    accept(ledger, taking(3))
    with ledger.writing() as transaction:
        slices = transaction.snapshot().slices
        assert slices[PLACES[1]].pending
        transaction.exports.remember([an_export()], slices=slices, generation=1)
        assert transaction.exports.waited_for() == {1: ("shard-000-ab",)}
