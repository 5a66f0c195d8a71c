"""Files of slices that are no memory of deletions: reconciling refuses them, and takes nothing for deleted."""

import shutil
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet
import pytest

import s3t
from s3t.core import Place
from s3t.deletion import reconcile
from testing import tiny
from tests.run.worlds import records_by_slice
from tests.slice_files import slice_path, versions_of

LEDGER = ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm")
ONE, OTHER, THIRD = Place(0, 0), Place(0, 1), Place(1, 2)


@pytest.fixture
def run(trained):
    """The folder of a trained run; nobody has it open."""
    trained.close()
    return trained.path


@pytest.fixture
def records(text_model):
    places = records_by_slice(tiny.recipe(text_model), tiny.text_table())
    return {Place(*place): ids for place, ids in places.items()}


def file_of(run, place):
    return slice_path(run / "slices", place)


def cut(path, *, to):
    rows = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(rows.slice(0, to), path, store_schema=False)


def doubled(path):
    rows = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), path, store_schema=False)


def back_up(run, to):
    shutil.copytree(run, to)
    return to


def put_back(run, backup, *names):
    for name in names:
        path, source = run / name, backup / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if source.exists():
            shutil.copytree(source, path) if source.is_dir() else shutil.copy2(source, path)


def told(run):
    """What reconciling says that is wrong; it has changed nothing."""
    before, ledger = tiny.all_files(run), what_the_ledger_says(run)
    with pytest.raises(s3t.IntegrityError) as raised:
        s3t.Run.reconcile(run)
    assert what_the_ledger_says(run) == ledger
    after = tiny.all_files(run)
    assert {name: after[name] for name in after if name not in LEDGER} == {
        name: before[name] for name in before if name not in LEDGER
    }
    first, *problems = str(raised.value).split("\n  - ")
    assert first == (
        f"{run} holds files of slices that no deletion explains; nothing was changed. Put the right ones back from a "
        f"backup, then run `s3t reconcile {run}` again:"
    )
    return problems


def what_the_ledger_says(run):
    from s3t.ledger import Ledger

    ledger = Ledger.open(run / "ledger.sqlite")
    with ledger.reading() as transaction:
        snapshot = transaction.snapshot()
        rows = {place: sorted(row.token for row in transaction.records_in(place)) for place in snapshot.slices}
        found = snapshot, transaction.history.log(), transaction.to_erase(), rows
    ledger.close()
    return found


def as_version_of(path, place):
    """The name that a file would have as a version of another slice."""
    digest = path.stem.rpartition("-")[2]
    return path.parent.parent / f"shard-{place.shard:03d}" / f"slice-{place.slice:03d}-{digest}.parquet"


@pytest.mark.integration
def test_another_slices_file_is_no_memory_of_deletions(run, records):
    """Every record of the slice is missing from it: none of them was deleted."""
    path, backup = file_of(run, ONE), file_of(run, ONE).read_bytes()
    wrong = as_version_of(file_of(run, OTHER), ONE)
    shutil.copy2(file_of(run, OTHER), wrong)
    path.unlink()
    [problem] = told(run)
    count = len(records[OTHER])
    assert problem == f"{wrong} holds records that were never in this slice: {count}. Is it the file of another?"
    path.write_bytes(backup)
    wrong.unlink()
    assert s3t.Run.reconcile(run).records == 0
    with s3t.Run.open(run) as opened:
        assert opened.status().records == 24
        assert opened.audit().ok


@pytest.mark.parametrize("left", [0, 1])
def test_a_file_that_is_not_whole_is_no_memory_of_deletions(run, left):
    cut(file_of(run, ONE), to=left)
    [problem] = told(run)
    assert f"{file_of(run, ONE)}: the file of slice 0 of shard 0 is not the one that the ledger knows" in problem


