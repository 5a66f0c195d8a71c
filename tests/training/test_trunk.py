"""The trunk cache keeps within its budgets, whatever is asked of it."""

import pytest
import torch

from s3t.core import Place
from s3t.errors import StorageError
from s3t.training.examples import SliceStates, TrunkCache

ROW = torch.zeros(1, 4)  # 16 bytes
PLACES = [Place(0, number) for number in range(6)]


def make(tmp_path, *, memory=0, disk=0):
    return TrunkCache(memory=memory, disk=disk, folder=tmp_path / "tmp")


def put(cache, number, *, tokens=10, border=1, digest="d", needed=()):
    """States of a slice that tell it from the others."""
    names = {(PLACES[other], 1) for other in needed} | {(PLACES[number], border)}
    room, on_disk = cache.room(tokens, ROW, needed=names)
    room.fill_(number)
    states = SliceStates(digest=digest, packed=room, starts=[0], lengths=[tokens], on_disk=on_disk)
    cache.put((PLACES[number], border), states)


def held(cache, number, *, border=1, digest="d"):
    found = cache.find(PLACES[number], border, digest)
    return None if found is None else found.of(0).unique().tolist()


def test_what_was_used_least_recently_moves_to_the_disk_and_then_goes(tmp_path):
    cache = make(tmp_path, memory=320, disk=160)
    for number in (0, 1):
        put(cache, number)
    assert held(cache, 0) == [0.0]  # used again: 1 is the older one now
    put(cache, 2)
    assert (cache.used(on_disk=False), cache.used(on_disk=True)) == (320, 160)
    put(cache, 3)
    assert (cache.used(on_disk=False), cache.used(on_disk=True)) == (320, 160)
    assert [held(cache, number) for number in range(4)] == [[0.0], None, [2.0], [3.0]]
    assert list((tmp_path / "tmp").iterdir()) == []  # its files have no name


def test_what_the_stage_needs_stays(tmp_path):
    cache = make(tmp_path, memory=160, disk=160)
    put(cache, 0)
    put(cache, 1, needed=[0])
    assert [held(cache, number) for number in (0, 1)] == [[0.0], [1.0]]
    with pytest.raises(StorageError, match=r"cache_memory is .*recipe\.yaml"):
        put(cache, 2, needed=[0, 1])
    assert [held(cache, number) for number in (0, 1)] == [[0.0], [1.0]]


def test_what_is_larger_than_memory_lies_on_the_disk_at_once(tmp_path):
    cache = make(tmp_path, memory=320, disk=480)
    put(cache, 0)
    put(cache, 1, tokens=30)
    assert (cache.used(on_disk=False), cache.used(on_disk=True)) == (160, 480)
    assert [held(cache, number) for number in (0, 1)] == [[0.0], [1.0]]


def test_nothing_goes_for_what_nobody_needs(tmp_path):
    cache = make(tmp_path, memory=160, disk=160)
    put(cache, 0)
    put(cache, 1)
    assert cache.room(1, ROW, needed=(), evict=False) is None
    assert make(tmp_path, memory=16).room(1, ROW, needed=(), evict=False) is not None
    room, on_disk = make(tmp_path, memory=15, disk=16).room(1, ROW, needed=(), evict=False)
    assert on_disk
    assert room.shape == ROW.shape


@pytest.mark.parametrize("on_disk", [False, True])
def test_another_digest_is_another_slice_and_the_stale_goes(tmp_path, on_disk):
    """With its memory, or its file, which has no name."""
    cache = make(tmp_path, memory=0, disk=640) if on_disk else make(tmp_path, memory=640, disk=0)
    for number in (0, 1, 2):
        put(cache, number)
    assert cache.used(on_disk=on_disk) == 480
    assert held(cache, 0, digest="later") is None
    cache.keep({PLACES[0]: "later", PLACES[1]: "d"})  # and the third is losing a record
    assert cache.places == {PLACES[1]}
    assert cache.used(on_disk=on_disk) == 160
    put(cache, 0)
    cache.forget([PLACES[1]])
    assert cache.places == {PLACES[0]}
    assert cache.used(on_disk=on_disk) == 160
    cache.forget(PLACES)
    assert not cache.places
    assert cache.used(on_disk=on_disk) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_disk_gives_back_what_was_put_there(tmp_path, dtype):
    cache = make(tmp_path, disk=10_000)
    drawn = torch.randn(7, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    room, on_disk = cache.room(7, drawn, needed=())
    room.copy_(drawn)
    assert on_disk
    assert torch.equal(room, drawn)
    empty, _ = cache.room(0, drawn, needed=())
    assert empty.shape == (0, 4)


def test_a_disk_without_room_is_no_crash(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(StorageError, match="making room for the trunk cache"):
        make(tmp_path, disk=1000).room(1, ROW, needed=())
