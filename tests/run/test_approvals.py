"""Held requests for deletion: nothing goes before somebody else approves, and then all of it, with the names."""

import itertools
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

import s3t
from s3t.deletion import protocol
from s3t.deletion.acceptance import Acceptor
from s3t.deletion.holding import Limits
from s3t.deletion.lookup import Lookup
from s3t.errors import DecidedError, InputError, IntegrityError, KeyDestroyedError, TooManyHeldError
from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.servers import HOUR
from s3t.run import approvals, upkeep
from testing import tiny
from testing.roles import roles

EVERY = Limits(records=0, share=None)
PEOPLE = 8


@pytest.fixture(scope="module")
def made(text_model, tmp_path_factory):
    """A run without stages; p0 has r0, r8, r16."""
    path = tmp_path_factory.mktemp("made") / "run"
    recipe = tiny.recipe(text_model, columns={"subject": "person"})
    s3t.Run.create(path, recipe=recipe, data=tiny.text_table(subjects=PEOPLE)).close()
    return path


@pytest.fixture
def run(made, tmp_path):
    with s3t.Run.open(tiny.copy_run(made, tmp_path / "run")) as opened:
        yield opened


def ask(run, *, records=(), subjects=(), key=None, strict=False, caller="app", limits=EVERY):
    return run.approvals.admit(
        records=list(records), subjects=list(subjects), key=key, strict=strict, caller=caller, limits=limits
    )


def state_of(run, **names):
    return [each.state for each in run.locate(**names)]


def test_what_is_within_the_limits_is_not_held_and_counts_for_an_hour(run, monkeypatch):
    limits = Limits(records=3, share=None)
    assert ask(run, records=["r0", "r1"], limits=limits) is None
    assert ask(run, records=["r2"], limits=limits) is None
    over = ask(run, records=["r3"], limits=limits)
    assert over.why == "1 record, 3 by this caller in the hour before: over 3"
    assert ask(run, records=["r3"], limits=limits, caller="other") is None
    now = Rows.now
    monkeypatch.setattr(Rows, "now", lambda rows: now(rows) + HOUR)
    assert ask(run, records=["r4", "r5", "r6"], limits=limits) is None


def test_a_share_of_a_shard_counts_whoever_asks(run):
    limits = Limits(records=None, share=0.5)
    place = {name: run.locate(records=[name])[0].places[0].shard for name in tiny.text_table().id}
    shard = [name for name in place if place[name] == 0]
    half = len(shard) // 2
    assert ask(run, records=shard[:half], limits=limits) is None
    run.delete(records=shard[:half])
    held = ask(run, records=shard[half : half + 1], caller="other", limits=limits)
    assert held.why == "1 shard would lose over 50 % within an hour"
    assert ask(run, records=[name for name in place if place[name] == 1][:1], caller="other", limits=limits) is None


def test_what_takes_nothing_and_a_strict_request_for_an_unknown_name_are_not_held(run):
    run.delete(records=["r0"])
    assert ask(run, records=["r0", "nobody"]) is None
    assert ask(run, subjects=["p1", "nobody"], strict=True) is None
    assert ask(run, subjects=["p1"], strict=True).state == "held"
    with pytest.raises(InputError, match="none was held under the id 'nix'"):
        run.approvals.approve("nix", by="ops")


def test_a_held_request_changes_nothing_and_its_names_are_nowhere(run, tmp_path):
    before = run.status().to_json()
    held = ask(run, records=["r3"], subjects=["p0"], key="ticket-secret")
    assert (held.state, held.records, held.asked_by) == ("held", 4, "app")
    assert run.approvals.impact(held).deleted == 4
    assert run.status().to_json() == before
    assert state_of(run, records=["r0", "r3"]) == ["present", "present"]
    ledger = b"".join(path.read_bytes() for path in run.path.glob("ledger.sqlite*"))
    assert b"ticket-secret" not in ledger
    assert not any(name in str(held.to_json()) for name in ("r3", "p0", "ticket-secret"))
    with s3t.Run.clone(run.path, tmp_path / "clone") as clone:
        assert (clone.approvals.all(), names_in(clone)) == ((), [])


