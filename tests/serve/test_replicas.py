"""Three replicas on one ledger in PostgreSQL, one stopped in the middle of its work for longer than its lease.

Each runs in a process namespace of its own, as in a container, so that each counts as a host (`this_machine`).
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from datetime import datetime

import psutil
import psycopg
import pytest
from psycopg import sql

import s3t
from s3t.ledger import PostgresAddress
from s3t.ledger.engines import parsed, postgres_engine
from s3t.ledger.locks import RunLock, database_lock, hold
from s3t.ledger.sessions import LEASE_SECONDS
from s3t_server.tokens import Access
from testing import tiny
from testing.served import bearer, wait_for
from tests.serve.test_metrics import gauges
from tests.serve.test_server import SECONDS, server

pytestmark = pytest.mark.integration
ANOTHER_HOST = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
if os.geteuid():
    ANOTHER_HOST += ["--user", "--map-root-user"]
PROGRAM = [*ANOTHER_HOST, sys.executable, "-m"]
# One that is stopped within a transaction keeps locks or removed rows until PostgreSQL ends that. It is not tried here.
IN_TRANSACTION = """
    SELECT count(*) FROM pg_stat_activity
    WHERE state LIKE 'idle in transaction%' AND state_change < clock_timestamp() - interval '0.5 seconds'
"""


@pytest.fixture(scope="module", autouse=True)
def hosts():
    tried = subprocess.run([*ANOTHER_HOST, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no namespaces here: {tried.stderr.strip()}")


class World:
    """A run in PostgreSQL, and what its ledger says."""

    def __init__(self, folder, recipe, url):
        with s3t.Run.create(folder / "run", recipe=recipe, data=tiny.text_table()) as run:
            run.train()
            self.path, self.url = run.path, url
            self.schema = f"s3t_{run.parts.description.run}"
            self.secret = Access(run).create("tests", scopes=["predict", "delete", "operate"])[1]
            answered_by = run.predict(["w1"]).members
            first = {(member.shard, member.prefix[0]) for member in answered_by}
            held = {name: run.locate(records=[name])[0].places[0] for name in tiny.text_table().id}
        # Of slices with which the shards' members begin: each takes a whole member out of use.
        self.records = [name for name, place in held.items() if (place.shard, place.slice) in first]

    def ask(self, statement):
        with psycopg.connect(self.url.replace("+psycopg", "")) as connection:
            connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self.schema)))
            return connection.execute(statement).fetchall()

    def sessions(self):
        """When each host was seen last."""
        return dict(self.ask("SELECT host, seen_at FROM sessions"))

    @contextlib.contextmanager
    def nobody_writing(self):
        """No process is in the midst of a write of the ledger, or has the run's lock, while within."""
        address = PostgresAddress(url=parsed(self.url), schema=self.schema)
        engine = postgres_engine(address)
        with (
            hold(RunLock(database_lock(engine, schema=self.schema))),
            engine.connect().execution_options(s3t_writing=True) as connection,
            connection.begin(),
        ):
            yield
        engine.dispose()

    def live(self):
        """Shard and prefix of each live stage. Nothing is trained again here, so these name what is not tainted."""
        return {
            (shard, tuple(map(int, prefix.split(","))))
            for shard, prefix in self.ask("SELECT shard, prefix FROM stages")
        }


@contextlib.contextmanager
def replica(world, *module):
    """A server as on a host of its own; its client knows the process that answers."""
    with server(world.path, "--no-hold", program=[*PROGRAM, *module]) as client:
        client.headers = bearer(world.secret)
        below = psutil.Process(client.process.pid).children(recursive=True)
        client.answering = next(each for each in below if each.name().startswith("python"))
        try:
            yield client
            client.answering.terminate()
            assert client.process.wait(SECONDS) == 0, "".join(client.lines)
        finally:
            client.process.kill()  # and with it all of its namespace


