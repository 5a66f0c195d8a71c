"""What an opening notices of a run of which a part is of another time, and what `erase` does; and the way out."""

import shutil

import pyarrow.parquet
import pytest

import s3t
from s3t.core import Place
from testing import tiny
from testing.roles import roles
from tests.deletion.runs import LEDGER, delete, names_left, put_back, states_of
from tests.slice_files import slice_path

NAMES = ["r3", "r4", "r5"]


def test_a_backup_of_the_whole_folder_is_refused_and_reconciled(folder, made):
    for name in NAMES:
        delete(folder, name)
    put_back(folder, made)
    with pytest.raises(s3t.RestoredError, match="s3t reconcile"):
        s3t.Run.open(folder)
    assert s3t.Run.reconcile(folder).records == 3
    assert not names_left(folder) & set(NAMES)
    with s3t.Run.open(folder) as run:
        assert run.status().records == 24 - 3
        assert run.status().generation > 3  # generation 3 was another deletion
        assert run.delete(records=NAMES).already == tuple(NAMES)
        assert run.audit().ok


def test_a_copy_in_which_as_much_was_deleted_is_not_the_run(folder, made, tmp_path, monkeypatch):
    """It knows as many generations; they took other records."""
    delete(folder, "r3")
    put_back(folder, made)
    with monkeypatch.context() as patch:
        patch.setenv("S3T_STATE", str(tmp_path / "another memory"))
        delete(folder, "r6")
    with pytest.raises(s3t.RestoredError, match=r"another deletion.*s3t reconcile"):
        s3t.Run.open(folder)
    assert s3t.Run.reconcile(folder).records == 1
    assert states_of(folder, "r3", "r6") == ["erased"] * 2
    assert not names_left(folder) & {"r3", "r6"}


@pytest.mark.parametrize(("there", "later"), [("r4", 1), ("r3", 0)], ids=["another record", "the same record"])
def test_a_deletion_in_a_copy_is_noticed_although_the_run_has_deleted_since(folder, tmp_path, there, later):
    """Both are open; the newest that is remembered is the run's."""
    tiny.copy_run(folder, tmp_path / "copy")
    with s3t.Run.open(folder) as one, s3t.Run.open(tmp_path / "copy") as other:
        one.delete(records=["r3"])
        other.delete(records=[there])
        one.delete(records=["r5"])
    if later:
        with pytest.raises(s3t.RestoredError, match=r"generation 1 of its ledger is another deletion.*s3t reconcile"):
            s3t.Run.open(folder)
        assert s3t.Run.reconcile(folder).records == later
    assert {*states_of(folder, "r3", there, "r5")} == {"erased"}  # the other history's lines stay in the witness
    assert there not in names_left(folder)


@pytest.mark.parametrize("destroyed", [False, True], ids=["", "without the secret"])
def test_slices_that_are_put_back_alone_are_noticed_and_reconciled(folder, made, fullest, destroyed):
    place, (gone, *_) = fullest
    delete(folder, gone)
    if destroyed:
        with s3t.Run.open(folder) as run:
            run.destroy_key()
    put_back(folder, made, "slices")
    with pytest.raises(s3t.RestoredError, match=r"is not the version of the slice that its ledger.*s3t reconcile"):
        s3t.Run.open(folder)
    assert s3t.Run.reconcile(folder).slices == (place,)
    assert gone not in names_left(folder)
    with s3t.Run.open(folder) as run:
        assert run.erase().unfinished == ()


def test_slices_that_are_put_back_under_an_open_run_are_never_erased_with_success(folder, made, fullest):
    _, (gone, other, *_) = fullest
    with s3t.Run.open(folder) as run:
        run.delete(records=[gone])
        put_back(folder, made, "slices")
        with pytest.raises(s3t.IntegrityError, match=r"may hold deleted records.*Run `s3t reconcile .*(\n  - .*){1}$"):
            run.erase()
        with pytest.raises(s3t.IntegrityError, match=r"s3t reconcile"):
            run.delete(records=[other])
    assert gone in names_left(folder)
    s3t.Run.reconcile(folder)
    assert states_of(folder, gone, other) == ["erased"] * 2
    assert not names_left(folder) & {gone, other}


