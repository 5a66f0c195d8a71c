"""What goes wrong halfway, and is asked for again: each was once a way to lose a deletion."""

import shutil
import time
from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest

import s3t
from s3t.deletion.protocol import Eraser
from s3t.ledger import Transaction
from s3t.store.disk import temporary_name
from s3t.store.slices import Slices
from testing import tiny
from testing.roles import roles
from tests.run.worlds import records_by_slice
from tests.slice_files import read_slice


def fails(*_args, **_kwargs):
    raise OSError(28, "No space left on device")


def refuses(*_args, **_kwargs):
    raise s3t.StorageError("somebody holds it", remedy="wait")


def states(run):
    return [entry.state for entry in run.log()]


def test_a_place_that_could_not_be_gone_through_is_no_erasure_and_is_tried_again(trained, monkeypatch):
    """Clones come after the slices, which are rewritten by then."""
    monkeypatch.setattr(roles(trained).upkeep, "erase_due", lambda: None)  # else it may erase as another opens
    with monkeypatch.context() as patched:
        patched.setattr(Eraser, "_refuse_clones", refuses)
        with pytest.raises(s3t.StorageError, match="out of use already"):
            trained.delete(records=["r3"])
        assert states(trained) == ["erased", "effective"]
        with s3t.Run.open(trained.path) as other:
            assert states(other) == ["erased", "effective"]
            assert other.status().warnings
    with s3t.Run.open(trained.path) as other:
        assert states(other) == ["erased", "erased"]


def test_a_log_that_somebody_reads_is_emptied_before_anything_is_called_erased(trained, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(type(roles(trained).ledger), "wipe", lambda self: False)
        assert trained.delete(records=["r3"]).state == "effective"
        assert states(trained) == ["erased", "effective"]
        with pytest.raises(s3t.StorageError, match="a reader still uses them"):
            trained.erase()
    assert trained.erase().unfinished == ()
    assert states(trained) == ["erased", "erased"]


def killed(*_args, **_kwargs):
    raise s3t.StorageError("killed")


def test_two_deletions_of_one_slice_on_a_full_disk_are_both_erased_later(trained, text_model, monkeypatch):
    """The slice's file is the first one's by then, and the ledger knows the one before."""
    table, recipe = tiny.text_table(), tiny.recipe(text_model)
    first, second = records_by_slice(recipe, table)[0, 0][:2]
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "supersede", killed)
        with pytest.raises(s3t.StorageError):
            trained.delete(records=[first])
    with monkeypatch.context() as patched:
        patched.setattr(Slices, "put", fails)
        with pytest.raises(s3t.StorageError):
            trained.delete(records=[second])
    assert states(trained)[1:] == ["effective", "effective"]
    assert trained.erase().unfinished == ()
    assert trained.audit().ok
    trained.repair()


def test_two_crashes_in_one_slice_the_second_in_reconciling_lose_nothing(trained, text_model, monkeypatch):
    """The file is the one that the first was to leave, when the second begins to rewrite it."""
    trained.close()
    first, second = records_by_slice(tiny.recipe(text_model), tiny.text_table())[0, 0][:2]

    with s3t.Run.open(trained.path) as run:
        stops = ("s3t.ledger.Transaction.supersede", first), ("s3t.deletion.protocol.Eraser.erase", second)
        for stop, record in stops:
            with monkeypatch.context() as patched:
                patched.setattr(stop, killed)
                with pytest.raises(s3t.StorageError, match="killed"):
                    run.delete(records=[record])
    with monkeypatch.context() as patched:
        patched.setattr(Slices, "put", killed)
        with pytest.raises(s3t.StorageError, match="killed"):
            s3t.Run.reconcile(trained.path)
    with s3t.Run.open(trained.path) as run:
        assert run.erase().unfinished == ()
        assert [found.state for found in run.locate(records=[first, second])] == ["erased", "erased"]
        assert run.audit().ok


def test_whatever_lies_in_the_folder_of_temporary_files_goes_with_a_deletion(trained):
    left = trained.path / "tmp" / f"another_host-{temporary_name(1)}"
    left.write_bytes(b"half a slice")
    trained.delete(records=["r3"])
    assert not left.exists()


@pytest.mark.integration
def test_reconciling_that_was_cut_short_goes_on(trained, tmp_path, monkeypatch):
    trained.close()
    shutil.copytree(trained.path, tmp_path / "backup")
    with s3t.Run.open(trained.path) as run:
        run.delete(records=["r3"])
    for parts in (("ledger.sqlite",), ("slices", "ledger.sqlite")):
        for name in parts:
            path, source = trained.path / name, tmp_path / "backup" / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            if source.exists():
                shutil.copytree(source, path) if source.is_dir() else shutil.copy2(source, path)
        for where, name in ((Slices, "put"), (Eraser, "erase")):
            with monkeypatch.context() as patched:
                patched.setattr(where, name, fails)
                with suppress(s3t.StorageError, OSError):  # where there is nothing to rewrite, it goes through
                    s3t.Run.reconcile(trained.path)
        s3t.Run.reconcile(trained.path)
        with s3t.Run.open(trained.path) as run:
            assert run.locate(records=["r3"])[0].state == "erased"
            assert run.audit().ok


