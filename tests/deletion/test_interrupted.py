"""What goes wrong halfway, comes in two parts, or is asked for again: each was once a way to lose a deletion."""

from pathlib import Path
from unittest.mock import patch

import pytest

import s3t
from s3t.core import Place
from s3t.deletion.protocol import Eraser
from s3t.ledger import Clone, Transaction
from s3t.ledger.ledger import Ledger
from s3t.store.artifacts import Artifacts
from s3t.store.disk import temporary_name
from s3t.store.slices import Slices
from testing import tiny
from testing.roles import roles
from tests.deletion.runs import full_disk, killed, states, states_of
from tests.run.worlds import SMALL, trained_run
from tests.slice_files import slice_path

ONE, OTHER = Place(0, 0), Place(0, 1)


@pytest.mark.parametrize("how", ["on a full disk", "before erasing, and in reconciling"])
def test_two_deletions_of_one_slice_that_were_cut_short_are_both_erased_later(run, records, how):
    """The slice's file is the first one's by then, and the ledger knows the one before."""
    first, second = records[ONE][:2]
    stopped = patch.object(Slices, "put", full_disk)
    if how != "on a full disk":
        stopped = patch.object(Eraser, "erase", killed)
    for stop, record in ((patch.object(Transaction, "supersede", killed), first), (stopped, second)):
        with stop, pytest.raises(s3t.StorageError):
            run.delete(records=[record])
    assert "erased" not in states(run)
    run.close()
    if how != "on a full disk":
        with patch.object(Slices, "put", killed), pytest.raises(s3t.StorageError, match="killed"):
            s3t.Run.reconcile(run.path)
    with s3t.Run.open(run.path) as opened:
        assert opened.erase().unfinished == ()
    assert states_of(run.path, first, second) == ["erased", "erased"]


def test_a_secret_that_was_being_overwritten_counts_as_destroyed(trained):
    """The ledger says that it is destroyed; then its overwriting was cut short, or its removal."""
    content, before = (trained.path / "secret").read_bytes(), trained.predict(["w1 w30"])
    with patch("s3t.store.secret.remove_durably", full_disk), pytest.raises(s3t.StorageError):
        trained.destroy_key()
    trained.close()
    for overwritten in (len(content), 8):
        (trained.path / "secret").write_bytes(bytes(overwritten) + content[overwritten:])
        with s3t.Run.open(trained.path) as run:
            assert run.predict(["w1 w30"]).predicted == before.predicted
            with pytest.raises(s3t.KeyDestroyedError):
                run.delete(records=["r3"])
            run.destroy_key()
        assert not (trained.path / "secret").exists()


def test_an_acceptance_is_told_although_the_log_cannot_be_written_back(run, monkeypatch):
    monkeypatch.setattr("s3t.ledger.ledger._LONG_LOG_BYTES", 0)
    roles(run).ledger._long_log = 0

    def refuse(mode):
        if mode == "PASSIVE":
            raise s3t.StorageError("the ledger refused; nothing was changed")
        return True

    with patch.object(Ledger, "_checkpoint", side_effect=refuse) as tried:
        assert run.delete(records=["r3"]).state == "erased"
    tried.assert_any_call("PASSIVE")


@pytest.mark.parametrize(
    ("where", "name", "does"),
    [(Ledger, "wipe", lambda _ledger: False), (Eraser, "_refuse_clones", killed)],
    ids=["ledger", "clones"],
)
def test_a_second_walk_that_fails_behind_the_slices_is_made_again(patient, where, name, does, monkeypatch):
    """The first one, which left the slice for later, went through every place."""
    monkeypatch.setattr(roles(patient).upkeep, "erase_due", lambda: None)  # else it may erase as another opens
    patient.delete(records=["r3"])
    assert states(patient) == ["effective"]
    with patch.object(where, name, does):
        with pytest.raises(s3t.StorageError):
            patient.erase()
        with s3t.Run.open(patient.path) as other:
            assert states(patient) == states(other) == ["effective"]
            assert other.status().warnings
    with patch.object(Ledger, "wipe", return_value=True) as wiped, s3t.Run.open(patient.path) as other:
        assert states(other) == ["erased"]
    assert wiped.called