@pytest.mark.integration
def test_a_damaged_file_is_mended_from_an_older_version(run, records, tmp_path):
    """An older one beside it has the same digest once it has lost what was deleted; no stage goes."""
    backup = back_up(run, tmp_path / "backup")
    with s3t.Run.open(run) as opened:
        opened.delete(records=[records[ONE][0]])
        opened.repair()
    file_of(run, ONE).write_bytes(b"no Parquet")
    older = file_of(backup, ONE)
    shutil.copy2(older, file_of(run, ONE).with_name(older.name))
    done = s3t.Run.reconcile(run)
    assert (done.records, done.slices, done.stages_lost) == (0, (ONE,), 0)
    with s3t.Run.open(run) as opened:
        assert opened.audit().ok
        assert opened.status().missing == 0


@pytest.mark.integration
def test_all_files_that_are_wrong_are_told_at_once_and_before_a_deletion_is_made_again(run, records, tmp_path):
    """A backup was put back, and then wrong files."""
    backup = back_up(run, tmp_path / "backup")
    gone = [records[place][0] for place in (ONE, THIRD)]
    with s3t.Run.open(run) as opened:
        opened.delete(records=gone)
    put_back(run, backup, *(path.name for path in run.iterdir() if path.name != "lock"))
    paths = {place: file_of(run, Place(*place)) for place in records}
    paths[ONE].write_bytes(b"no Parquet")
    paths[OTHER].unlink()
    doubled(paths[Place(0, 2)])
    cut(paths[Place(1, 0)], to=0)
    table = pa.table({"when": [datetime.now(UTC)]})
    pyarrow.parquet.write_table(table, paths[Place(1, 1)])
    pyarrow.parquet.write_table(pa.table({"name": ["x"]}), paths[THIRD])
    problems = told(run)
    other = "is not the one that the ledger knows"
    wanted = ["cannot be read", "cannot be read", other, other, "cannot be read", other]
    for place, problem, what in zip(sorted(records), problems, wanted, strict=True):
        assert str(paths[place]) in problem
        assert what in problem
    put_back(run, backup, "slices")
    assert s3t.Run.reconcile(run).records == 2
    with s3t.Run.open(run) as opened:
        assert [found.state for found in opened.locate(records=gone)] == ["erased", "erased"]
        assert opened.audit().ok


@pytest.fixture
def older_ledger(run, records, tmp_path, monkeypatch):
    """The ledger is from before a deletion in a slice, and nobody else remembers that; the backup of the folder."""
    backup = back_up(run, tmp_path / "backup")
    with s3t.Run.open(run) as opened:
        opened.delete(records=[records[ONE][0]])
    put_back(run, backup, *LEDGER)
    monkeypatch.setenv("S3T_STATE", str(tmp_path / "of nobody"))
    return backup


def test_what_a_file_lacks_was_deleted_if_the_folder_is_newer_than_the_ledger(run, records, older_ledger):
    with pytest.raises(s3t.RestoredError):
        s3t.Run.open(run)
    assert s3t.Run.reconcile(run).records == 1
    with s3t.Run.open(run) as opened:
        assert not opened.locate(records=[records[ONE][0]])[0].present
        assert opened.status().records == 23
        assert opened.audit().ok


@pytest.mark.integration
def test_another_slices_file_is_none_even_where_the_ledger_is_the_older_one(run, older_ledger):
    path = file_of(run, ONE)
    shutil.copy2(file_of(run, OTHER), as_version_of(file_of(run, OTHER), ONE))
    path.unlink()
    [problem] = told(run)
    assert "holds records that were never in this slice" in problem


@pytest.mark.integration
def test_another_slices_file_is_none_although_all_of_it_was_deleted_later(run, records, tmp_path):
    """The witness names every record of the file; but they were in the other slice."""
    backup = back_up(run, tmp_path / "backup")
    with s3t.Run.open(run) as opened:
        opened.delete(records=records[OTHER])
    put_back(run, backup, *LEDGER)  # and the folder is the newer
    path, older = file_of(run, ONE), file_of(backup, OTHER)
    shutil.copy2(older, path.with_name(as_version_of(older, ONE).name))
    path.unlink()
    [problem] = told(run)
    assert "holds records that were never in this slice" in problem


