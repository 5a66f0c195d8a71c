import logging

import pytest

import s3t
from s3t.deletion import protocol
from s3t_server.gateway import keeper
from testing import tiny
from testing.engine import base_model, running
from testing.served import serving
from tests.gateway import ready, until
from tests.models.kinds import LLAMA, model_of_kind


@pytest.fixture(scope="session")
def engine_model(tmp_path_factory):
    """A tiny Llama: transformers' classifier of it has one linear module as its head, as vLLM needs it."""
    folder = tmp_path_factory.mktemp("models")
    text_model = tiny.make_text_model(folder / "text")
    return model_of_kind("llama", text_model, folder / "llama", **LLAMA, pad_token_id=0)


@pytest.fixture(scope="session")
def trained_for_engines(state_of_all, tmp_path_factory, engine_model):
    folder = tmp_path_factory.mktemp("trained") / "run"
    with s3t.Run.create(folder, recipe=tiny.recipe(engine_model), data=tiny.text_table()) as run:
        run.train()
    return folder


@pytest.fixture
def path(trained_for_engines, tmp_path):
    """A run's folder."""
    return tiny.copy_run(trained_for_engines, tmp_path / "run")


@pytest.fixture(scope="session")
def base(engine_model):
    return base_model(engine_model, labels=3)


@pytest.fixture
def server(base):
    """An engine's server, to stop and start."""
    with running(base) as server:
        yield server


@pytest.fixture
def engine(server):
    """Of that server."""
    return server.engine


@pytest.fixture
def folder(tmp_path):
    """The folder that gateway and engine see."""
    return tmp_path / "adapters"


@pytest.fixture
def beside(path, server, folder, caplog):
    """Starts a gateway: a client of a server of the run, beside the engine."""
    caplog.set_level(logging.INFO, "s3t_server.gateway")

    def start(**settings):
        given = {"engine": server.url, "engine_adapters": folder, "repair": False, "hold_share": None} | settings
        return serving(path, open_scopes=("predict", "delete", "operate", "audit"), **given)

    return start


@pytest.fixture
def client(beside):
    """Of a gateway that is ready."""
    with beside() as client:
        until(lambda: ready(client))
        yield client


@pytest.fixture
def impatient(monkeypatch):
    """A deletion is answered soon, also where the engine holds it up, and the keeper tries often."""
    monkeypatch.setattr(protocol, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(keeper, "_LONGEST_PAUSE", 0.2)


@pytest.fixture
def hasty(impatient, beside):
    """As `client`, of a gateway that does not wait long for the engine either."""
    with beside(engine_seconds=2.0) as client:
        until(lambda: ready(client))
        yield client
