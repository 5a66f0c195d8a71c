"""Bytes that wait on the disk have no name, come back by key, and go with the file."""

import os

import pytest

from s3t.store.spill import Spill


def test_chunks_come_back_by_key_in_their_order(tmp_path):
    with Spill(tmp_path) as spill:
        for key, content in [(1, b"a"), (0, b""), (1, b"bc"), (7, b"x" * 100_000)]:
            spill.add(key, content)
        assert [list(spill.chunks(key)) for key in (0, 1, 2, 7)] == [[b""], [b"a", b"bc"], [], [b"x" * 100_000]]


def test_the_file_has_no_name_and_only_its_owner_reads_it(tmp_path):
    with Spill(tmp_path / "not there" / "yet") as spill:
        assert list(spill.chunks(0)) == []
        spill.add(0, b"a record")
        assert not list(tmp_path.iterdir())
        state = os.fstat(spill._file.fileno())
        assert (state.st_nlink, state.st_mode & 0o777, state.st_dev) == (0, 0o600, tmp_path.stat().st_dev)


def test_the_file_is_given_back(tmp_path):
    with Spill(tmp_path) as spill:
        spill.add(0, b"a record")
        descriptor = spill._file.fileno()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert list(spill.chunks(0)) == []


def test_a_chunk_that_is_shorter_than_it_was_is_an_error(tmp_path):
    with Spill(tmp_path) as spill:
        spill.add(0, b"a record")
        os.ftruncate(spill._file.fileno(), 3)
        with pytest.raises(OSError, match="3 bytes of 8"):
            list(spill.chunks(0))