def test_approved_by_another_it_is_the_deletion_that_was_asked_for(run, tmp_path):
    other = s3t.Run.clone(run.path, tmp_path / "other")
    held = ask(run, records=["r3", "nobody"], subjects=["p0"])
    with pytest.raises(InputError, match="another token has to approve"):
        run.approvals.approve(held.id, by="app")
    assert state_of(run, subjects=["p0"]) == ["present"]
    done = run.approvals.approve(held.id, by="ops")
    assert (done.state, done.decided_by) == ("done", "ops")
    assert state_of(run, records=["r0", "r3", "r8"], subjects=["p0", "p1"]) == [*["erased"] * 4, "present"]
    (entry,) = run.log([done.deletion])
    assert entry.records == 4
    assert abs(entry.received_at - held.asked_at) < timedelta(seconds=1)
    other.delete(records=["r3", "nobody"], subjects=["p0"])
    assert slices_of(other) == slices_of(run)
    other.close()


def test_nobody_joins_the_request_of_another_whom_they_could_then_approve(run):
    held = ask(run, records=["r3"], key="ticket")
    assert ask(run, records=["r3"], key="ticket") == held
    with pytest.raises(InputError, match="is that of another caller's request; use one of your own"):
        ask(run, records=["r3"], key="ticket", caller="ops")
    own = ask(run, records=["r3"], key="another", caller="ops")
    with pytest.raises(InputError, match="another token has to approve"):
        run.approvals.approve(own.id, by="ops")


def slices_of(run):
    return {path.relative_to(run.path): path.read_bytes() for path in run.path.glob("slices/**/*.parquet")}


def test_the_names_go_with_the_decision(run):
    approved, refused = ask(run, subjects=["p0"]), ask(run, subjects=["p1"])
    assert len(names_in(run)) == 2
    run.approvals.refuse(refused.id, by="ops", reason="wrong account")
    assert {row.held for row in names_in(run)} == {approved.id}
    run.approvals.approve(approved.id, by="ops")
    assert names_in(run) == []


def names_in(run):
    with roles(run).ledger.reading() as transaction:
        return transaction.rows.unchecked(schema.held_names)


def test_one_that_is_made_again_is_held_once(run):
    held = ask(run, subjects=["p0"])
    assert ask(run, subjects=["p0"]).id == held.id
    keyed = ask(run, subjects=["p1"], key="ticket")
    assert ask(run, subjects=["p1"], key="ticket").id == keyed.id
    assert len(run.approvals.waiting()) == 2
    with pytest.raises(InputError, match="other names"):
        ask(run, subjects=["p2"], key="ticket")
    run.approvals.approve(keyed.id, by="ops")
    assert ask(run, subjects=["p1"], key="ticket") is None
    assert run.delete(subjects=["p1"], key="ticket").repeated


def test_a_refused_one_deletes_nothing_and_stays_refused_for_a_reason_in_one_line(run):
    held = ask(run, subjects=["p0"], key="ticket")
    for wrong in ("", "  ", "one\0two", "one\ntwo", "x" * 501):
        with pytest.raises(InputError, match="reason: give 1 to 500 characters in one line"):
            run.approvals.refuse(held.id, by="ops", reason=wrong)
    refused = run.approvals.refuse(held.id, by="ops", reason="déjà fait\u202f: n°\u00a07\n")
    assert (refused.state, refused.reason) == ("refused", "déjà fait\u202f: n°\u00a07")
    assert state_of(run, subjects=["p0"]) == ["present"]
    with pytest.raises(InputError, match="was refused"):
        run.approvals.approve(held.id, by="ops")
    assert ask(run, subjects=["p0"], key="ticket").state == "refused"


class Killed(BaseException):
    """In the place of a signal."""


def approved_and_killed(run, *every, part=0):
    """Each is approved, and killed before it is accepted, or a later part of it."""
    accept, left = Acceptor.accept, itertools.count()

    def act(self, batches, *incoming, **how):
        if next(left) % (part + 1) == part:
            raise Killed
        return accept(self, batches, *incoming, **how)

    for held in every:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Acceptor, "accept", act)
            with pytest.raises(Killed):
                run.approvals.approve(held.id, by="ops")


def opened_by_another(run):
    s3t.Run.open(run.path).close()


def looked_at_for_a_while(run):
    roles(run).upkeep.erase_meanwhile()
    assert state_of(run, subjects=["p0"]) == ["present"]  # the approver goes first
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 3.0))
        roles(run).upkeep.erase_meanwhile()
    assert state_of(run, subjects=["p0"]) == ["erased"]


