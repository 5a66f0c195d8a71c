"""What must be done before what, so that a crash or a power cut between any two steps of a deletion loses nothing.

`tests/faults` tries out such crashes by the thousand. These see each order by itself, in a moment: nothing is trained
and no process is killed.
"""

import os
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

import s3t
from s3t.core import Place, Stage
from s3t.deletion import witness as witness_module
from s3t.deletion.witness import Witness
from s3t.ledger import Ledger, Session, Trained, Transaction
from s3t.ledger.locks import hold
from s3t.store.artifacts import Artifacts, Manifest, blobs_of
from s3t.store.blobs import LocalBlobs
from s3t.store.disk import OpenedFolder
from s3t.store.slices import Slices
from testing import tiny
from testing.accepted import accept
from testing.roles import roles
from testing.trained import commit
from tests.deletion.disk_calls import disk_calls, lost_by_a_power_cut
from tests.deletion.places import PLACES
from tests.deletion.runs import full_disk, killed, names_left, states
from tests.slice_files import slice_path, versions_of

ONE, STAGE, KEY = Place(0, 0), Stage(0, (0,)), "f" * 64
STEPS = {
    "memory of": "forget",
    "unnamed files of training": "forget",
    "artifacts/": "_remove_artifacts",
    "folders of s3t export": "withdraw_tainted",
    "tmp/": "_sweep_parts",
    "beside the run": "_sweep_parts",
    "unnamed files of init": None,  # that has ended
    "slices/": "_supersede",
    "ledger": "_wipe",
}
"""Methods with which erasure empties places, by how these begin."""


def unnoted():
    return patch.object(witness_module, "append_durably", full_disk)


def out_of_use():
    return pytest.raises(s3t.StorageError, match="out of use already")


@pytest.fixture
def names(records):
    """Of the records in slice ONE."""
    return records[ONE]


def store_a_stage(run, *, ledger=None):
    """As if one had been trained on slice ONE: nothing here reads what is in its files."""
    put(run)
    with (ledger or roles(run).ledger).writing() as transaction:
        assert commit(transaction, STAGE, KEY)


def put(run):
    for name in blobs_of(0, KEY):
        path = run.path / "artifacts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"trained")


def killed_after_acceptance(run, *names):
    """A process that accepts a deletion, and is gone."""
    with s3t.Run.open(run.path) as other:
        accept(other, names)


def noted(run):
    """The newest generation outside of the run."""
    return Witness(roles(run).witness.path).newest()


@contextmanager
def before(where, name, act):
    """Do something before a function is called, the first time; yields what it returned."""
    function, done = getattr(where, name), []

    def first(*args, **named):
        if not done:
            done.append(None)
            done[0] = act()
        return function(*args, **named)

    with patch.object(where, name, first):
        yield done


@pytest.fixture
def commits(run):
    """Whether anything was committed since it was last asked: a number that SQLite changes then."""
    with closing(sqlite3.connect(run.path / "ledger.sqlite")) as observer:
        yield lambda: observer.execute("PRAGMA data_version").fetchone()[0]


def test_a_deletion_that_returned_is_noted_outside_of_the_run(run, names):
    run.delete(records=names[:1])
    assert noted(run) == 1
    assert roles(run).secret.token("ledger", "record", names[0]) in Witness(roles(run).witness.path).tokens()


def test_what_could_not_be_noted_is_noted_the_next_time(run, names):
    with unnoted(), out_of_use():
        run.delete(records=names[:1])
    assert noted(run) == 0
    run.erase()
    assert (noted(run), states(run)) == (1, ["erased"])


def test_a_request_made_again_is_noted_outside_although_another_process_erases(run, names):
    """The first attempt was accepted and could not be noted; whoever has the lock has looked at the witness before."""
    roles(run).deleter.patience = 0.0
    with s3t.Run.open(run.path) as other, hold(roles(other).lock):
        with unnoted(), out_of_use():
            run.delete(records=names[:1], key="ticket")
        assert noted(run) == 0
        assert run.delete(records=names[:1], key="ticket").repeated
        assert noted(run) == 1


