from pathlib import Path

import pytest

import s3t
from s3t_server.tokens import SCOPES, Access
from testing import tiny
from testing.served import serving


@pytest.fixture
def path(trained_once, tmp_path) -> Path:
    """A run's folder."""
    return tiny.copy_run(trained_once, tmp_path / "run")


@pytest.fixture
def tokens(path) -> dict[str, str]:
    """A token of each scope alone, and one of all."""
    with s3t.Run.open(path) as run:
        made = {scope: Access(run).create(scope, scopes=[scope])[1] for scope in SCOPES}
        made["all"] = Access(run).create("all", scopes=list(SCOPES))[1]
    return made


@pytest.fixture
def client(path, tokens):
    """Of a server; asks with all scopes."""
    with serving(path, hold_share=None) as client:  # tests delete most of a shard
        client.headers["Authorization"] = f"Bearer {tokens['all']}"
        yield client


@pytest.fixture(scope="module")
def unchanged(trained_once, state_of_all, tmp_path_factory) -> Path:
    """The folder of a run that no test of a module changes."""
    return tiny.copy_run(trained_once, tmp_path_factory.mktemp("unchanged") / "run")


@pytest.fixture(scope="module")
def reader(unchanged):
    """Of a server of that run, with narrow bounds, that asks nobody for a token."""
    bounds = {"max_inputs": 5, "max_names": 5, "max_body_bytes": 400_000, "body_seconds": 1.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S3T_STATE", str(unchanged.parent / "state"))  # another module may delete from its copy
        with serving(unchanged, open_scopes=tuple(SCOPES), repair=False, **bounds) as client:
            yield client
