"""An erasure that is refused, or that comes in two parts, is no erasure until every place was gone through."""

import threading
from pathlib import Path

import pytest

import s3t
from s3t.core import Place
from s3t.deletion.protocol import Eraser
from s3t.ledger import Clone
from s3t.ledger.ledger import Ledger
from s3t.ledger.locks import hold
from s3t.store.artifacts import Artifacts
from s3t.store.disk import temporary_name
from testing import tiny
from testing.roles import roles
from tests.run.worlds import records_by_slice
from tests.slice_files import slice_path

pytestmark = pytest.mark.integration


def fails(*_args, **_kwargs):
    raise OSError(28, "No space left on device")


def refuses(*_args, **_kwargs):
    raise s3t.StorageError("somebody holds it", remedy="wait")


def states(run):
    return [entry.state for entry in run.log()]


@pytest.fixture
def patient(text_model, tmp_path):
    """A run whose slices may be rewritten an hour after a deletion."""
    recipe = tiny.recipe(text_model, deletion={"erase_within": 3600})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
        yield run


@pytest.mark.parametrize("step", ["ledger", "clones"])
def test_a_second_walk_that_fails_behind_the_slices_is_made_again(patient, step, monkeypatch):
    """The first one, which left the slice for later, went through every place."""
    monkeypatch.setattr(roles(patient).upkeep, "erase_due", lambda: None)  # else it may erase as another opens
    patient.delete(records=["r3"])
    assert states(patient) == ["erased", "effective"]
    where, name, does = {
        "ledger": (Ledger, "wipe", lambda self: False),
        "clones": (Eraser, "_refuse_clones", refuses),
    }[step]
    with monkeypatch.context() as patched:
        patched.setattr(where, name, does)
        with pytest.raises(s3t.StorageError):
            patient.erase()
        assert states(patient) == ["erased", "effective"]
        with s3t.Run.open(patient.path) as other:
            assert states(other) == ["erased", "effective"]
    gone_through = []
    wipe = Ledger.wipe
    monkeypatch.setattr(Ledger, "wipe", lambda self: gone_through.append(self) or wipe(self))
    with s3t.Run.open(patient.path) as other:
        assert states(other) == ["erased", "erased"]
    assert gone_through


def test_a_damaged_slice_holds_up_no_other(patient, text_model):
    slices = records_by_slice(tiny.recipe(text_model), tiny.text_table())
    whole, damaged = (Place(*at) for at in [(0, 0), (0, 1)])
    patient.delete(records=[slices[0, 0][0], slices[0, 1][0]])
    path = slice_path(patient.path / "slices", damaged)
    kept = path.read_bytes()
    path.write_bytes(slice_path(patient.path / "slices", Place(1, 0)).read_bytes())
    with pytest.raises(s3t.IntegrityError, match="slice 1 of shard 0 is not the one that the ledger knows"):
        patient.erase()
    pending = {place for place, state in roles(patient).ledger.snapshot().slices.items() if state.pending}
    assert pending == {damaged}
    assert states(patient) == ["erased", "effective"]
    assert whole not in pending
    path.write_bytes(kept)
    assert patient.erase().unfinished == ()
    assert patient.audit().ok


def test_all_that_is_refused_is_told(patient, text_model):
    slices = records_by_slice(tiny.recipe(text_model), tiny.text_table())
    patient.delete(records=[slices[0, 0][0], slices[0, 1][0]])
    for index in (0, 1):
        slice_path(patient.path / "slices", Place(0, index)).write_bytes(b"torn")
    with pytest.raises(s3t.IntegrityError, match=r"slice 0 of shard 0.*slice 1 of shard 0"):
        patient.erase()


def test_nothing_is_erased_before_the_witness_has_it(trained, monkeypatch):
    """Else a backup from before would not be recognised. It is asked for once more with the same key."""
    with monkeypatch.context() as patched:
        patched.setattr("s3t.deletion.witness.append_durably", fails)
        with pytest.raises(s3t.StorageError, match="out of use already"):
            trained.delete(records=["r3"], key="ticket")
        with pytest.raises(s3t.StorageError, match="out of use already"):
            trained.delete(records=["r3"], key="ticket")
        assert "erased" not in states(trained)[1:]
        trained.predict(["w1"])
        assert "erased" not in states(trained)[1:]
    assert trained.delete(records=["r3"], key="ticket").repeated
    assert states(trained) == ["erased", "erased"]
    assert roles(trained).witness.newest() == 1


