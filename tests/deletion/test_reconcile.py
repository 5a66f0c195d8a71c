"""Files of slices that are no memory of deletions: reconciling refuses them, and takes nothing for deleted."""

import errno
import io
import shutil
from contextlib import closing
from datetime import UTC, datetime
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet
import pytest

import s3t
from s3t.core import Place
from s3t.deletion import reconcile
from s3t.deletion.protocol import Eraser
from s3t.ledger import Ledger
from testing import tiny
from tests.deletion.runs import LEDGER, delete, killed, put_back, states_of
from tests.slice_files import slice_path, versions_of

ONE, OTHER, THIRD = Place(0, 0), Place(0, 1), Place(1, 2)


def file_of(run, place):
    return slice_path(run / "slices", place)


def rewrite(path, change):
    pyarrow.parquet.write_table(change(pyarrow.parquet.read_table(path)), path, store_schema=False)


def back_up(run, to):
    shutil.copytree(run, to)
    return to


def told(run):
    """What reconciling says that is wrong; it has changed nothing."""
    before, ledger = files(run), what_the_ledger_says(run)
    with pytest.raises(s3t.IntegrityError) as raised:
        s3t.Run.reconcile(run)
    assert (files(run), what_the_ledger_says(run)) == (before, ledger)
    first, *problems = str(raised.value).split("\n  - ")
    assert first == (
        f"{run} holds files of slices that no deletion explains; nothing was changed. Put the right ones back from a "
        f"backup, then run `s3t reconcile {run}` again:"
    )
    return problems


def files(run):
    return {name: content for name, content in tiny.all_files(run).items() if name not in LEDGER}


def what_the_ledger_says(run):
    with closing(Ledger.open(run / "ledger.sqlite")) as ledger, ledger.reading() as transaction:
        snapshot = transaction.snapshot()
        rows = {place: sorted(row.token for row in transaction.records_in(place)) for place in snapshot.slices}
        return snapshot, transaction.history.log(), transaction.to_erase(), rows


def put_in_its_place(run, file):
    """A file of another slice as the only version of slice ONE."""
    path = file_of(run, ONE)
    wrong = path.with_stem(f"slice-{ONE.slice:03d}-{file.stem.rpartition('-')[2]}")
    shutil.copy2(file, wrong)
    path.unlink()
    return wrong


@pytest.mark.integration
def test_another_slices_file_is_no_memory_of_deletions(folder, made, records):
    """Every record of the slice is missing from it: none of them was deleted."""
    wrong = put_in_its_place(folder, file_of(folder, OTHER))
    count = len(records[OTHER])
    assert told(folder) == [f"{wrong} holds records that were never in this slice: {count}. Is it the file of another?"]
    put_back(folder, made, "slices")
    assert s3t.Run.reconcile(folder).records == 0
    assert states_of(folder, *records[ONE]) == ["present"] * len(records[ONE])


@pytest.mark.parametrize("left", [0, 1])
def test_a_file_that_is_not_whole_is_no_memory_of_deletions(folder, left):
    rewrite(file_of(folder, ONE), lambda rows: rows.slice(0, left))
    [problem] = told(folder)
    assert f"{file_of(folder, ONE)}: the file of slice 0 of shard 0 is not the one that the ledger knows" in problem


@pytest.mark.integration
def test_all_files_that_are_wrong_are_told_at_once_and_before_a_deletion_is_made_again(folder, made, records):
    """A backup was put back, and then wrong files."""
    gone = [records[place][0] for place in (ONE, THIRD)]
    delete(folder, *gone)
    put_back(folder, made)
    unreadable, other = "cannot be read", "is not the one that the ledger knows"
    paths = {place: file_of(folder, place) for place in sorted(records)}
    paths[ONE].write_bytes(b"no Parquet")
    paths[OTHER].unlink()
    rewrite(paths[Place(0, 2)], lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))
    rewrite(paths[Place(1, 0)], lambda rows: rows.slice(0, 0))
    rewrite(paths[Place(1, 1)], lambda _rows: pa.table({"when": [datetime.now(UTC)]}))
    rewrite(paths[THIRD], lambda _rows: pa.table({"name": ["x"]}))
    wanted = [unreadable, unreadable, other, other, unreadable, other]
    for path, problem, what in zip(paths.values(), told(folder), wanted, strict=True):
        assert str(path) in problem
        assert what in problem
    put_back(folder, made, "slices")
    assert s3t.Run.reconcile(folder).records == 2
    assert states_of(folder, *gone) == ["erased", "erased"]


@pytest.mark.integration
def test_another_slices_file_is_none_although_all_of_it_was_deleted_later(folder, made, records, tmp_path, monkeypatch):
    """The witness names every record of the file; but they were in the other slice."""
    delete(folder, *records[OTHER])
    put_back(folder, made, *LEDGER)  # and the folder is the newer
    put_in_its_place(folder, file_of(made, OTHER))
    [problem] = told(folder)
    assert "holds records that were never in this slice" in problem


@pytest.mark.integration
def test_a_slices_file_of_monday_a_ledger_of_tuesday_and_a_memory_of_wednesday(folder, made, fullest, tmp_path):
    """The file has no digest that the ledger knows, nor has what shall become of it."""
    _, (first, second, *_) = fullest
    delete(folder, first)
    tuesday = back_up(folder, tmp_path / "tuesday")
    delete(folder, second)
    put_back(folder, made, "slices")
    put_back(folder, tuesday, *LEDGER)
    assert s3t.Run.reconcile(folder).records == 1
    assert states_of(folder, first, second) == ["erased", "erased"]