def test_erase_looks_at_digests_also_where_nothing_waits_and_the_count_is_right(run, fullest):
    path = slice_path(run.path / "slices", fullest[0])
    rows = pyarrow.parquet.read_table(path)
    changed = rows.set_column(rows.column_names.index("text"), "text", [["w7"] * rows.num_rows])
    pyarrow.parquet.write_table(changed, path, store_schema=False)
    with pytest.raises(s3t.IntegrityError, match=str(path)):
        run.erase()
    path.unlink()
    with pytest.raises(s3t.IntegrityError, match=r"put it back from a backup, then run"):
        run.erase()


def test_while_slices_may_wait_their_files_hold_more_than_the_ledger_counts(patient):
    patient.delete(records=["r3"])
    with s3t.Run.open(patient.path) as other:
        assert "r3" in names_left(patient.path)
        other.erase()
    assert "r3" not in names_left(patient.path)


@pytest.fixture
def newer_slices(folder, made, fullest, tmp_path, monkeypatch):
    """A run whose ledger is older than its slices, and nobody remembers."""
    delete(folder, fullest[1][0])
    put_back(folder, made, *LEDGER)
    monkeypatch.setenv("S3T_STATE", str(tmp_path / "of nobody"))
    return folder


def test_a_ledger_older_than_the_slices_is_noticed_and_there_is_a_way_out(newer_slices, fullest):
    _, (gone, *left) = fullest
    with pytest.raises(s3t.RestoredError, match=r"is not the version of the slice that.*s3t reconcile"):
        s3t.Run.open(newer_slices)
    done = s3t.Run.reconcile(newer_slices)
    assert (done.records, done.slices) == (1, ())
    assert states_of(newer_slices, gone, *left) == ["erased", *["present"] * len(left)]
    with s3t.Run.open(newer_slices) as run:
        assert run.erase().unfinished == ()


def test_a_version_of_another_slice_is_no_newer_one(newer_slices, fullest):
    """It is named by its digest, as all are; but its records were never in this slice."""
    place, _ = fullest
    current, other = (slice_path(newer_slices / "slices", each) for each in (place, Place(1 - place.shard, 0)))
    shutil.copy2(other, current.with_stem(f"slice-{place.slice:03d}-{other.stem.rpartition('-')[2]}"))
    current.unlink()
    with pytest.raises(s3t.IntegrityError, match="holds records that were never in this slice"):
        s3t.Run.reconcile(newer_slices)


def test_a_version_newer_than_the_ledger_is_noticed_also_beside_the_ledgers(newer_slices, made, fullest):
    """A crash came after the slice was superseded; then the ledger was put back."""
    place, (gone, *left) = fullest
    older = slice_path(made / "slices", place)
    shutil.copy2(older, slice_path(newer_slices / "slices", place).with_name(older.name))
    with pytest.raises(s3t.RestoredError, match=rf"counts {len(left) + 1} records in .* holds {len(left)}\)"):
        s3t.Run.open(newer_slices)
    assert s3t.Run.reconcile(newer_slices).records == 1
    assert states_of(newer_slices, gone) == ["erased"]
    assert gone not in names_left(newer_slices)


def test_an_older_version_beside_a_damaged_one_is_kept_for_reconciling(trained, made, fullest):
    """It has the same digest once it has lost what was deleted; no stage goes."""
    place, (gone, *_) = fullest
    trained.delete(records=[gone])
    alive = roles(trained).store.keys()
    trained.close()
    current, older = slice_path(trained.path / "slices", place), slice_path(made / "slices", place)
    current.write_bytes(b"no Parquet")
    shutil.copy2(older, current.with_name(older.name))
    s3t.Run.open(trained.path).close()
    done = s3t.Run.reconcile(trained.path)
    assert (done.records, done.slices, done.stages_lost) == (0, (place,), 0)
    assert gone not in names_left(trained.path)
    with s3t.Run.open(trained.path) as run:
        assert run.audit().ok
        assert roles(run).store.keys() == alive