def erased(run):
    run.erase()
    assert state_of(run, subjects=["p0"]) == ["erased"]


@pytest.mark.parametrize("goes_on", [opened_by_another, erased, looked_at_for_a_while])
def test_an_approval_that_was_killed_before_it_was_carried_out_goes_on(run, goes_on):
    held = ask(run, subjects=["p0"], key="ticket")
    approved_and_killed(run, held)
    assert f"request {held.id} for deletion is approved, and not carried out yet" in "".join(run.status().warnings)
    with pytest.raises(InputError, match="was approved by ops"):
        run.approvals.refuse(held.id, by="other", reason="too late")
    goes_on(run)
    assert run.approvals.find(held.id).state == "done"
    assert run.approvals.approve(held.id, by="third").deletion == 1
    with s3t.Run.open(run.path) as again:
        assert again.approvals.find(held.id).state == "done"
        assert state_of(again, subjects=["p0"]) == ["erased"]
        assert again.approvals.approve(held.id, by="other").decided_by == "ops"
        assert len(again.log()) == 2
        assert "approved" not in "".join(again.status().warnings)
        assert again.delete(subjects=["p0"], key="ticket").repeated
        assert names_in(again) == []


def test_an_approval_after_which_nothing_answers_is_told_by_the_next_opening_and_repaired_by_who_approves(
    trained, caplog
):
    tiny.change_recipe(trained.path, deletion={})
    with s3t.Run.open(trained.path) as run:
        held = ask(run, records=tiny.text_table().id[:-1])
        approved_and_killed(run, held)
    with s3t.Run.open(trained.path) as run:
        (outage,) = run.status().outage
        assert f"request {held.id}, approved, was carried out: {outage}" in caplog.text
        done = run.approvals.approve(held.id, by="ops")
        assert (done.outcome.repair_due, done.outcome.repair.missing) == (True, 0)
        assert done.outcome.warnings == run.status().outage == ()


def test_one_of_several_parts_that_was_killed_between_two_goes_on_with_the_rest(run, monkeypatch):
    monkeypatch.setattr(protocol, "BATCH_NAMES", 2)
    names = ["r1", "r2", "r3", "r4", "r5"]
    held = ask(run, records=names)
    approved_and_killed(run, held, part=1)
    assert state_of(run, records=names).count("present") == 3
    opened_by_another(run)
    with s3t.Run.open(run.path) as again:
        assert state_of(again, records=names) == ["erased"] * 5
        assert again.approvals.find(held.id).state == "done"


def test_who_approves_hears_of_what_another_process_carried_out(run, monkeypatch):
    """Its own search for the names takes so long that another goes on for it."""
    held, search = ask(run, subjects=["p0"]), Lookup.search

    def slow(lookup, **names):
        monkeypatch.setattr(Lookup, "search", search)
        with s3t.Run.open(run.path) as other:
            assert other.log()[-1].records == 3
        return search(lookup, **names)

    monkeypatch.setattr(Lookup, "search", slow)
    done = run.approvals.approve(held.id, by="operator").outcome
    assert (done.deleted, done.state, len(done.log)) == (3, "erased", 1)


def test_a_key_that_other_names_have_taken_since_the_approval_does_not_stop_it(run):
    held = ask(run, subjects=["p0"], key="ticket")
    approved_and_killed(run, held)
    run.delete(subjects=["p1"], key="ticket")
    run.erase()
    assert state_of(run, subjects=["p0", "p1"]) == ["erased", "erased"]
    assert run.delete(subjects=["p1"], key="ticket").repeated


def test_the_secret_is_not_destroyed_before_what_is_approved_is_carried_out(run):
    held, fails = ask(run, subjects=["p0"]), ask(run, subjects=["p1"])
    approved_and_killed(run, held, fails)
    lose_names(run, fails)
    with pytest.raises(InputError, match=f"request {fails.id} is approved, and not carried out yet: .*held_names"):
        run.destroy_key()
    assert run.delete(subjects=["p1"]).deleted == 3
    assert state_of(run, subjects=["p0"]) == ["erased"]


def test_a_run_without_its_secret_takes_no_approval(run):
    held = ask(run, subjects=["p0"])
    run.destroy_key()
    with s3t.Run.open(run.path) as again:
        with pytest.raises(KeyDestroyedError):
            again.approvals.approve(held.id, by="ops")
        assert again.approvals.find(held.id).state == "held"