def test_who_finishes_another_s_deletion_notes_it_first(trained, monkeypatch):
    """The other was killed between acceptance and its note."""
    with s3t.Run.open(trained.path) as killed, monkeypatch.context() as patched:
        patched.setattr("s3t.deletion.witness.append_durably", fails)
        with pytest.raises(s3t.StorageError):
            killed.delete(records=["r3"])
    trained.erase()  # or the thread that erases meanwhile, which is waited for
    assert states(trained) == ["erased", "erased"]
    assert roles(trained).witness.newest() == 1


def test_who_erases_does_not_leave_the_deletion_waiting_for_its_own_session(text_model, tmp_path, monkeypatch):
    """Its thread, which looks several times a second, may not have looked yet."""
    monkeypatch.setattr("s3t.ledger.presence.POLL_SECONDS", 3600.0)
    with s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=tiny.text_table()) as run:
        run.train()
        with s3t.Run.open(run.path) as other:
            roles(other).deleter.patience = 0.0
            other.delete(records=["r3"])
        assert states(run) == ["erased", "effective"]
        run.erase()
        assert states(run) == ["erased", "erased"]


def test_a_deletion_waits_only_so_long_for_who_is_erasing(trained):
    """It may be stopped, or hang. The deletion is accepted all the same, and erased later."""
    roles(trained).deleter.patience = 0.3
    holding, done = threading.Event(), threading.Event()

    def erase_slowly():
        with hold(roles(trained).ledger.lock(trained.path / "lock")):
            holding.set()
            done.wait(60)

    holder = threading.Thread(target=erase_slowly)
    holder.start()
    holding.wait(60)
    try:
        assert trained.delete(records=["r3"]).state == "effective"
        assert trained.predict(["w1"]).generation == 1
    finally:
        done.set()
        holder.join()
    assert trained.erase().unfinished == ()
    assert states(trained) == ["erased", "erased"]


def test_what_was_put_and_never_committed_is_taken_away(trained, monkeypatch):
    trained.delete(records=["r3"])
    held, put = roles(trained).store.keys(), Artifacts.put

    def put_and_fail(self, *args):
        put(self, *args)
        raise OSError(5, "the connection is lost")

    with monkeypatch.context() as patched:
        patched.setattr(Artifacts, "put", put_and_fail)
        with pytest.raises(s3t.StorageError, match="connection is lost"):
            trained.repair()
    trained.erase()
    assert roles(trained).store.keys() == held
    trained.repair()
    assert trained.audit().ok


def test_who_only_serves_drops_a_slice_before_the_deletion_is_effective(patient, text_model):
    """Its file is rewritten an hour later."""
    with s3t.Run.open(patient.path) as other:
        assert other.delete(records=["r3"]).state == "effective"
    held = roles(patient).loaded.get().material.held
    assert held
    pending = {place for place, state in roles(patient).ledger.snapshot().slices.items() if state.pending}
    assert pending
    assert not pending & held


def test_a_clone_that_another_host_was_making_is_waited_for_until_somebody_says_that_it_is_gone(trained):
    with roles(trained).ledger.writing() as transaction:
        transaction.rows.add(Clone(path=Path("/not/here/.copy.init-a"), host="another-host", beside="1 2"))
    with pytest.raises(s3t.StorageError, match=r"another-host was making a clone.*--clones-are-gone"):
        trained.delete(records=["r3"])
    with pytest.raises(s3t.StorageError, match="another-host"):
        trained.erase()
    assert states(trained) == ["erased", "effective"]
    assert any("another-host" in warning for warning in trained.status().warnings)
    assert trained.erase(clones_are_gone=True).unfinished == ()
    assert states(trained) == ["erased", "erased"]


@pytest.mark.parametrize("age", ["before a reboot", "a process that is gone"])
def test_an_opening_removes_what_a_killed_init_left_beside_the_run(trained, age):
    name = temporary_name(4194305)
    if age == "before a reboot":
        host, _, rest = name.rsplit("_", 2)
        name = f"{host}_0123456789ab_{rest}"
    left = trained.path.with_name(f".run.init-{name}")
    (left / "slices").mkdir(parents=True)
    (left / "slices" / "slice-000.parquet").write_bytes(b"records")
    with s3t.Run.open(trained.path):
        assert not left.exists()


def test_a_secret_that_was_half_destroyed_keeps_nobody_from_answering(trained):
    """The ledger says that it is destroyed; then its overwriting was cut short."""
    content = (trained.path / "secret").read_bytes()
    before = trained.predict(["w1 w30"])
    trained.destroy_key()
    trained.close()
    (trained.path / "secret").write_bytes(b"\0" * 8 + content[8:])
    with s3t.Run.open(trained.path) as run:
        assert run.predict(["w1 w30"]).predicted == before.predicted
        run.destroy_key()
        assert not (run.path / "secret").exists()
