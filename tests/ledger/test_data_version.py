"""A ledger that says whether anything was committed: of every kind of writer, and never too late."""

from contextlib import closing, contextmanager

import pytest

import s3t
from s3t.ledger import Ledger
from testing.roles import roles
from tests.ledger.world import accept, make_ledger, taking


def test_its_version_changes_with_every_commit_of_any_handle_and_with_nothing_else(trained):
    ledger = roles(trained).ledger
    before = ledger.version()
    with ledger.reading() as transaction:
        transaction.snapshot()
    assert ledger.version() == before
    seen = {before}
    for handle in (ledger, ledger.again()):
        with handle.writing() as transaction:
            transaction.touch()
        assert ledger.version() not in seen
        seen.add(ledger.version())


def test_a_snapshot_is_the_last_one_as_long_as_nobody_has_committed(tmp_path):
    with closing(make_ledger(tmp_path / "ledger.sqlite")) as ledger, closing(ledger.again()) as other:
        ledger.snapshot()
        first = ledger.snapshot()
        assert ledger.snapshot() is first
        assert ledger.snapshot(anew=True) is not first
        accept(other, taking(3))
        assert ledger.snapshot().generation == first.generation + 1


def test_a_deletion_right_after_the_ledger_was_read_is_seen_the_next_time(trained, monkeypatch):
    """The version that is kept with a state was asked before that was read."""
    ledger = roles(trained).ledger
    reading, once = Ledger.reading, []

    @contextmanager
    def overtaken(self):
        with reading(self) as transaction:
            yield transaction
        if self is ledger and not once:
            once.append(True)
            with s3t.Run.open(trained.path) as other:
                other.delete(records=["r3"])

    monkeypatch.setattr(Ledger, "reading", overtaken)
    first = ledger.snapshot(anew=True)
    assert ledger.snapshot().generation == first.generation + 1


def test_another_file_in_its_place_is_refused(trained):
    """Open connections would go on answering from the old one."""
    ledger = roles(trained).ledger
    database = trained.path / "ledger.sqlite"
    assert ledger.version() is not None
    copied = database.with_name("copied")
    copied.write_bytes(database.read_bytes())
    copied.replace(database)
    for ask in (ledger.version, ledger.snapshot, ledger.wipe, ledger.confirm):
        with pytest.raises(s3t.MovedError, match="another file was put in the place of"):
            ask()


def test_a_closed_ledger_tells_none(trained):
    ledger = roles(trained).ledger.again()
    assert ledger.version() is not None
    ledger.close()
    with pytest.raises(s3t.ClosedError):
        ledger.version()