def test_a_file_on_a_bad_sector_is_made_anew_from_an_older_one(folder, records, monkeypatch):
    older = file_of(folder, ONE)
    content = older.read_bytes()
    delete(folder, records[ONE][0])
    bad = file_of(folder, ONE)
    older.write_bytes(content)
    number, opened = bad.stat().st_ino, io.open

    def open_unless_bad(file, *given, **options):
        if str(file) == str(bad) and bad.exists() and bad.stat().st_ino == number:
            raise OSError(errno.EIO, "Input/output error")
        return opened(file, *given, **options)

    monkeypatch.setattr(io, "open", open_unless_bad)
    s3t.Run.reconcile(folder)
    assert bad.stat().st_ino != number
    with s3t.Run.open(folder) as run:
        assert run.audit().ok


@pytest.mark.integration
def test_an_older_file_is_reconciled_while_a_deletion_waits_for_its_slice(folder, made, records):
    """The digest that the ledger knows is of a file that still holds what was deleted last."""
    first, second = records[ONE][:2]
    delete(folder, first)
    with patch.object(Eraser, "erase", killed), pytest.raises(s3t.StorageError):
        delete(folder, second)
    put_back(folder, made, "slices")
    s3t.Run.reconcile(folder)
    assert states_of(folder, first, second) == ["erased", "erased"]


def test_slices_are_not_written_by_rows_that_are_wrong(folder, monkeypatch):
    """A row that is damaged while reconciling goes on says nothing, so its record must not count as deleted."""
    before, accept = sorted((folder / "slices").rglob("*.parquet")), reconcile._accept_later

    def damaged(eraser, *arguments):
        found = accept(eraser, *arguments)
        with eraser.ledger.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE records SET copies = 7 WHERE token = (SELECT min(token) FROM records)")
        return found

    monkeypatch.setattr(reconcile, "_accept_later", damaged)
    with pytest.raises(s3t.IntegrityError, match="changed outside of s3t"):
        s3t.Run.reconcile(folder)
    assert sorted((folder / "slices").rglob("*.parquet")) == before


@pytest.fixture
def destroyed(trained, records, tmp_path):
    """The folder of a run whose secret was destroyed after a deletion and a repair; beside it its backup from before.

    Nothing says which of its records were deleted then.
    """
    back_up(trained.path, tmp_path / "backup")
    trained.delete(records=[records[ONE][0]])
    trained.repair()
    trained.destroy_key()
    trained.close()
    return trained.path


FOLDER = ("slices", "artifacts", "secret")


@pytest.mark.integration
def test_a_folder_behind_its_ledger_answers_again_after_the_secret_was_destroyed(destroyed, records, tmp_path):
    """The whole file goes, as training alone would read it; and one that cannot be read, too."""
    later = back_up(destroyed, tmp_path / "later")
    with s3t.Run.open(destroyed) as run:
        answer, before = run.predict(["w1 w2"]), run.inventory()
    put_back(destroyed, tmp_path / "backup", *FOLDER)
    file_of(destroyed, OTHER).write_bytes(b"no Parquet")
    file_of(destroyed, THIRD).unlink()
    with pytest.raises(s3t.RestoredError, match="s3t reconcile"):
        s3t.Run.open(destroyed)
    old = set(tiny.artifacts(destroyed))
    done = s3t.Run.reconcile(destroyed)
    assert (done.records, done.slices) == (0, (ONE, OTHER))
    left = {place for place in records if versions_of(destroyed / "slices", place)}
    assert left == records.keys() - {ONE, OTHER, THIRD}
    swept = old - set(tiny.artifacts(destroyed))
    assert swept == old - set(tiny.artifacts(later))
    assert swept
    with s3t.Run.open(destroyed) as run:
        assert run.predict(["w1 w2"]).members
        assert run.inventory().generation == 1
        with pytest.raises(s3t.KeyDestroyedError):
            run.audit()
        run.destroy_key()  # the backup held it
    assert not (destroyed / "secret").exists()
    put_back(destroyed, later, "artifacts")  # a newer backup: what was trained after the older one answers again
    s3t.Run.reconcile(destroyed)
    with s3t.Run.open(destroyed) as run:
        assert (run.predict(["w1 w2"]).logits == answer.logits).all()
        assert run.inventory().alive == before.alive


@pytest.mark.integration
def test_without_the_secret_nothing_is_lost_where_nothing_is_wrong(destroyed):
    before = tiny.artifacts(destroyed), tiny.all_files(destroyed / "slices")
    done = s3t.Run.reconcile(destroyed)
    assert (done.records, done.slices, done.stages_lost) == (0, (), 0)
    assert (tiny.artifacts(destroyed), tiny.all_files(destroyed / "slices")) == before


@pytest.mark.integration
def test_without_the_secret_what_the_witness_names_goes_all_the_same(trained, records, tmp_path, monkeypatch):
    """A ledger of another history, whose secret was destroyed: the witness has seen another deletion."""
    trained.close()
    run, backup = trained.path, back_up(trained.path, tmp_path / "backup")
    delete(run, records[ONE][0])
    put_back(run, backup)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("S3T_STATE", str(tmp_path / "of somebody else"))
        with s3t.Run.open(run) as opened:
            opened.delete(records=records[OTHER][:1])
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
