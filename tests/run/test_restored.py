"""A backup that is put back, whole or in part: recognised, refused, reconciled with no trace of what was deleted."""

import shutil

import pytest

import s3t
from s3t.deletion.witness import Witness
from s3t.ledger import Transaction
from s3t.ledger.presence import Presence
from testing import tiny
from testing.roles import roles
from tests.slice_files import slice_path

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
        if (run / name).is_dir():
            shutil.rmtree(run / name)
        elif (run / name).exists():
            (run / name).unlink()
        source = run.parent / "backup" / name
        if source.is_dir():
            shutil.copytree(source, run / name)
        elif source.exists():
            shutil.copy2(source, run / name)


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


def test_a_slice_file_that_is_put_back_alone_is_refused_until_it_is_reconciled(later, never_knew):
    with s3t.Run.open(later) as run:
        places = {run.locate(records=[record])[0].deleted.generation for record in GONE}
        assert len(places) == 2
    from s3t.core import Place, Secret, place_of

    place = place_of("r3", None, secret=Secret(salt=tiny.SALT), shards=2, slices=3)
    current, older = (slice_path(folder / "slices", Place(*place)) for folder in (later, later.parent / "backup"))
    shutil.copy2(older, current.with_name(older.name))
    current.unlink()
    with pytest.raises(s3t.RestoredError, match=r"parquet is not the version of the slice that its ledger names"):
        s3t.Run.open(later)
    assert_reconciled(later, never_knew)


def test_an_older_version_that_is_put_back_beside_the_current_one_is_swept(later):
    from s3t.core import Place, Secret, place_of
    from tests.slice_files import versions_of

    place = Place(*place_of("r3", None, secret=Secret(salt=tiny.SALT), shards=2, slices=3))
    current, older = (slice_path(folder / "slices", place) for folder in (later, later.parent / "backup"))
    shutil.copy2(older, current.with_name(older.name))
    with s3t.Run.open(later) as run:
        assert versions_of(later / "slices", place) == [current]
        assert run.audit().ok


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


def test_what_was_changed_and_not_by_a_deletion_is_no_backup(later):
    with s3t.Run.open(later) as run:
        place = next(iter(roles(run).ledger.snapshot().slices))
        from tests.slice_files import read_slice

        path = slice_path(later / "slices", place)
        content = read_slice(later / "slices", place, roles(run).secret).rows
        changed = content.set_column(content.column_names.index("text"), "text", [["w7"] * content.num_rows])
        roles(run).slices.put(place, changed)
    path.unlink()
    before = tiny.all_files(later / "slices")
    with pytest.raises(s3t.IntegrityError, match="holds the right ids, but other records"):
        s3t.Run.reconcile(later)
    assert tiny.all_files(later / "slices") == before


def test_reconciling_what_is_in_order_changes_nothing(later, never_knew):
    with s3t.Run.open(later) as run:
        before = run.status().to_json()
    found = s3t.Run.reconcile(later)
    assert (found.records, found.slices, found.stages_lost) == (0, (), 0)
    assert tiny.artifacts(later) == never_knew
    with s3t.Run.open(later) as run:
        assert run.status().to_json() == before


def test_a_copy_with_a_memory_of_its_own_is_another_run(later, monkeypatch, tmp_path):
    with pytest.raises(s3t.RestoredError, match="clone --adopt"):
        s3t.Run.open(tmp_path / "backup")
    monkeypatch.setenv("S3T_STATE", str(tmp_path / "for copies"))
    with s3t.Run.open(tmp_path / "backup") as run:
        assert run.status().generation == 1


def test_a_witness_that_was_lost_is_written_again_from_the_ledger(later, state):
    (path,) = state.iterdir()
    witness = Witness(path)
    before = witness.newest(), witness.tokens()
    path.unlink()
    s3t.Run.open(later).close()
    assert (witness.newest(), witness.tokens()) == before


def test_a_torn_line_of_the_witness_is_noted_again(later, state):
    (witness,) = state.iterdir()
    before = witness.read_bytes()
    witness.write_bytes(before[:-20])
    assert Witness(witness).newest() == 2
    s3t.Run.open(later).close()
    assert Witness(witness).newest() == 3
    assert len(Witness(witness).tokens()) == 3


def test_the_witness_holds_tokens_alone_and_is_private(later, state):
    (witness,) = state.iterdir()
    assert witness.stat().st_mode & 0o777 == 0o600
    for record in [*GONE, "r5"]:
        assert f'"{record}"'.encode() not in witness.read_bytes()


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
