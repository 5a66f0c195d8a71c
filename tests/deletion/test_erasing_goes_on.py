"""Erasure that is cut short goes on in a run that is open already, and the ledger notes nothing as gone before it is.

A run that is opened again lists its store, and removes what the ledger does not name: that may hide a wrong order.
"""

import json
import os
import platform
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

import s3t
from s3t.core import Place, Stage
from s3t.deletion import protocol
from s3t.export.folders import files_in, folder_name
from s3t.ledger import Clone, ExportRow, Ledger, Transaction
from s3t.ledger.exports import ExportRows
from s3t.ledger.rows import Rows
from s3t.store.artifacts import Artifacts, blobs_of
from s3t.store.disk import temporary_name
from s3t.store.folder import lasting_identity
from s3t.store.slices import Slices, version_name
from testing import tiny
from testing.roles import roles
from testing.trained import commit
from tests.deletion.scanner import found_in, spellings
from tests.slice_files import read_slice

STAGES = {Stage(0, (0,)): "e" * 64, Stage(0, (1,)): "f" * 64}
HIT = Place(0, 0)
CLONES = [f".clone-{number}.init-{temporary_name(2**30)}" for number in range(2)]
"""Their processes are gone."""


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def made(text_model, tmp_path_factory):
    """A run of one shard and two slices, without stages."""
    recipe = tiny.recipe(text_model, partition={"shards": 1, "slices": 2}, sequences={"budget": 2})
    folder, table = tmp_path_factory.mktemp("made") / "run", tiny.text_table()
    table["id"] = [f"id{row:02d}w" for row in range(len(table))]
    table["text"] = [f"{text} {word_of(name)}" for text, name in zip(table.text, table.id, strict=True)]
    s3t.Run.create(folder, recipe=recipe, data=table).close()
    return folder


def word_of(record):
    """A word that is in this record's text alone."""
    return f"qz{record}zq"


@pytest.fixture
def run(made, tmp_path, monkeypatch):
    """With stages whose files hold no tensors, and an export of each stage."""
    monkeypatch.setattr("s3t.ledger.presence.POLL_SECONDS", 3600.0)
    with s3t.Run.open(tiny.copy_run(made, tmp_path / "run")) as run:
        with roles(run).ledger.writing() as transaction:
            for stage, key in STAGES.items():
                for name in blobs_of(stage.shard, key):
                    write(run.path / "artifacts" / name)
                assert commit(transaction, stage, key)
        yield run


