"""The memory outside of the run folder, by itself: which lines are found, and what of a ledger it lacks."""

import os
import pwd
from pathlib import Path

import pytest

from s3t.deletion.witness import Witness, state_folder
from s3t.errors import StorageError
from tests.ledger.world import accept, make_ledger, taking, token

TOKEN, OTHER = bytes(range(32)), bytes(range(1, 33))


@pytest.fixture
def witness(tmp_path):
    return Witness(tmp_path / "a-run.deletions")


def marks(witness):
    return [(line.generation, line.mark) for line in witness.lines()]


def test_what_was_read_is_not_read_again_and_both_histories_of_a_generation_are_there(witness):
    assert witness.newest() == 0
    witness.path.touch()
    assert witness.newest() == 0
    witness.note({1: ("aa", [TOKEN], [])})
    assert marks(witness) == [(1, "aa")]
    other = Witness(witness.path)
    other.note({1: ("bb", [OTHER], [])})
    other.note({3: ("cc", [], [])})
    content = witness.path.read_bytes()
    with witness.path.open("r+b") as file:
        file.write(b"?")  # of the line that was read
    assert marks(witness) == [(1, "aa"), (1, "bb"), (3, "cc")]
    witness.path.write_bytes(content)
    assert witness.tokens(witness.lines()[1:]) == {OTHER: 1}
    assert witness.tokens() == {TOKEN: 1, OTHER: 1}


def test_a_file_that_was_put_in_its_place_is_read_anew(witness, tmp_path):
    witness.note({1: ("aa", [TOKEN], []), 2: ("bb", [TOKEN], [])})
    assert witness.newest() == 2
    Witness(tmp_path / "other").note({1: ("cc", [TOKEN] * 9, [])})
    (tmp_path / "other").rename(witness.path)
    assert marks(witness) == [(1, "cc")]
    os.truncate(witness.path, 0)
    assert marks(witness) == []
    witness.path.unlink()
    assert (witness.newest(), witness.tokens()) == (0, {})


def test_the_newest_is_not_the_last_where_another_process_noted_more_meanwhile(witness):
    witness.note({1: ("aa", [TOKEN] * 20, []), 2: ("bb", [TOKEN] * 20, [])})
    witness.note({1: ("aa", [TOKEN] * 20, [])})
    assert witness.newest() == 2


@pytest.mark.parametrize("cut", [1, 2, 40, 5000, "a hole"])
def test_a_long_line_that_a_crash_tore_was_not_noted_and_is_closed_off(witness, cut):
    """A power cut may leave zeros where a block was not written yet, although what comes after it was."""
    witness.note({1: ("aa", [TOKEN], []), 2: ("bb", [TOKEN] * 100, [])})
    content = bytearray(witness.path.read_bytes())
    content[-3000:-2000] = bytes(1000) if cut == "a hole" else content[-3000:-2000]
    witness.path.write_bytes(content if cut == "a hole" else content[:-cut])
    assert witness.newest() == (2 if cut == 1 else 1)  # all but the end of the line
    witness.note({2: ("bb", [TOKEN] * 100, [])})
    assert witness.newest() == 2
    assert witness.tokens() == {TOKEN: 2}


def test_without_a_home_the_memory_is_at_the_accounts_or_nowhere_but_never_in_the_present_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("S3T_STATE")
    account = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local" / "state" / "s3t"
    for home in (None, ""):
        monkeypatch.setenv("XDG_STATE_HOME", "relative")  # by XDG, as if it were not set
        monkeypatch.delenv("HOME", raising=False) if home is None else monkeypatch.setenv("HOME", home)
        assert state_folder() == account

    def unknown(_number):
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)  # a container whose user has no account
    with pytest.raises(StorageError, match="set S3T_STATE to a folder"):
        state_folder()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "s3t"


@pytest.fixture
def ledger(tmp_path):
    ledger = make_ledger(tmp_path / "ledger.sqlite")
    accept(ledger, taking(3))
    accept(ledger, taking(5))
    yield ledger
    ledger.close()


def test_all_that_is_not_noted_of_a_ledger_is_although_another_history_has_come_further(witness, ledger):
    """A process was killed between acceptance and note; then a copy noted a deletion of the same number."""
    with ledger.reading() as transaction:
        own = transaction.history.marks()
    witness.note({1: ("copy", [TOKEN], []), 2: (own[2], [], []), 3: ("copy", [], [])})
    witness.catch_up(ledger)
    assert marks(witness) == [(1, "copy"), (2, own[2]), (3, "copy"), (1, own[1])]
    accept(ledger, taking(1))
    witness.catch_up(ledger)
    Witness(witness.path).catch_up(ledger)
    assert [number for number, _ in marks(witness)] == [1, 2, 3, 1, 3]


def test_what_the_disk_refused_is_noted_the_next_time(witness, ledger, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("s3t.deletion.witness.append_durably", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(StorageError, match="full"):
            witness.catch_up(ledger)
    witness.catch_up(ledger)
    assert [number for number, _ in marks(witness)] == [1, 2]


def test_whether_somebody_asked_for_the_last_deletion_is_remembered(witness, ledger):
    """A later request is noted as a line of its own, without a generation of its own."""
    witness.note({1: ("aa", [TOKEN], [OTHER]), 2: ("bb", [], [TOKEN])})
    assert witness.last() == {TOKEN: (2, False), OTHER: (1, False)}
    assert witness.asked_late(0) == (set(), 0)
    witness.note_late({1: ("aa", [OTHER], []), 2: ("bb", [TOKEN], [])}, 1)
    witness.note_late({1: ("aa", [OTHER], [])}, 2)
    assert witness.last() == {TOKEN: (2, True), OTHER: (1, True)}
    assert witness.asked_late(0) == ({TOKEN, OTHER}, 2)
    assert witness.asked_late(1) == ({OTHER}, 2)


def test_a_late_request_does_not_stand_for_the_deletion_that_came_before(witness, ledger):
    """Another host's, say, which has noted it in a file of its own."""
    with ledger.reading() as transaction:
        deletions = transaction.history.deleted_since(0)
    witness.note_late({1: (deletions[1][0], [token(3)], [])}, 1)
    witness.catch_up(ledger)
    assert [(line.generation, line.late) for line in witness.lines()] == [(1, 1), (1, 0), (2, 0)]


def test_strangers_are_lines_of_deletions_that_the_ledger_has_not_made(witness, ledger):
    witness.catch_up(ledger)
    witness.note({1: ("copy", [TOKEN], []), 7: ("later", [], [])})
    with ledger.writing() as transaction:
        assert [(line.generation, line.mark) for line in witness.strangers(transaction)] == [(1, "copy"), (7, "later")]