def test_an_erasure_that_is_under_way_is_no_older_ledger(run, records, monkeypatch):
    """The next version is there, and not current yet."""
    from s3t.ledger import Transaction

    with monkeypatch.context() as patched, s3t.Run.open(run) as opened:
        patched.setattr(Transaction, "supersede", lambda *_, **__: (_ for _ in ()).throw(s3t.StorageError("killed")))
        with pytest.raises(s3t.StorageError, match="killed"):
            opened.delete(records=[records[ONE][0]])
    assert s3t.Run.reconcile(run).records == 0
    with s3t.Run.open(run) as opened:
        assert [entry.state for entry in opened.log()] == ["erased", "erased"]
        assert opened.status().records == 23
        assert opened.audit().ok


@pytest.mark.integration
def test_a_slices_file_of_monday_a_ledger_of_tuesday_and_a_memory_of_wednesday(run, records, tmp_path):
    """The file has no digest that the ledger knows, nor has what shall become of it."""
    first, second, *_ = max(records.values(), key=len)
    monday = back_up(run, tmp_path / "monday")
    with s3t.Run.open(run) as opened:
        opened.delete(records=[first])
    tuesday = back_up(run, tmp_path / "tuesday")
    with s3t.Run.open(run) as opened:
        opened.delete(records=[second])
    put_back(run, monday, "slices", "artifacts")
    put_back(run, tuesday, *LEDGER)
    assert s3t.Run.reconcile(run).records == 1
    with s3t.Run.open(run) as opened:
        assert [found.state for found in opened.locate(records=[first, second])] == ["erased", "erased"]
        assert opened.status().records == 22
        assert opened.audit().ok


def test_an_older_file_is_reconciled_while_a_deletion_waits_for_its_slice(run, records, tmp_path, monkeypatch):
    """The digest that the ledger knows is of a file that still holds what was deleted last."""
    first, second = records[ONE][:2]
    backup = back_up(run, tmp_path / "backup")
    with s3t.Run.open(run) as opened:
        opened.delete(records=[first])
        with monkeypatch.context() as patched:
            patched.setattr("s3t.deletion.protocol.Eraser.erase", lambda *_, **__: _full())
            with pytest.raises(s3t.StorageError, match="full"):
                opened.delete(records=[second])
    put_back(run, backup, "slices")
    s3t.Run.reconcile(run)
    with s3t.Run.open(run) as opened:
        assert [found.state for found in opened.locate(records=[first, second])] == ["erased", "erased"]
        assert opened.status().records == 22
        assert opened.audit().ok


def _full():
    raise s3t.StorageError("full")


@pytest.fixture
def destroyed(run, records, tmp_path):
    """A run whose secret was destroyed after a deletion and a repair; and the folder's backup from before."""
    backup = back_up(run, tmp_path / "backup")
    with s3t.Run.open(run) as opened:
        opened.delete(records=[records[ONE][0]])
        opened.repair()
        opened.destroy_key()
    return backup


FOLDER = ("slices", "artifacts", "secret")


