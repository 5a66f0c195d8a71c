"""What has to change in an engine, in every state of ledger and engine that can be."""

import hypothesis
from hypothesis import strategies as st

from s3t_server.gateway.keeper import leaving_of, routes_of

NAMES = [f"a{number}" for number in range(6)]
some = st.sets(st.sampled_from(NAMES))
by_shard = st.dictionaries(st.integers(0, 2), st.sampled_from(NAMES))


def changes(wanted, routed, *, listed=(), doubtful=(), tainted=(), in_use=()):
    """Routes, and what leaves."""
    routes = routes_of(wanted, routed, listed=listed, tainted=tainted)
    return routes, leaving_of({*listed, *doubtful}, wanted, routes, in_use=in_use, tainted=tainted)


def test_an_old_adapter_stays_until_the_new_one_is_loaded_and_nobody_uses_it():
    state = {"wanted": {0: "b"}, "routed": {0: "a"}, "doubtful": ["a", "b"]}
    assert changes(**state, listed=["a"]) == ({0: "a"}, [])
    assert changes(**state, listed=["a", "b"], in_use=["a"]) == ({0: "b"}, [])
    assert changes(**state, listed=["a", "b"])[1] == ["a"]
    assert changes({0: "b"}, {0: "b"}, doubtful=["b"]) == ({0: "b"}, [])  # the engine was restarted


def test_a_deleted_adapter_leaves_whether_or_not_a_new_one_is_loaded_and_listed_or_not():
    state = {"wanted": {0: "b"}, "routed": {0: "a"}, "doubtful": ["a"], "tainted": ["a"], "in_use": ["a"]}
    for listed in (["a"], []):
        assert changes(**state, listed=listed) == ({}, ["a"])


@hypothesis.given(by_shard, by_shard, some, some, some, some)
def test_in_every_state(wanted, routed, listed, doubtful, tainted, in_use):
    wanted = {shard: name for shard, name in wanted.items() if name not in tainted}
    routes, leaving = changes(wanted, routed, listed=listed, doubtful=doubtful, tainted=tainted, in_use=in_use)
    assert not {*routes.values()} & tainted
    assert not {*routes.values()} & {*leaving}
    assert {*leaving} >= (listed | doubtful) & tainted
    assert {*leaving} <= listed | doubtful
    assert not {*leaving} & {*wanted.values()}
