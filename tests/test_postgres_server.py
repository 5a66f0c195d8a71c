"""The server that the tests of PostgreSQL use is a real one, durable, and leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import sqlalchemy

from testing import postgres as places
from testing.postgres import PostgresServer

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


def test_two_databases_know_nothing_of_each_other(postgres):
    engines = [sqlalchemy.create_engine(postgres.create_database(name)) for name in ("one", "two")]
    for number, engine in enumerate(engines):
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE t (x integer)"))
            connection.execute(sqlalchemy.text("INSERT INTO t VALUES (:x)"), {"x": number})
    for number, engine in enumerate(engines):
        with engine.connect() as connection:
            assert connection.execute(sqlalchemy.text("SELECT x FROM t")).scalars().all() == [number]
        engine.dispose()


def test_the_server_is_durable_and_off_the_network(postgres):
    assert shown(postgres.url(), "fsync") == "on"
    assert shown(postgres.url(), "synchronous_commit") == "on"
    assert shown(postgres.url(), "full_page_writes") == "on"
    assert shown(postgres.url(), "listen_addresses") == ""
    assert Path(shown(postgres.url(), "data_directory")) == postgres.data


def test_the_package_s_binaries_serve_and_stopping_removes_everything(short):
    found = places.package_binaries()
    assert found is not None
    server = PostgresServer.start(short / "p", found=found)
    assert int(shown(server.url(), "server_version").partition(".")[0]) >= 16
    assert any(server.data.glob("pg_wal/*"))
    idle = sqlalchemy.create_engine(server.url()).connect()  # a client does not keep it from stopping
    server.stop()
    server.stop()
    idle.invalidate()
    assert gone(server.pid)
    assert list(short.iterdir()) == []


def test_binaries_that_the_server_s_account_may_not_enter_are_copied(short, tmp_path):
    found = places.package_binaries()
    package = found.parent.parent
    closed = short / "closed"
    shutil.copytree(found.parent, closed / package.name / found.parent.name)
    shutil.copytree(package.with_name(f"{package.name}.libs"), closed / f"{package.name}.libs")
    closed.chmod(0o700)
    server = PostgresServer.start(short / "p", found=closed / package.name / found.parent.name / "bin")
    running = Path(f"/proc/{server.pid}/exe").resolve()
    server.stop()
    assert running.is_relative_to(short / "p" if os.geteuid() == 0 else closed)
    assert list(short.iterdir()) == [closed]


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
    end = time.monotonic() + 30
    while list(short.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    assert gone(server)
    assert list(short.iterdir()) == []


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(short):
    with pytest.raises(RuntimeError, match=r"did not start: [\s\S]* is too long"):
        PostgresServer.start(short / ("p" * 90))
    assert list(short.iterdir()) == []


def test_a_server_that_cannot_be_made_leaves_nothing_either(short):
    (short / "p").mkdir()
    (short / "p" / "data").write_text("in the way")
    with pytest.raises(RuntimeError, match="initdb failed: "):
        PostgresServer.start(short / "p")
    assert list(short.iterdir()) == []


def test_without_any_postgresql_the_tests_fail_and_say_what_to_install(monkeypatch):
    monkeypatch.setattr(places, "machine_binaries", lambda: None)
    monkeypatch.setattr(places, "PACKAGE", "no_such_package")
    with pytest.raises(RuntimeError, match="install the test extra"):
        places.binaries()
