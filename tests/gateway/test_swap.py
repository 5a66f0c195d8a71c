"""What has to change in an engine, in every state of ledger and engine that can be."""

import hypothesis
from hypothesis import strategies as st

from s3t_server.gateway.swap import Swap

NAMES = [f"a{number}" for number in range(6)]
some = st.sets(st.sampled_from(NAMES))
by_shard = st.dictionaries(st.integers(0, 2), st.sampled_from(NAMES))


def swap(**changes):
    given = {"wanted": {}, "routed": {}, "listed": (), "doubtful": (), "tainted": (), "in_use": ()}
    return Swap(**given | changes)


def test_an_engine_that_is_as_it_should_be_is_left_alone():
    at_rest = swap(wanted={0: "a"}, routed={0: "a"}, listed=["a"], doubtful=["a"])
    assert (at_rest.loads, at_rest.routes, at_rest.leaving) == ([], {0: "a"}, [])


def test_an_engine_that_was_restarted_gets_all_of_them_again():
    empty = swap(wanted={0: "a", 1: "b"}, routed={0: "a", 1: "b"}, doubtful=["a", "b"])
    assert (empty.loads, empty.leaving) == (["a", "b"], [])


def test_an_old_adapter_stays_until_the_new_one_is_loaded_and_nobody_uses_it():
    state = {"wanted": {0: "b"}, "routed": {0: "a"}, "doubtful": ["a", "b"]}
    before = swap(**state, listed=["a"])
    assert (before.loads, before.routes, before.leaving) == (["b"], {0: "a"}, [])
    loaded = swap(**state, listed=["a", "b"], in_use=["a"])
    assert (loaded.routes, loaded.leaving) == ({0: "b"}, [])
    assert swap(**state, listed=["a", "b"]).leaving == ["a"]


def test_a_deleted_adapter_leaves_whether_or_not_a_new_one_is_loaded_and_listed_or_not():
    state = {"wanted": {0: "b"}, "routed": {0: "a"}, "doubtful": ["a"], "tainted": ["a"], "in_use": ["a"]}
    for listed in (["a"], []):
        assert (swap(**state, listed=listed).routes, swap(**state, listed=listed).leaving) == ({}, ["a"])


@hypothesis.given(by_shard, by_shard, some, some, some, some)
def test_in_every_state(wanted, routed, listed, doubtful, tainted, in_use):
    wanted = {shard: name for shard, name in wanted.items() if name not in tainted}
    state = swap(wanted=wanted, routed=routed, listed=listed, doubtful=doubtful, tainted=tainted, in_use=in_use)
    assert not {*state.routes.values()} & tainted
    assert not {*state.routes.values()} & {*state.leaving}
    assert {*state.leaving} >= (listed | doubtful) & tainted
    assert {*state.leaving} <= listed | doubtful
    assert not {*state.leaving} & {*wanted.values()}
    assert not {*state.loads} & listed