@pytest.mark.integration
def test_a_folder_behind_its_ledger_answers_again_after_the_secret_was_destroyed(run, records, destroyed, text_model):
    """Nothing says which of its records were deleted. So the whole file goes; training alone would read it."""
    later = back_up(run, run.parent / "later")
    with s3t.Run.open(run) as opened:
        answer, before = opened.predict(["w1 w2"]), opened.inventory()
    put_back(run, destroyed, *FOLDER)
    with pytest.raises(s3t.RestoredError, match="s3t reconcile"):
        s3t.Run.open(run)
    old = tiny.artifacts(run)
    done = s3t.Run.reconcile(run)
    assert (done.records, done.slices) == (0, (ONE,))
    names = {place for place in records if versions_of(run / "slices", Place(*place))}
    assert names == records.keys() - {ONE}
    swept = set(old) - set(tiny.artifacts(run))
    assert swept == set(old) - set(tiny.artifacts(later))
    assert swept
    with s3t.Run.open(run) as opened:
        assert opened.predict(["w1 w2"]).members
        assert opened.inventory().generation == 1
        with pytest.raises(s3t.KeyDestroyedError):
            opened.audit()
        opened.destroy_key()  # the backup held it
    assert not (run / "secret").exists()
    put_back(run, later, "artifacts")  # a newer backup: what was trained after the older one answers again
    s3t.Run.reconcile(run)
    with s3t.Run.open(run) as opened:
        assert (opened.predict(["w1 w2"]).logits == answer.logits).all()
        assert opened.inventory().alive == before.alive


@pytest.mark.integration
def test_after_the_secret_was_destroyed_a_file_that_cannot_be_read_goes_too(run, destroyed):
    put_back(run, destroyed, *FOLDER)
    file_of(run, OTHER).write_bytes(b"no Parquet")
    file_of(run, THIRD).unlink()
    assert s3t.Run.reconcile(run).slices == (ONE, OTHER)
    assert versions_of(run / "slices", OTHER) == []
    with s3t.Run.open(run) as opened:
        assert opened.predict(["w1 w2"]).members


@pytest.mark.integration
def test_without_the_secret_nothing_is_lost_where_nothing_is_wrong(run, destroyed):
    before = tiny.artifacts(run), tiny.all_files(run / "slices")
    done = s3t.Run.reconcile(run)
    assert (done.records, done.slices, done.stages_lost) == (0, (), 0)
    assert (tiny.artifacts(run), tiny.all_files(run / "slices")) == before


@pytest.mark.integration
def test_without_the_secret_what_the_witness_names_goes_all_the_same(run, records, tmp_path, monkeypatch):
    """A ledger of another history, whose secret was destroyed: the witness has seen another deletion."""
    backup = back_up(run, tmp_path / "backup")
    gone, other = records[ONE][0], records[OTHER][0]
    with s3t.Run.open(run) as opened:
        opened.delete(records=[gone])
    shutil.rmtree(run)
    shutil.copytree(backup, run)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("S3T_STATE", str(tmp_path / "of somebody else"))
        with s3t.Run.open(run) as opened:
            opened.delete(records=[other])
            opened.destroy_key()
    with pytest.raises(s3t.RestoredError, match="another deletion"):
        s3t.Run.open(run)
    before = len(tiny.artifacts(run))
    done = s3t.Run.reconcile(run)
    assert (done.records, done.slices) == (1, (ONE,))
    assert done.stages_lost > 0
    assert len(tiny.artifacts(run)) == before - 2 * done.stages_lost
    assert versions_of(run / "slices", ONE) == []
    with s3t.Run.open(run) as opened:
        assert opened.predict(["w1 w2"]).members
        assert opened.status().records == 22
        assert [entry.state for entry in opened.log()] == ["erased"] * 3


def test_slices_are_not_written_by_rows_that_are_wrong(run, monkeypatch):
    """A row that is damaged while reconciling goes on says nothing, so its record must not count as deleted."""
    before, accept = sorted((run / "slices").rglob("*.parquet")), reconcile._accept_later

    def damaged(eraser, *arguments):
        found = accept(eraser, *arguments)
        with eraser.ledger.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE records SET copies = 7 WHERE token = (SELECT min(token) FROM records)")
        return found

    monkeypatch.setattr(reconcile, "_accept_later", damaged)
    with pytest.raises(s3t.IntegrityError, match="changed outside of s3t"):
        s3t.Run.reconcile(run)
    assert sorted((run / "slices").rglob("*.parquet")) == before
