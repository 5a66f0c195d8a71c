"""The server that the tests of PostgreSQL use is a real one, durable, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import sqlalchemy

from testing import postgres as places
from testing.postgres import PostgresServer
from testing.served import wait_for

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.integration


@pytest.fixture
def short():
    """A folder with a short path that every account may pass through to; pytest's are neither."""
    with tempfile.TemporaryDirectory(prefix="s3t-pg-", dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def shown(url, setting):
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        value = connection.execute(sqlalchemy.text(f"SHOW {setting}")).scalar_one()
    engine.dispose()
    return value


def gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_server_is_durable_and_off_the_network(postgres):
    wanted = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "listen_addresses": ""}
    assert {setting: shown(postgres.url(), setting) for setting in wanted} == wanted
    assert Path(shown(postgres.url(), "data_directory")) == postgres.data


def test_a_server_whose_tests_are_killed_goes_with_them(short):
    code = (
        "import sys, time; from pathlib import Path; from testing.postgres import PostgresServer\n"
        f"print(PostgresServer.start(Path({str(short / 'p')!r})).pid, flush=True); time.sleep(600)"
    )
    tests = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    server = int(tests.stdout.readline())
    assert not gone(server)
    tests.send_signal(signal.SIGKILL)
    tests.communicate()
    wait_for(lambda: gone(server) and not [*short.iterdir()])


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(short):
    with pytest.raises(RuntimeError, match=r"did not start: [\s\S]* is too long"):
        PostgresServer.start(short / ("p" * 90), found=places.package_binaries())
    assert list(short.iterdir()) == []
