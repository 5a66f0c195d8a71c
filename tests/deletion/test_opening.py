"""What an opening notices of a run of which a part is of another time, and what `erase` does; and the way out."""

import shutil

import pyarrow.parquet
import pytest

import s3t
from s3t.core import Place
from testing import tiny
from testing.roles import roles
from tests.run.worlds import records_by_slice
from tests.slice_files import slice_path

LEDGER = ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm")


@pytest.fixture(scope="module")
def made(text_model, tmp_path_factory):
    """A run that nothing was deleted from, without stages; it is copied, and the copies are the only ones used."""
    path = tmp_path_factory.mktemp("made") / "run"
    s3t.Run.create(path, recipe=tiny.recipe(text_model), data=tiny.text_table()).close()
    return path


@pytest.fixture
def run(made, tmp_path):
    tiny.copy_run(made, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def fullest(text_model):
    """The slice with most records, and these."""
    records = records_by_slice(tiny.recipe(text_model), tiny.text_table())
    place = max(records, key=lambda place: len(records[place]))
    return Place(*place), records[place]


def put_back(run, made, *names):
    for name in names:
        path, source = run / name, made / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if source.exists():
            shutil.copytree(source, path) if source.is_dir() else shutil.copy2(source, path)


def delete(run, *records):
    with s3t.Run.open(run) as opened:
        return opened.delete(records=list(records))


def states(run, *records):
    with s3t.Run.open(run) as opened:
        return [found.state for found in opened.locate(records=list(records))]


def in_slices(run, record):
    return any(record in pyarrow.parquet.read_table(path)["record"].to_pylist() for path in run.rglob("*.parquet"))


def fork(run, copy, *, first, second, then):
    """Deletions in a run and in its copy while both are open; the newest that is remembered is the run's."""
    tiny.copy_run(run, copy)
    with s3t.Run.open(run) as one, s3t.Run.open(copy) as other:
        one.delete(records=[first])
        other.delete(records=[second])
        one.delete(records=[then])


def test_a_deletion_in_a_copy_is_noticed_although_the_run_has_deleted_since(run, tmp_path):
    fork(run, tmp_path / "copy", first="r3", second="r4", then="r5")
    with pytest.raises(s3t.RestoredError, match=r"generation 1 of its ledger is another deletion.*s3t reconcile"):
        s3t.Run.open(run)
    assert s3t.Run.reconcile(run).records == 1
    assert states(run, "r3", "r4", "r5") == ["erased"] * 3
    assert not in_slices(run, "r4")
    s3t.Run.open(run).close()  # the other history's lines stay in the witness


def test_a_deletion_in_a_copy_of_what_the_run_has_deleted_too_is_nothing_new(run, tmp_path):
    fork(run, tmp_path / "copy", first="r3", second="r3", then="r5")
    assert states(run, "r3", "r5") == ["erased"] * 2


def test_slices_that_are_put_back_alone_are_noticed_and_reconciled(run, made, fullest):
    place, (gone, *_) = fullest
    delete(run, gone)
    put_back(run, made, "slices")
    with pytest.raises(s3t.RestoredError, match=r"is not the version of the slice that its ledger.*s3t reconcile"):
        s3t.Run.open(run)
    assert s3t.Run.reconcile(run).slices == (place,)
    assert not in_slices(run, gone)
    with s3t.Run.open(run) as opened:
        assert opened.erase().unfinished == ()


def test_slices_that_are_put_back_under_an_open_run_are_never_erased_with_success(run, made, fullest):
    _, (gone, other, *_) = fullest
    with s3t.Run.open(run) as opened:
        opened.delete(records=[gone])
        put_back(run, made, "slices")
        with pytest.raises(s3t.IntegrityError, match=r"may hold deleted records.*Run `s3t reconcile .*(\n  - .*){1}$"):
            opened.erase()
        with pytest.raises(s3t.IntegrityError, match=r"s3t reconcile"):
            opened.delete(records=[other])
    assert in_slices(run, gone)
    s3t.Run.reconcile(run)
    assert states(run, gone, other) == ["erased"] * 2
    assert not in_slices(run, gone)
    assert not in_slices(run, other)


def test_erase_looks_at_digests_also_where_nothing_waits_and_the_count_is_right(run, fullest):
    place, _ = fullest
    path = slice_path(run / "slices", place)
    rows = pyarrow.parquet.read_table(path)
    changed = rows.set_column(rows.column_names.index("text"), "text", [["w7"] * rows.num_rows])
    pyarrow.parquet.write_table(changed, path, store_schema=False)
    with s3t.Run.open(run) as opened, pytest.raises(s3t.IntegrityError, match=str(path)):
        opened.erase()
    path.unlink()
    with s3t.Run.open(run) as opened, pytest.raises(s3t.IntegrityError, match=r"put it back from a backup, then run"):
        opened.erase()


def test_slices_that_are_put_back_after_the_secret_was_destroyed_are_noticed(run, made, fullest):
    place, (gone, *_) = fullest
    delete(run, gone)
    with s3t.Run.open(run) as opened:
        opened.destroy_key()
    put_back(run, made, "slices")
    with pytest.raises(s3t.RestoredError, match="s3t reconcile"):
        s3t.Run.open(run)
    assert s3t.Run.reconcile(run).slices == (place,)
    assert not in_slices(run, gone)
    with s3t.Run.open(run) as opened:
        opened.erase()


def test_while_slices_may_wait_their_files_hold_more_than_the_ledger_counts(made, run, fullest):
    _, (gone, *_) = fullest
    with pytest.MonkeyPatch.context() as patch, s3t.Run.open(run) as opened:
        patch.setattr(type(roles(opened).deleter), "_after_acceptance", lambda *_, **__: [])
        patch.setattr("s3t.deletion.protocol.Eraser.due", lambda self, snapshot: False)
        opened.delete(records=[gone])
        s3t.Run.open(run).close()
    assert states(run, gone) == ["erased"]


@pytest.fixture
def newer_slices(run, made, fullest, tmp_path, monkeypatch):
    """A run whose ledger is older than its slices, and nobody remembers."""
    _, (gone, *_) = fullest
    delete(run, gone)
    put_back(run, made, *LEDGER)
    monkeypatch.setenv("S3T_STATE", str(tmp_path / "of nobody"))
    return run


def test_a_ledger_older_than_the_slices_is_noticed_and_there_is_a_way_out(newer_slices, fullest):
    _, (gone, *left) = fullest
    with pytest.raises(s3t.RestoredError, match=r"is not the version of the slice that.*s3t reconcile"):
        s3t.Run.open(newer_slices)
    done = s3t.Run.reconcile(newer_slices)
    assert (done.records, done.slices) == (1, ())
    assert states(newer_slices, gone, *left) == ["erased", *["present"] * len(left)]
    with s3t.Run.open(newer_slices) as opened:
        assert opened.audit().ok
        assert opened.erase().unfinished == ()


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
    assert states(newer_slices, gone) == ["erased"]
    assert not in_slices(newer_slices, gone)


def test_an_older_version_beside_a_damaged_one_is_kept_for_reconciling(run, made, fullest):
    place, (gone, *_) = fullest
    delete(run, gone)
    current, older = slice_path(run / "slices", place), slice_path(made / "slices", place)
    current.write_bytes(b"no Parquet")
    shutil.copy2(older, current.with_name(older.name))
    s3t.Run.open(run).close()
    done = s3t.Run.reconcile(run)
    assert (done.records, done.slices, done.stages_lost) == (0, (place,), 0)
    assert not in_slices(run, gone)
    with s3t.Run.open(run) as opened:
        assert opened.audit().ok