def change(run, statement):
    with roles(run).ledger.writing() as transaction:
        transaction.rows.connection.execute(statement)


def lose_names(run, held):
    change(run, schema.held_names.delete().where(schema.held_names.c.held == held.id))


LOST_NAMES = schema.held_names.delete().where(schema.held_names.c.is_subject == 1)


@pytest.mark.parametrize(
    ("asked", "lost", "told"),
    [
        ({"records": ["r0"]}, schema.records.delete(), "reconcile"),
        ({"subjects": ["p0"]}, schema.records.delete(), "reconcile"),
        ({"records": ["r0"], "subjects": ["p1"]}, LOST_NAMES, "held_names"),
    ],
)
def test_what_the_ledger_has_lost_stops_the_approval(run, asked, lost, told):
    """A record is found in the slices by its token."""
    held = ask(run, **asked)
    change(run, lost)
    with pytest.raises(IntegrityError, match=told):
        run.approvals.approve(held.id, by="ops")


@pytest.mark.parametrize("damaged", ["held", "held_names"])
def test_one_that_fails_keeps_no_other_and_no_opening_from_going_on(run, damaged, caplog):
    every = [ask(run, subjects=[f"p{number}"]) for number in range(3)]
    approved_and_killed(run, *every)
    fails = sorted(every, key=lambda held: held.id)[0]
    goes_on = [held for held in every if held is not fails]
    if damaged == "held_names":
        lose_names(run, fails)
    else:
        change(run, schema.held.update().where(schema.held.c.id == fails.id).values(names=7))
    run.close()
    with s3t.Run.open(run.path) as again:
        assert [again.approvals.find(held.id).state for held in goes_on] == ["done"] * 2
        (warning,) = [line for line in again.status().warnings if fails.id in line]
        assert "it is tried again: " in warning
        assert fails.id in caplog.text
        with pytest.raises(IntegrityError):
            again.approvals.approve(fails.id, by="ops")


def test_a_key_that_was_used_since_names_its_deletion_or_with_other_names_can_only_be_refused(run):
    done, held = ask(run, subjects=["p0"], key="done"), ask(run, subjects=["p2"], key="ticket")
    generation = run.delete(subjects=["p0"], key="done").generation
    assert run.approvals.approve(done.id, by="ops").deletion == generation
    run.delete(subjects=["p1"], key="ticket")
    assert run.approvals.impact(held).deleted == 3  # shown all the same
    with pytest.raises(DecidedError, match="used for other names since"):
        run.approvals.approve(held.id, by="ops")
    assert run.approvals.refuse(held.id, by="ops", reason="key taken").state == "refused"


def test_a_repeated_request_counts_once_and_other_names_with_its_key_beside_it(run):
    limits = Limits(records=3, share=None)
    for _ in range(4):  # a client repeats what was answered with 503
        assert ask(run, subjects=["p0"], key="ticket", limits=limits) is None  # three records; not carried out yet
    assert ask(run, records=["r1"], key="ticket", limits=limits).why.startswith("1 record, 3 by this caller")
    for key in ("another", None):
        assert ask(run, records=["r2"], key=key, limits=limits).state == "held"


def test_as_many_as_may_wait_are_held_for_each_caller(run, monkeypatch):
    monkeypatch.setattr(approvals, "MOST_WAITING", 2)
    first, _ = ask(run, records=["r0"]), ask(run, records=["r1"])
    with pytest.raises(TooManyHeldError, match="2 of this caller wait for approval"):
        ask(run, records=["r2"])
    assert ask(run, records=["r0"]).id == first.id  # asked again, it is the same
    assert ask(run, records=["r2"], caller="another").state == "held"
    run.approvals.refuse(first.id, by="ops", reason="no such ticket")
    assert ask(run, records=["r2"]).state == "held"


def test_what_another_request_has_deleted_meanwhile_ends_it_and_its_key_is_free_again(run):
    first = ask(run, records=["r3"], key="ticket")
    run.delete(records=["r3"])
    done = run.approvals.approve(first.id, by="ops")
    assert (done.state, done.deletion) == ("done", None)
    second = ask(run, records=["r4"], key="ticket")
    assert ask(run, records=["r4"], key="ticket").id == second.id
    assert len(run.approvals.all()) == 2
