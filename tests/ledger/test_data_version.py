"""A ledger that says whether anything was committed: of every kind of writer, and never too late."""

from contextlib import closing, contextmanager

import pytest

from s3t.errors import ClosedError, MovedError
from s3t.ledger import Ledger
from tests.ledger.world import accept, taking


@pytest.fixture
def address(tmp_path):
    """In SQLite alone."""
    return tmp_path / "ledger.sqlite"


def test_its_version_changes_with_every_commit_of_any_handle_and_with_nothing_else(ledger, other):
    before = ledger.version()
    with ledger.reading() as transaction:
        transaction.snapshot()
    assert ledger.version() == before
    seen = {before}
    for handle in (ledger, other):
        with handle.writing() as transaction:
            transaction.touch()
        assert ledger.version() not in seen
        seen.add(ledger.version())


def test_a_snapshot_is_the_last_one_as_long_as_nobody_has_committed(ledger, other):
    ledger.snapshot()
    first = ledger.snapshot()
    assert ledger.snapshot() is first
    assert ledger.snapshot(anew=True) is not first
    accept(other, taking(3))
    assert ledger.snapshot().generation == first.generation + 1


def test_a_deletion_right_after_the_ledger_was_read_is_seen_the_next_time(ledger, other, monkeypatch):
    """The version that is kept with a state was asked before that was read."""
    reading, once = Ledger.reading, []

    @contextmanager
    def overtaken(self):
        with reading(self) as transaction:
            yield transaction
        if not once:
            once.append(True)
            accept(other, taking(3))

    monkeypatch.setattr(Ledger, "reading", overtaken)
    first = ledger.snapshot(anew=True)
    assert ledger.snapshot().generation == first.generation + 1


def test_another_file_in_its_place_is_refused(ledger, address):
    """Open connections would go on answering from the old one."""
    assert ledger.version() is not None
    copied = address.with_name("copied")
    copied.write_bytes(address.read_bytes())
    copied.replace(address)
    for ask in (ledger.version, ledger.snapshot, ledger.wipe, ledger.confirm):
        with pytest.raises(MovedError, match="another file was put in the place of"):
            ask()


def test_a_closed_ledger_tells_none(ledger):
    with closing(ledger.again()) as again:
        assert again.version() is not None
    with pytest.raises(ClosedError):
        again.version()
