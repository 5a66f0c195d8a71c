"""The memory outside of the run folder, by itself: what is found at its end, whatever length its lines have."""

import io
import os
from pathlib import Path

import pytest

from s3t.deletion import witness as module
from s3t.deletion.witness import Witness

TOKEN = bytes(range(32))


@pytest.fixture
def witness(tmp_path):
    return Witness(tmp_path / "a-run.deletions")


@pytest.fixture
def bytes_read(monkeypatch):
    """How many bytes were asked of files that are read, one entry a call."""
    read = []

    class Counting(io.BufferedReader):
        def read(self, size=-1):
            content = super().read(size)
            read.append(len(content))
            return content

    monkeypatch.setattr(Path, "open", lambda path, mode: Counting(io.FileIO(path, mode)))
    return read


def test_the_newest_line_is_found_although_it_is_much_longer_than_a_step(witness, bytes_read, monkeypatch):
    """Each byte is read once: a line of twenty steps used to be read twenty times, and searched as often."""
    monkeypatch.setattr(module, "_STEP_BYTES", 4096)
    witness.note({1: ("aa", [TOKEN]), 2: ("bb", [TOKEN] * 1300)})
    size = witness.path.stat().st_size
    assert size > 20 * 4096
    assert witness.newest() == (2, "bb")
    assert sum(bytes_read) <= size


def test_of_a_file_of_short_lines_the_end_alone_is_read(witness, bytes_read, monkeypatch):
    monkeypatch.setattr(module, "_STEP_BYTES", 4096)
    witness.note({number: ("aa", [TOKEN]) for number in range(1, 1000)})
    assert witness.newest() == (999, "aa")
    assert sum(bytes_read) <= 3 * 4096


def test_lines_are_found_wherever_a_step_begins(witness, monkeypatch):
    witness.note({1: ("aa", []), 2: ("bb", [TOKEN])})
    content = witness.path.read_bytes()
    for step in range(1, len(content) + 2):
        monkeypatch.setattr(module, "_STEP_BYTES", step)
        assert witness.newest() == (2, "bb")
        assert [*module._lines_backwards(io.BytesIO(content))] == [*reversed(content.split(b"\n"))]


def test_the_newest_is_not_the_last_where_another_process_noted_more_meanwhile(witness, monkeypatch):
    """However long the last line is."""
    monkeypatch.setattr(module, "_STEP_BYTES", 256)
    witness.note({1: ("aa", [TOKEN] * 20), 2: ("bb", [TOKEN] * 20)})
    witness.note({1: ("aa", [TOKEN] * 20)})
    assert witness.newest() == (2, "bb")


def test_of_two_histories_of_one_generation_the_one_noted_last_counts(witness):
    witness.note({1: ("aa", [TOKEN])})
    witness.note({1: ("bb", [TOKEN])})
    assert witness.newest() == (1, "bb")


@pytest.mark.parametrize("cut", [1, 2, 3, 40, 5000])
def test_a_long_line_that_a_crash_tore_was_not_noted_and_is_closed_off(witness, monkeypatch, cut):
    monkeypatch.setattr(module, "_STEP_BYTES", 256)
    witness.note({1: ("aa", [TOKEN]), 2: ("bb", [TOKEN] * 100)})
    os.truncate(witness.path, witness.path.stat().st_size - cut)
    whole = cut == 1  # all but the end of the line
    assert witness.newest() == ((2, "bb") if whole else (1, "aa"))
    witness.note({2: ("bb", [TOKEN] * 100)})
    assert witness.newest() == (2, "bb")
    assert witness.tokens() == [TOKEN]


def test_a_line_with_a_hole_was_not_noted(witness):
    """A power cut may leave zeros where a block was not written yet, although what comes after it was."""
    witness.note({1: ("aa", [TOKEN]), 2: ("bb", [TOKEN] * 100)})
    content = bytearray(witness.path.read_bytes())
    content[-3000:-2000] = bytes(1000)
    witness.path.write_bytes(content)
    assert witness.newest() == (1, "aa")


def test_nothing_was_noted(witness):
    assert witness.newest() == (0, "")
    witness.path.touch()
    assert witness.newest() == (0, "")