def write(path, content="of the record"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


@pytest.fixture
def other(run):
    """The run as another process has it open, since before the deletion."""
    with s3t.Run.open(run.path) as other:
        yield other


def leave_clones(run):
    """As processes do that are killed."""
    with roles(run).ledger.writing() as transaction:
        for name in CLONES:
            path = write(run.path.parent / "clones" / name / "records").parent
            beside = lasting_identity(path.parent)
            transaction.rows.add(Clone(path=path, host=platform.node(), beside=beside))


def exported(run, output, stage):
    """An export that holds the file of one stage."""
    part = write(output / "part" / "adapter_model.safetensors", STAGES[stage]).parent
    files = files_in(part)
    name = folder_name(stage.shard, files)
    part.rename(output / name)
    now = roles(run).ledger.snapshot()
    export = ExportRow(
        mark=f"machine-1-{stage.prefix[0]}",
        name=name,
        host=platform.node(),
        output=output,
        stage=stage,
        keys=(STAGES[stage],),
        digests=now.digests(stage),
        files=json.dumps(files),
        announced_at=0.0,
        made_at=None,
        withdrawn_at=None,
    )
    with roles(run).ledger.writing() as transaction:
        assert transaction.exports.announce(export, transaction.snapshot())
        transaction.exports.name(export)
        assert transaction.exports.commit(export, transaction.snapshot())
    return export


def record_of(run, place=HIT):
    return read_slice(run.path / "slices", place, roles(run).secret).rows["record"].to_pylist()[0]


def gone(paths):
    return [path for path in paths if path.exists()] == []


@pytest.fixture(autouse=True)
def truthful(run, monkeypatch):
    """Whenever the ledger notes that something is gone, it is."""
    superseding = []

    def noting(where, name, paths_of):
        function = getattr(where, name)

        def look(self, *args, **named):
            if not superseding:
                assert gone(paths_of(self, *args, **named))
            return function(self, *args, **named)

        monkeypatch.setattr(where, name, look)

    def removed(_self, artifacts=(), *, versions=(), **_how):
        names = [f"artifacts/{name}" for each in artifacts for name in blobs_of(*each)]
        return [run.path / name for name in names + [f"slices/{version_name(*each)}" for each in versions]]

    def withdrawn(self, marks):
        return [self._rows.find(ExportRow, mark=mark).path for mark in marks]

    def walked(transaction, _generation):
        work = transaction.to_erase(received_by=-1.0)
        return [*removed(None, work.artifacts, versions=work.versions), *(run.path / "tmp").iterdir()]

    supersede = Transaction.supersede

    def moving(self, *args, **named):  # the version that is current now is condemned no longer
        superseding.append(True)
        try:
            return supersede(self, *args, **named)
        finally:
            superseding.pop()

    monkeypatch.setattr(Transaction, "supersede", moving)
    noting(Transaction, "note_removed", removed)
    noting(Transaction, "note_walked", walked)
    noting(Rows, "discard", lambda _self, clones: [clone.path for clone in clones])
    noting(ExportRows, "withdraw", withdrawn)


def assert_nothing_is_left(run, record):
    """Of the record's words, in any file and spelling, nor of what was trained on its slice."""
    words = {word: spellings(word) for word in (record, word_of(record))}
    folders = run.path, Path(os.environ["S3T_STATE"])
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert {path: found for path in files if (found := found_in(path, words))} == {}
    assert [path for path in run.path.glob("artifacts/*/*") if STAGES[Stage(0, (0,))] in path.name] == []
    assert gone([run.path.parent / "clones" / name for name in CLONES])
    assert [*(run.path / "tmp").iterdir()] == []
    assert {entry.state for entry in run.log()[1:]} == {"erased"}


STEPS = {
    "artifacts": (Artifacts, "erase"),
    "next version": (Slices, "put"),
    "pointer": (Transaction, "supersede"),
    "old version": (Slices, "erase"),
    "note of removal": (Transaction, "note_removed"),
    "clones": (protocol, "remove_left"),
    "log": (Ledger, "wipe"),
    "note of the walk": (Transaction, "note_walked"),
    "end": (Transaction, "settle"),
}


CUTS = [("before", step, "is open beside it") for step in STEPS]
CUTS += [("after", step, "deletes again") for step in ("next version", "old version", "log")]


@pytest.mark.parametrize(("when", "step", "goes_on"), CUTS)
def test_erasure_that_was_cut_short_at_any_step_goes_on(run, other, when, step, goes_on):
    where, name = STEPS[step]
    function, record, kept = getattr(where, name), record_of(run), record_of(run, Place(0, 1))
    leave_clones(run)

    def cut(*args, **named):
        if when == "after":
            function(*args, **named)
        raise Killed

    with patch.object(where, name, cut), pytest.raises(Killed):
        run.delete(records=[record])
    if goes_on == "deletes again":
        run.delete(records=[kept])
    else:
        roles(other).upkeep.erase_due()
    assert_nothing_is_left(run, record)
    assert record_of(run) != record


def test_an_export_is_withdrawn_when_its_files_are_gone_and_not_before(run, tmp_path):
    export, spared = (exported(run, tmp_path / "out", stage) for stage in STAGES)
    record = record_of(run)
    run.delete(records=[record])
    assert (export.path.exists(), spared.path.exists()) == (False, True)
    run.withdraw(export.label)
    assert_nothing_is_left(run, record)
    with pytest.raises(s3t.InputError, match="is still there"):
        run.withdraw(spared.label)
    assert [each.name for each in run.status().exports] == [spared.name]


def test_an_operator_that_says_that_clones_are_gone_is_not_believed_of_those_on_this_host(run):
    record = record_of(run)
    leave_clones(run)
    refused = pytest.raises(s3t.StorageError, match="no such device")
    with patch.object(protocol, "remove_left", side_effect=OSError(5, "no such device")), refused:
        run.delete(records=[record])
    roles(run).eraser.forget_clones()
    with closing(roles(run).ledger.again()) as ledger, ledger.reading() as transaction:
        assert {clone.path.name for clone in transaction.rows.all(Clone)} == set(CLONES)
    run.erase(clones_are_gone=True)
    assert_nothing_is_left(run, record)