def test_what_a_killed_process_accepted_is_noted_before_its_bytes_go(run, names):
    killed_after_acceptance(run, names[0])
    with before(Slices, "put", lambda: noted(run)) as seen:
        run.erase()
    assert seen == [1]


def test_what_a_killed_process_accepted_is_made_durable_before_anything_of_it_is_erased(run, names, commits):
    """The next process reads it, and yet a power cut can take it; the artifact would be gone all the same."""
    store_a_stage(run)
    killed_after_acceptance(run, names[0])
    with roles(run).ledger.writing() as transaction:
        transaction.settle()  # it came so far, and no more is to be written for it
    then = commits()
    with before(Artifacts, "erase", commits) as seen:
        roles(run).eraser.finish(everything=True)  # no sweep before it, which commits as well
    assert seen
    assert seen[0] != then


def test_what_a_killed_process_accepted_is_made_durable_before_an_opening_notes_it(run, names, commits):
    """Else the witness may know of a deletion that the ledger has lost: the run would be taken for a backup."""
    killed_after_acceptance(run, names[0])
    then = commits()
    with before(witness_module, "append_durably", commits) as seen:
        s3t.Run.open(run.path).close()
    assert seen
    assert seen[0] != then


def test_a_record_that_two_requests_of_one_transaction_name_is_taken_once(run, names):
    """And a stage that the first one takes is not taken again by the second."""
    store_a_stage(run)
    one, other, *_ = names
    results = accept(run, [one], [one, other], [one])
    assert [result.generation for result in results] == [1, 2, None]
    assert [len(result.rows) for result in results] == [1, 1, 0]
    assert [len(result.tainted) for result in results] == [1, 0, 0]
    assert [len(result.gone) for result in results] == [0, 1, 1]
    assert roles(run).ledger.snapshot().slices[ONE].records == len(names) - 2
    run.erase()
    assert [entry.records for entry in run.log()] == [0, 1, 1]


@pytest.mark.parametrize(
    ("where", "name", "does"),
    [(Slices, "erase", full_disk), (Ledger, "wipe", killed)],
    ids=["slices", "ledger"],
)
def test_a_place_that_refused_was_not_gone_through(run, names, where, name, does):
    with patch.object(where, name, does):
        with out_of_use():
            run.delete(records=names[:1])
        assert states(run) == ["effective"]
        assert roles(run).ledger.snapshot().walked == 0
    with before(Ledger, "wipe", lambda: True) as gone_through:
        run.erase()
    assert gone_through
    assert states(run) == ["erased"]


def test_a_deletion_that_comes_while_places_are_gone_through_has_a_walk_of_its_own(patient, names):
    """Its slice may wait; memory and copies may not."""
    with before(Ledger, "wipe", lambda: killed_after_acceptance(patient, names[1])):
        patient.delete(records=names[:1])
    with before(Ledger, "wipe", lambda: None) as walked:
        s3t.Run.open(patient.path).close()
    assert walked


def test_a_stage_that_is_stored_just_before_a_sweep_looks_stays(run):
    """The ledger is looked at after the store was listed, in the transaction that condemns."""
    with (
        closing(roles(run).ledger.again()) as other,
        before(Artifacts, "keys", lambda: store_a_stage(run, ledger=other)),
    ):
        roles(run).eraser.sweep()
    run.erase()
    assert roles(run).store.keys() == {(0, KEY)}


def test_what_a_living_trainer_has_announced_is_not_swept(run):
    """Its artifact is put, and its stage not committed yet. Whatever else lies in the folder of such files goes."""
    session = Session()
    with roles(run).ledger.writing() as transaction:
        transaction.sessions.enter(session, generation=0)
        assert transaction.sessions.claim(STAGE, session)
        seen = transaction.snapshot().seen(STAGE)
        trained = {"stage": STAGE, "key": KEY, "manifest": "d" * 64, "parents": {}, "seconds": 1.0}
        assert transaction.announce(Trained(session=session, seen=seen, **trained))
    put(run)
    part, stray = run.path / "tmp" / f"{KEY}.json.0123", run.path / "tmp" / "another_host-1"
    for path in (part, stray):
        path.write_bytes(b"being written")
    run.erase()
    assert roles(run).store.keys() == {(0, KEY)}
    assert (part.exists(), stray.exists()) == (True, False)
    with roles(run).ledger.writing() as transaction:
        transaction.sessions.end([session.name])
    run.erase()
    assert roles(run).store.keys() == set()
    assert not part.exists()


