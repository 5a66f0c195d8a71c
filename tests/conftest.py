"""What all tests share: a place for real data, quiet and single-threaded libraries, tiny models, a PostgreSQL."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("S3T_REPAIR_NICE", "0")  # tests wait for repairs

import pytest
from hypothesis import settings

import s3t
from testing import tiny
from testing.postgres import PostgresServer

ROOT = Path(__file__).resolve().parent.parent

# A failed `assert` in a module that tests share shows its values, as in a test.
pytest.register_assert_rewrite(*(f"tests.{path.parent.name}" for path in (ROOT / "tests").glob("*/__init__.py")))

settings.register_profile("s3t", deadline=None)  # how long an example takes is the machine's business
settings.load_profile("s3t")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a PostgreSQL server is a test of integration. (One that asks for the server as it runs says so.)"""
    for item in items:
        if "postgres" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session", autouse=True)
def state_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs that tests share are remembered in a folder of the tests', never in the home of who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S3T_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def state(state_of_all: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Each test remembers for itself: a copy of a run that another test has deleted from is no restored backup."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:  # of its own: a test may undo its monkeypatch
        patch.setenv("S3T_STATE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def unfailed_disk() -> Iterator[None]:
    """An fsync that one test made fail stops that test's work, as it would stop a process, and no other test's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("s3t.store.disk._failed_fsync", [])
        yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data, or a skip that says where it was looked for."""
    folder = Path(os.environ.get("S3T_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} does not exist; set S3T_DATA to the folder that holds it")
    return folder


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_text_model(tmp_path_factory.mktemp("models") / "text")


@pytest.fixture(scope="session")
def image_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_image_model(tmp_path_factory.mktemp("models") / "image")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server, one a worker. A test makes databases of its own in it."""
    # Not below pytest's folder: that path is too long for a socket, and closed to the account that runs the server.
    folder = "/dev/shm" if tempfile.gettempdir() == "/dev/shm" else "/tmp"
    server = PostgresServer.start(Path(tempfile.mkdtemp(prefix="s3t-pg-", dir=folder)))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def trained_once(state_of_all: None, tmp_path_factory: pytest.TempPathFactory, text_model: Path) -> Path:
    """The folder of a small trained text run of 24 records, to be copied."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    with s3t.Run.create(folder, recipe=tiny.recipe(text_model), data=tiny.text_table()) as run:
        run.train()
    return folder


@pytest.fixture
def trained(tmp_path: Path, trained_once: Path) -> Iterator[s3t.Run]:
    """A small trained text run of 24 records, in tmp_path / "run"."""
    with s3t.Run.open(tiny.copy_run(trained_once, tmp_path / "run")) as run:
        yield run