@pytest.mark.integration
def test_a_damaged_slice_holds_up_no_other_and_all_that_is_refused_is_told(patient, records):
    patient.delete(records=[records[ONE][0], records[OTHER][0]])
    paths = {place: slice_path(patient.path / "slices", place) for place in (ONE, OTHER)}
    kept = {path: path.read_bytes() for path in paths.values()}
    for path in kept:
        path.write_bytes(b"torn")
    with pytest.raises(s3t.IntegrityError, match=r"slice 0 of shard 0.*slice 1 of shard 0"):
        patient.erase()
    paths[ONE].write_bytes(kept[paths[ONE]])
    with pytest.raises(s3t.IntegrityError, match=r"slice 1 of shard 0"):
        patient.erase()
    assert pending(patient) == {OTHER}
    assert states(patient) == ["effective"]
    paths[OTHER].write_bytes(kept[paths[OTHER]])
    assert patient.erase().unfinished == ()
    assert patient.audit().ok


def pending(run):
    return {place for place, state in roles(run).ledger.snapshot().slices.items() if state.pending}


@pytest.mark.integration
def test_who_erases_does_not_leave_the_deletion_waiting_for_its_own_session(text_model, tmp_path, monkeypatch):
    """Its thread, which looks several times a second, may not have looked yet."""
    monkeypatch.setattr("s3t.ledger.presence.POLL_SECONDS", 3600.0)
    with trained_run(tmp_path / "run", tiny.recipe(text_model, **SMALL), tiny.text_table()) as run:
        with s3t.Run.open(run.path) as other:
            roles(other).deleter.patience = 0.0
            other.delete(records=["r3"])
        assert states(run) == ["effective"]
        run.erase()
        assert states(run) == ["erased"]


@pytest.mark.integration
def test_what_was_put_and_never_committed_is_taken_away(trained):
    trained.delete(records=["r3"])
    held, put = roles(trained).store.keys(), Artifacts.put

    def put_and_fail(self, *args):
        put(self, *args)
        raise OSError(5, "the connection is lost")

    with patch.object(Artifacts, "put", put_and_fail), pytest.raises(s3t.StorageError, match="connection is lost"):
        trained.repair()
    trained.erase()
    assert roles(trained).store.keys() == held
    trained.repair()
    assert trained.audit().ok


@pytest.mark.integration
def test_who_only_serves_drops_a_slice_before_the_deletion_is_effective(text_model, tmp_path):
    """Its file is rewritten an hour later."""
    recipe = tiny.recipe(text_model, deletion={"erase_within": 3600}, **SMALL)
    with trained_run(tmp_path / "run", recipe, tiny.text_table()) as run:
        with s3t.Run.open(run.path) as other:
            assert other.delete(records=["r3"]).state == "effective"
        held = roles(run).loaded.get().material.held
        assert held
        assert pending(run)
        assert not pending(run) & held


@pytest.mark.integration
def test_a_clone_that_another_host_was_making_is_waited_for_until_somebody_says_that_it_is_gone(run):
    with roles(run).ledger.writing() as transaction:
        transaction.rows.add(Clone(path=Path("/not/here/.copy.init-a"), host="another-host", beside="1 2"))
    with pytest.raises(s3t.StorageError, match=r"another-host was making a clone.*--clones-are-gone"):
        run.delete(records=["r3"])
    with pytest.raises(s3t.StorageError, match="another-host"):
        run.erase()
    assert states(run) == ["effective"]
    assert any("another-host" in warning for warning in run.status().warnings)
    assert run.erase(clones_are_gone=True).unfinished == ()
    assert states(run) == ["erased"]


@pytest.mark.integration
@pytest.mark.parametrize("age", ["before a reboot", "a process that is gone"])
def test_an_opening_removes_what_a_killed_init_left_beside_the_run(folder, age):
    name = temporary_name(4194305)
    if age == "before a reboot":
        host, _, rest = name.rsplit("_", 2)
        name = f"{host}_0123456789ab_{rest}"
    left = folder.with_name(f".run.init-{name}")
    (left / "slices").mkdir(parents=True)
    (left / "slices" / "slice-000.parquet").write_bytes(b"records")
    with s3t.Run.open(folder):
        assert not left.exists()
