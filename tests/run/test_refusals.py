"""Every refusal says what is true of the run afterwards: compared with what really happened.

Disk and database refuse really, at one call after the other, until an operation goes through.
"""

import errno
import os
import shutil
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

import s3t
from s3t.deletion import protocol
from s3t.store.disk import storage_errors
from testing import tiny
from testing.roles import roles


@dataclass
class Refusals:
    """Refuses the call of one number, counted from 1, and (`on`) all later ones; 0: none."""

    at: int = 0
    on: bool = False
    calls: int = 0

    def hits(self):
        self.calls += 1
        return self.at and (self.calls == self.at or (self.on and self.calls > self.at))


@contextmanager
def refusing(refusals):
    """What writes files, and what begins a transaction, asks whether it is refused; in this thread alone."""
    with pytest.MonkeyPatch.context() as patch:

        def full(method):
            def call(path, *arguments, **options):
                if refusals.hits():
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
                return method(path, *arguments, **options)

            return call

        def connect(engine):
            if refusals.hits():
                raise OperationalError("BEGIN", {}, sqlite3.OperationalError("database or disk is full"))
            return real(engine)

        real = Engine.connect
        for name in ("replace", "write_bytes", "unlink", "mkdir", "rename"):
            patch.setattr(Path, name, full(getattr(Path, name)))
        patch.setattr("s3t.store.disk.append_durably", full(s3t.store.disk.append_durably))
        patch.setattr("s3t.deletion.witness.append_durably", full(s3t.deletion.witness.append_durably))
        patch.setattr("s3t.store.disk.overwrite_durably", full(s3t.store.disk.overwrite_durably))
        patch.setattr("s3t.store.secret.overwrite_durably", full(s3t.store.secret.overwrite_durably))
        patch.setattr(Engine, "connect", connect)
        patch.setattr("s3t.ledger.presence.Presence.do_meanwhile", lambda presence: None)
        yield


def state_of(folder):
    """What a user can tell a change by."""
    with s3t.Run.open(folder) as run:
        return len(run.log()), run.recipe.budget, roles(run).ledger.key_destroyed_at()


OPERATIONS = {
    "delete": lambda run: run.delete(records=["r3", "r4", "r5"]),
    "delete with a key": lambda run: run.delete(records=["r3", "r4"], key="ticket"),
    "extend": lambda run: run.extend(budget=4),
    "destroy-key": lambda run: run.destroy_key(),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory, text_model):
    folder = tmp_path_factory.mktemp("made") / "run"
    recipe = tiny.recipe(text_model, training={"epochs": 1}, partition={"shards": 1})
    with s3t.Run.create(folder, recipe=recipe, data=tiny.text_table()) as run:
        run.train()
    return folder


def refused(folder, operation, refusals):
    """The error of an operation on an open run, or None."""
    with s3t.Run.open(folder) as run:
        if operation == "extend":
            run.predict(["w1"])  # loads the model, which is not what is refused here
        with refusing(refusals):
            try:
                OPERATIONS[operation](run)
            except s3t.S3TError as error:
                return error
    return None


def check_every(step, operation, made, tmp_path, state, *, on):
    """What is said at every so-manieth call that is refused; whether something had changed, of all that was said."""
    before, told, at = state_of(made), set(), 1
    while True:
        folder = tmp_path / "run"
        tiny.copy_run(made, folder)
        shutil.rmtree(state, ignore_errors=True)
        refusals = Refusals(at=at, on=on)
        error = refused(folder, operation, refusals)
        after = state_of(folder)
        shutil.rmtree(folder)
        if error is not None:
            assert error.aftermath is not None, (at, str(error))
            assert error.aftermath.changed is (after != before), (at, str(error))
            assert ("nothing was changed" in str(error)) is (after == before), (at, str(error))
            assert "ree space" in str(error)
            told.add(error.aftermath.changed)
        if refusals.calls < at:
            return told
        at += step


EACH = [
    pytest.param(operation, 1, on, marks=pytest.mark.integration) for operation in OPERATIONS for on in (False, True)
]


@pytest.mark.parametrize(("operation", "step", "on"), [("extend", 13, True), ("destroy-key", 13, True), *EACH])
def test_refusals_say_what_is_true(operation, step, on, made, tmp_path, monkeypatch, state):
    """Of each transaction of a deletion, `test_told.py` tries it."""
    monkeypatch.setattr(protocol, "BATCH_NAMES", 2)
    monkeypatch.setattr(protocol, "PATIENCE_SECONDS", 0.0)
    told = check_every(step, operation, made, tmp_path, state, on=on)
    assert told if step > 1 else told == {False, True}


def test_two_places_that_refuse_at_once_tell_one_truth(made, tmp_path, monkeypatch):
    with s3t.Run.open(tiny.copy_run(made, tmp_path / "run")) as run:
        (run.path / "tmp").rmdir()
        (run.path / "tmp").write_text("no folder, so no temporary file can be written")
        monkeypatch.setattr("s3t.ledger.ledger.Ledger.wipe", _refuse_by_database)
        with pytest.raises(s3t.StorageError) as caught:
            run.delete(records=["r3"])
    told = str(caught.value)
    assert "storing the next version of a slice failed" in told
    assert "the ledger refused" in told
    assert told.count("the records are out of use already") == 1
    assert "nothing was changed" not in told


def test_an_extension_that_lost_the_disk_in_training_says_so_and_the_same_command_goes_on(made, tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with s3t.Run.open(tiny.copy_run(made, tmp_path / "run")) as run:
        with monkeypatch.context() as patch:
            patch.setattr("s3t.store.artifacts.Artifacts.put", refuse)
            with pytest.raises(s3t.StorageError) as caught:
                run.extend(budget=4)
        assert "the new orders or policy of repair are in run.json already" in str(caught.value)
        assert "nothing was changed" not in str(caught.value)
        assert (run.recipe.budget, run.status().missing > 0) == (4, True)
        assert run.extend(budget=4).missing == 0


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "Free space, then run the same command again"),
        (errno.EDQUOT, "Free space, or raise the quota, then"),
        (errno.EROFS, "its file system is mounted read-only, then"),
        (errno.EACCES, "Mend its permissions, then"),
        (errno.EIO, "Mend the disk, then"),
    ],
)
def test_the_remedy_fits_what_the_system_refused(number, remedy):
    with pytest.raises(s3t.StorageError) as caught, storage_errors("writing"):
        raise OSError(number, os.strerror(number), "/data/run/x")
    assert remedy in str(caught.value)
    assert number == errno.ENOSPC or number == errno.EDQUOT or "space" not in str(caught.value)


def _refuse_by_database(ledger):
    with ledger.writing() as transaction:
        transaction.rows.connection.exec_driver_sql("INSERT INTO notes (name) VALUES ('no value')")
