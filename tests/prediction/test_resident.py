"""Links stay in memory within a budget, and no longer than they may."""

import hashlib

import pytest
import torch

from s3t.models.adapters import Link
from s3t.prediction.ensemble import Kept, Resident
from s3t.store.artifacts import Artifact, Manifest, parent_of


def artifact(key, *, content=b"", above=None):
    parents = () if above is None else (parent_of(above.manifest),)
    made = {"shard": 0, "prefix": (0,), "slice_digests": (), "base_digest": "", "environment": {}, "parents": parents}
    numbers = {"seed": 0, "precision": "float32", "threads": 1, "steps": 0}
    manifest = Manifest(key=key, sha256=hashlib.sha256(content).hexdigest(), **made, **numbers)
    return Artifact(content=content, manifest=manifest)


class Store:
    """What is asked for is noted."""

    def __init__(self):
        self.prepared = []

    def prepare(self, made):
        self.prepared.append((made.manifest.key, made.content))
        return Link(block=1, updates={}, head={"classifier.weight": torch.zeros(25, dtype=torch.float16)})

    def chain(self, resident, *artifacts):
        keys = [made.manifest.key for made in artifacts]
        return resident.chain(keys, read=lambda: artifacts, prepare=self.prepare)


def test_what_is_in_memory_is_neither_read_nor_prepared_again_and_is_shared():
    resident, store = Resident(10_000), Store()
    top = artifact("top")
    left, right = artifact("left", above=top), artifact("right", above=top)
    first = store.chain(resident, top, left)
    assert store.chain(resident, top, right)[0] is first[0]
    assert store.prepared == [("top", b""), ("left", b""), ("right", b"")]
    assert store.chain(resident, top, left) == first
    assert len(store.prepared) == 3
    assert resident.used == 300


def test_a_stage_that_is_a_whole_model_by_itself_is_not_read_again_for_its_parent():
    resident, store = Resident(10_000), Store()
    last = artifact("last", above=artifact("first"))
    assert store.chain(resident, last) == store.chain(resident, last)
    assert store.prepared == [("last", b"")]


@pytest.mark.parametrize(
    ("budget", "left"), [(0, set()), (99, set()), (100, {"c"}), (250, {"a", "c"}), (300, set("abc"))]
)
def test_those_used_longest_ago_go_first(budget, left):
    resident, store = Resident(budget), Store()
    for key in "abac":
        assert len(store.chain(resident, artifact(key))) == 1
    assert resident.keys == left
    assert resident.used == 100 * len(left) <= budget


def test_what_is_not_alive_any_more_is_dropped():
    resident, store = Resident(10_000), Store()
    for key in "abc":
        store.chain(resident, artifact(key))
    resident.keep({"b", "d"})
    assert resident.keys == {"b"}
    assert resident.used == 100
    store.chain(resident, artifact("a"))
    assert [key for key, _ in store.prepared] == ["a", "b", "c", "a"]


def test_a_link_whose_parent_was_stored_again_with_other_bytes_is_read_anew():
    """The key does not say on which bytes a stage was trained."""
    resident, store = Resident(10_000), Store()
    old, new = artifact("top", content=b"old"), artifact("top", content=b"new")
    store.chain(resident, old, artifact("left", above=old))
    store.chain(resident, new, artifact("right", above=new))
    assert store.prepared[2:] == [("top", b"new"), ("right", b"")]
    again = artifact("left", content=b"trained again", above=new)
    store.chain(resident, new, again)
    assert store.prepared[4:] == [("left", b"trained again")]
    assert resident.used == 300


def test_of_heads_what_is_used_stays_and_what_is_not_leaves():
    kept, computed = Kept(2), []
    for keys in [("a",), ("b",), ("a",), ("c",), ("a",)]:
        kept.of(keys, lambda keys=keys: computed.append(keys) or keys)
    assert computed == [("a",), ("b",), ("c",)]