def test_a_version_that_another_process_has_superseded_meanwhile_is_condemned(run, names):
    """This process slept, and lost the run's lock: what it puts may hold what was deleted since."""
    known = roles(run).ledger.snapshot().slices[ONE]

    def others():
        with closing(roles(run).ledger.again()) as other, other.writing() as transaction:
            assert transaction.supersede(ONE, old=known.digest, new="e" * 64, gone=[])

    refused = pytest.raises(s3t.StorageError, match="superseded by another process")
    with before(Slices, "put", others), patch.object(Slices, "erase", full_disk), refused:
        run.delete(records=names[:1])
    with roles(run).ledger.reading() as transaction:
        condemned = transaction.to_erase().versions
    there = {path.stem.rpartition("-")[2] for path in versions_of(run.path / "slices", ONE)}
    assert {digest for _, digest in condemned} == there


def test_a_next_version_is_condemned_before_it_is_put(run, names):
    """A crash in between leaves what the ledger knows, and no listing has to find."""

    def look():
        with closing(roles(run).ledger.again()) as other, other.reading() as transaction:
            return transaction.to_erase().versions

    with before(Slices, "put", look) as seen:
        run.delete(records=names[:1])
    ((place, digest),) = seen[0]
    assert slice_path(run.path / "slices", place).stem.endswith(digest)
    assert not roles(run).ledger.snapshot().condemned


@pytest.mark.parametrize("reconciled", [False, True])
def test_an_erasure_that_a_crash_cut_short_before_the_pointer_moves_goes_on(run, names, reconciled):
    """It is not taken for a backup, nor the version for another."""
    with patch.object(Transaction, "supersede", killed), out_of_use():
        run.delete(records=names[:1])
    assert len(versions_of(run.path / "slices", ONE)) == 2
    if reconciled:
        run.close()
        assert s3t.Run.reconcile(run.path).records == 0
    with s3t.Run.open(run.path) as other:
        assert states(other) == ["erased"]
        assert names[0] not in names_left(run.path)
        assert other.audit().ok


@pytest.mark.parametrize("how", ["erase", "reconcile"])
def test_a_slice_that_was_renamed_before_a_crash_is_made_durable_before_it_counts(run, names, how):
    """The next process finds it done; a power cut would bring the older file back."""
    path = slice_path(run.path / "slices", ONE)
    older, sync = path.read_bytes(), s3t.store.disk.sync_folder
    act = (lambda: run.erase()) if how == "erase" else (lambda: s3t.Run.reconcile(run.path))
    if how == "reconcile":
        run.delete(records=names[:1])
        slice_path(run.path / "slices", ONE).unlink()
        path.write_bytes(older)  # of a backup

    def crash(*about):
        if path.parent in about or len(about) > 1:
            raise OSError(5, "as if the process was killed here")
        sync(*about)

    killed = pytest.raises(s3t.StorageError, match="killed here")
    with patch.object(s3t.store.disk, "sync_folder", crash), patch.object(Slices, "erase", crash), killed:
        run.delete(records=names[:1]) if how == "erase" else act()
    assert len(versions_of(run.path / "slices", ONE)) == 2
    with disk_calls() as calls:
        act()
    steps = [call.what for call in calls if path.parent in (call.path, call.path.parent)]
    assert steps[0] == "fsync"  # before the older version goes
    assert "unlink" in steps
    assert states(run) == ["erased"]


def test_what_init_made_is_on_the_disk_when_it_returns(text_model, tmp_path):
    recipe = tiny.recipe(text_model, partition={"shards": 1, "slices": 2}, sequences={"budget": 1})
    with disk_calls() as calls:
        s3t.Run.create(tmp_path / "folder" / "run", recipe=recipe, data=tiny.text_table()).close()
    assert lost_by_a_power_cut(calls) == []