@pytest.mark.integration
def test_another_deletion_of_the_same_number_is_no_proof_that_nothing_is_missing(trained, tmp_path, monkeypatch):
    """Who put the backup back, and deleted something else, had another memory."""
    trained.close()
    shutil.copytree(trained.path, tmp_path / "backup")
    with s3t.Run.open(trained.path) as run:
        run.delete(records=["r3"])
    shutil.rmtree(trained.path)
    shutil.copytree(tmp_path / "backup", trained.path)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("S3T_STATE", str(tmp_path / "of somebody else"))
        with s3t.Run.open(trained.path) as run:
            run.delete(records=["r4"])
    with pytest.raises(s3t.RestoredError, match="another deletion"):
        s3t.Run.open(trained.path)
    assert s3t.Run.reconcile(trained.path).records == 1
    with s3t.Run.open(trained.path) as run:
        assert [found.state for found in run.locate(records=["r3", "r4"])] == ["erased", "erased"]
        assert run.audit().ok


def test_the_key_is_not_destroyed_over_a_deletion_that_is_accepted_meanwhile(trained, monkeypatch):
    finish, raced = Eraser.finish, []

    def with_a_race(self, **how):
        finish(self, **how)
        if how.get("everything") and not raced:  # and not the thread that keeps the time
            raced.append(True)
            with s3t.Run.open(trained.path) as other:
                roles(other).deleter._accept(next(request(other).batches(9)))  # and it dies before anything is erased

    def request(run):
        from s3t.deletion.acceptance import Request

        return Request.of(roles(run).secret, records=["r3"], subjects=[], key=None)

    monkeypatch.setattr(Eraser, "finish", with_a_race)
    trained.destroy_key()
    until = time.monotonic() + 30
    while states(trained)[1] != "erased" and time.monotonic() < until:
        time.sleep(0.05)  # this very run has not moved yet, perhaps
    assert states(trained) == ["erased", "erased"]
    with pytest.raises(s3t.KeyDestroyedError):
        trained.delete(records=["r4"])


def test_a_secret_that_was_being_overwritten_counts_as_destroyed(trained, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("s3t.store.secret.remove_durably", fails)
        with pytest.raises(s3t.StorageError):
            trained.destroy_key()
    with s3t.Run.open(trained.path) as run:
        run.predict(["w1"])
        with pytest.raises(s3t.KeyDestroyedError):
            run.delete(records=["r3"])
        run.destroy_key()
    assert not (trained.path / "secret").exists()


def test_an_acceptance_is_told_although_the_log_cannot_be_written_back(trained, monkeypatch):
    monkeypatch.setattr("s3t.ledger.ledger._LONG_LOG_BYTES", 0)
    roles(trained).ledger._long_log = 0
    monkeypatch.setattr(
        type(roles(trained).ledger), "_checkpoint", lambda self, mode: True if mode == "TRUNCATE" else _refuse()
    )
    assert trained.delete(records=["r3"]).state == "erased"


def _refuse():
    raise s3t.StorageError("the ledger refused; nothing was changed")


def test_a_version_that_another_has_superseded_is_never_current(trained, text_model, monkeypatch):
    """A host that slept, while another took over the run's lock and erased."""
    place = trained.delete(records=["r3"], dry_run=True).slices[0]
    table, recipe = tiny.text_table(), tiny.recipe(text_model)
    other_record = next(name for name in records_by_slice(recipe, table)[place[:2]] if name != "r3")
    put, slept = Slices.put, []

    def sleeping(*args, **kwargs):
        if not slept:
            slept.append(True)
            with s3t.Run.open(trained.path) as other:
                roles(other).deleter._eraser = replace(roles(other).eraser, lock=_Taken())
                other.delete(records=[other_record])
        return put(*args, **kwargs)

    monkeypatch.setattr(
        roles(trained).upkeep, "erase_due", roles(trained).latest.snapshot
    )  # else that thread may be the one that sleeps
    with monkeypatch.context() as patched:
        patched.setattr(Slices, "put", sleeping)
        with pytest.raises(s3t.StorageError, match="superseded by another process"):
            trained.delete(records=["r3"])
    trained.erase()
    names = read_slice(trained.path / "slices", place, roles(trained).secret).rows["record"].to_pylist()
    assert not {"r3", other_record} & set(names)
    assert trained.audit().ok


class _Taken:
    """A lock that is not one."""

    def try_hold(self, *, wait):
        return nullcontext(True)
