"""A backup that is put back, whole or in part: recognised, refused, reconciled with no trace of what was deleted."""

import shutil

import pytest

import s3t
from s3t.deletion.witness import Witness
from s3t.ledger import Transaction
from s3t.ledger.presence import Presence
from testing import tiny
from testing.roles import roles

pytestmark = pytest.mark.integration

GONE = ["r3", "r4"]


@pytest.fixture
def later(trained, tmp_path):
    """A run that has deleted and repaired since a backup of its folder was made; closed."""
    with s3t.Run.open(trained.path) as other:
        other.delete(records=["r5"])
    trained.close()
    shutil.copytree(trained.path, tmp_path / "backup")
    with s3t.Run.open(trained.path) as run:
        for record in GONE:
            run.delete(records=[record])
        run.repair()
    return trained.path


@pytest.fixture
def never_knew(text_model, tmp_path):
    """The artifacts of a run without the deleted records."""
    table = tiny.text_table()
    left = table[~table.id.isin([*GONE, "r5"])]
    with s3t.Run.create(tmp_path / "never-knew", recipe=tiny.recipe(text_model), data=left) as run:
        run.train()
    return tiny.artifacts(run.path)


def put_back(run, *names):
    """Put parts of the backup into the run's folder."""
    for name in names:
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink(missing_ok=True)
        source = run.parent / "backup" / name
        if source.exists():
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, run / name)


def texts_of(records):
    table = tiny.text_table()
    return [text.encode() for text in table[table.id.isin(records)].text if len(text.split()) > 2]


def assert_reconciled(path, never_knew):
    """Nothing of the deleted is there, and after repair the run is the one that never knew them."""
    found = s3t.Run.reconcile(path)
    for content in tiny.all_files(path).values():
        assert not any(text in content for text in texts_of(GONE))
    with s3t.Run.open(path) as run:
        assert run.delete(records=GONE, subjects=[]).already == tuple(GONE)
        assert run.status().records == 24 - 3
        assert run.audit().ok
        run.predict(["w1 w2"])
        run.repair()
        assert run.audit(replay=2).ok
    assert tiny.artifacts(path) == never_knew
    return found


LEDGER = ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm")
FOLDER = ("slices", "artifacts", "run.json", "recipe.yaml", "secret")


@pytest.mark.parametrize("parts", [(*FOLDER, *LEDGER), LEDGER, FOLDER, ("slices",)], ids=str)
def test_a_backup_that_is_put_back_is_refused_until_it_is_reconciled(parts, later, never_knew):
    put_back(later, *parts)
    for _ in range(2):
        with pytest.raises(s3t.RestoredError, match="s3t reconcile"):
            s3t.Run.open(later)
    assert_reconciled(later, never_knew)


@pytest.mark.parametrize("read", [False, True], ids=["not read", "read by another thread"])
def test_an_open_run_notices_that_its_ledger_went_back(later, monkeypatch, read):
    monkeypatch.setattr(Presence, "do_meanwhile", lambda presence: None)
    with s3t.Run.open(later) as run:
        run.predict(["w1"])
        with roles(run).presence._looking:  # no thread of the run may open the ledger while half of it is there
            roles(run).ledger.engine.dispose()
            roles(run).ledger._latest = roles(run).ledger._seen = None
            for name in LEDGER:  # into the same files: another file in their place is refused as such
                source = later.parent / "backup" / name
                if source.exists():
                    (later / name).write_bytes(source.read_bytes())
                else:
                    (later / name).unlink(missing_ok=True)
        if read:  # as a heartbeat does
            roles(run).presence.look()
        with pytest.raises(s3t.RestoredError, match="went back"):
            run.predict(["w1"])
        with pytest.raises(s3t.RestoredError, match="went back"):
            run.delete(records=["r7"])


def test_a_witness_that_was_lost_or_torn_is_written_again_from_the_ledger(later, state):
    (path,) = state.iterdir()
    whole, witness = path.read_bytes(), Witness(path)
    before = witness.newest(), witness.tokens()
    for spoil in (path.unlink, lambda: path.write_bytes(whole[:-20])):
        spoil()
        s3t.Run.open(later).close()
        assert (Witness(path).newest(), Witness(path).tokens()) == before


def test_without_the_witness_the_backup_would_serve(later, monkeypatch, tmp_path):
    """Planted: the record is back, which is what the witness is for."""
    put_back(later, *FOLDER, *LEDGER)
    monkeypatch.setenv("S3T_STATE", str(tmp_path / "elsewhere"))
    with s3t.Run.open(later) as run:
        assert run.locate(records=["r3"])[0].present


def test_reconciling_that_was_cut_short_after_a_slice_was_rewritten_goes_on(later, never_knew, monkeypatch):
    put_back(later, *LEDGER, *FOLDER)
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "supersede", lambda *_, **__: (_ for _ in ()).throw(s3t.StorageError("full")))
        with pytest.raises(s3t.StorageError, match="full"):
            s3t.Run.reconcile(later)
    assert_reconciled(later, never_knew)