def test_what_a_deletion_did_is_on_the_disk_when_it_returns(run, names, state):
    """Slices, artifacts and the witness, whose folder is made with it."""
    os.environ["S3T_STATE"] = str(state / "further" / "down")
    store_a_stage(run)
    with s3t.Run.open(run.path) as other, disk_calls() as calls:
        other.delete(records=names[:1])
    done = {call.path.suffix or call.path.name for call in calls if call.what in ("rename", "unlink", "write")}
    assert done >= {".parquet", ".safetensors", ".json", ".deletions"}
    assert lost_by_a_power_cut(calls) == []


def test_a_blob_is_on_the_disk_under_its_name_before_the_ledger_names_it(run, names):
    """Else a power cut leaves a ledger whose slices are not there."""
    with disk_calls() as calls, before(Transaction, "supersede", lambda: lost_by_a_power_cut(calls)) as undone:
        run.delete(records=names[:1])
    assert [name for name in undone[0] if "slice-" in name] == []


def test_after_a_failed_fsync_a_process_does_nothing_more(run, names):
    """The second may succeed although what the first had to write is lost."""
    sync = os.fsync

    def fail(descriptor):
        if "slices" in Path(f"/proc/self/fd/{descriptor}").readlink().parts:
            raise OSError(5, "Input/output error")
        sync(descriptor)

    with patch.object(os, "fsync", fail), pytest.raises(s3t.FsyncError, match="could not confirm"):
        run.delete(records=names[:1])
    for use in (run.status, run.erase, lambda: s3t.Run.open(run.path)):
        with pytest.raises(s3t.FsyncError):
            use()


def test_an_opened_ledger_has_a_log_whose_name_is_on_the_disk(run):
    with disk_calls() as calls, closing(Ledger.open(run.path / "ledger.sqlite")):
        pass
    assert run.path in [call.path for call in calls if call.what == "fsync"]


def test_a_destroyed_secret_was_overwritten_on_the_disk_before_its_name_went(run, tmp_path):
    secret, kept = run.path / "secret", tmp_path / "the same bytes on the disk"
    os.link(secret, kept)
    size = secret.stat().st_size
    with disk_calls() as calls:
        run.destroy_key()
    assert kept.read_bytes() == b"\0" * size
    assert [call.what for call in calls if call.path == secret] == ["fsync", "unlink"]
    assert lost_by_a_power_cut(calls) == []


def test_an_artifact_is_on_the_disk_when_it_is_stored(tmp_path):
    """The manifest last: without one, half an artifact is not there."""
    fields = {"key": KEY, "shard": 0, "prefix": (0,), "slice_digests": ("d",), "base_digest": "b", "seed": 0}
    manifest = Manifest(**fields, precision="float32", threads=1, steps=1, environment={}, sha256="0" * 64, parents=())
    with disk_calls() as calls:
        blobs = LocalBlobs(tmp_path / "artifacts", tmp=tmp_path / "tmp", within=OpenedFolder.of(tmp_path))
        Artifacts(blobs).put(0, KEY, b"trained", manifest)
    assert [call.path.suffix for call in calls if call.what == "rename"] == [".safetensors", ".json"]
    assert lost_by_a_power_cut(calls) == []


def test_erasure_goes_through_all_places_in_the_order_of_their_list(run, monkeypatch):
    eraser, steps = roles(run).eraser, []
    for where in map(type, (eraser, eraser.memory, eraser.withdrawer)):
        for name in {*STEPS.values()} & {*vars(where)}:
            monkeypatch.setattr(where, name, lambda *_args, name=name: steps.append(name))
    eraser.erase(everything=True, anyway=True)
    places = [place.where for place in PLACES if place.erased is not None]
    wanted = [next(step for begin, step in STEPS.items() if where.startswith(begin)) for where in places]
    assert steps == list(dict.fromkeys(filter(None, wanted)))