def stop(world, client):
    """Stop a replica, outside of all transactions."""
    while True:
        with world.nobody_writing():
            client.answering.suspend()
            wait_for(lambda: client.answering.status() == psutil.STATUS_STOPPED)
        time.sleep(0.6)
        ((held,),) = world.ask(IN_TRANSACTION)
        if not held:
            return
        client.answering.resume()
        time.sleep(0.1)


def predict(client):
    answer = client.post("/v1/predict", json={"inputs": ["w1 w2", "w30"]}, timeout=SECONDS)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert str(found["generation"]) == answer.headers["S3T-Generation"]
    return found["generation"], {(member["shard"], tuple(member["prefix"])) for member in found["members"]}


def delete(client, record):
    answer = client.post("/v1/deletions", json={"records": [record]}, timeout=SECONDS)
    assert answer.status_code == 202, answer.text
    return answer.json()


@pytest.fixture
def world(text_model, tmp_path, postgres):
    url = postgres.create_database(f"replicas_{os.urandom(4).hex()}")
    return World(tmp_path, tiny.recipe(text_model, ledger=url), url)


@pytest.mark.parametrize("place", ["answer", "swap"])
def test_one_that_is_stopped_in_the_middle_is_waited_for_until_its_lease_ends_and_serves_nothing_old(
    world, tmp_path, place
):
    first, second, third = world.records[:3]
    with (
        replica(world, "s3t") as awake,
        replica(world, "s3t") as other,
        replica(world, "tests.serve.replica", str(tmp_path)) as sleeper,
    ):
        old = predict(awake)[1]
        assert predict(other) == (0, old)
        awake_hosts = world.sessions().keys()  # a server is entered with its first answer
        assert predict(sleeper) == (0, old)
        (sleeping_host,) = world.sessions().keys() - awake_hosts
        assert len(awake_hosts) == 2

        answers = []
        late = threading.Thread(target=lambda: answers.append(predict(sleeper)))
        (tmp_path / place).touch()
        waiting = tmp_path / "waiting"
        if place == "answer":
            late.start()
        else:
            delete(awake, first)
        wait_for(waiting.exists)
        stop(world, sleeper)
        last_word = world.sessions()[sleeping_host]
        if place == "answer":
            delete(awake, first)
        else:
            late.start()  # it waits at the sleeper's door
        ours = "an answer of generation 0" if place == "answer" else "the swap to generation 1"
        assert f"waiting at {ours}\n" in sleeper.lines

        delete(awake, second)
        assert predict(awake)[0] == 2
        live = world.live()
        assert old - live

        def states():
            return [each["state"] for each in awake.get("/v1/deletions").json()["deletions"]]

        while "accepted" in states():  # who is awake goes on
            for generation, members in map(predict, (awake, other)):
                assert generation == 2
                assert members <= live
            time.sleep(0.2)
        for entry in awake.get("/v1/deletions").json()["deletions"][1:]:
            effective_at = datetime.fromisoformat(entry["effective_at"]).timestamp()
            assert effective_at > last_word + LEASE_SECONDS - 0.001  # of which the log tells milliseconds
        assert sleeper.answering.status() == psutil.STATUS_STOPPED
        assert answers == []
        assert world.sessions().keys() == awake_hosts
        assert gauges(awake, "sessions", "lost_sessions_total") == [2, 1]
        assert any("lease lost: process" in line for line in awake.lines + other.lines)

        waiting.unlink()  # awake, it goes on at once where it was
        sleeper.answering.resume()
        late.join(SECONDS)
        for generation, members in [*answers, *(predict(sleeper) for _ in range(20))]:
            assert generation == 2
            assert members <= live
        assert len(answers) == 1
        wait_for(lambda: world.sessions().keys() == {*awake_hosts, sleeping_host})
        assert any("lease lost: this process" in line for line in sleeper.lines)

        assert delete(sleeper, third)["state"] in ("effective", "erased")  # all are waited for again, and all move
        assert predict(awake)[0] == predict(other)[0] == predict(sleeper)[0] == 3
        wait_for(lambda: set(states()) == {"erased"})
    with s3t.Run.open(world.path) as run:
        assert run.audit().ok
