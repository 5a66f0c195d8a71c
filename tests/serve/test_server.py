"""Servers as they run: processes that share a port, deletions that come while hundreds ask, and an orderly end."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import httpx
import pytest

import s3t
from s3t_server.tokens import Access
from testing.served import bearer, together, wait_for

pytestmark = pytest.mark.integration
SECONDS = 120.0
CALLERS, DELETIONS = 16, 10


@contextmanager
def server(run, *options, program=(sys.executable, "-m", "s3t")):
    """A server's process, and a client of it."""
    command = [*program, "serve", str(run), "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        lines, ports = [], []

        def read():
            for line in process.stderr:
                lines.append(line)
                ports.extend(re.findall(r"listening at http://[\d.]+:(\d+)", line))

        def answers():
            assert process.poll() is None, "".join(lines)
            with suppress(httpx.TransportError):
                return client.get("/readyz").status_code == 200

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            wait_for(lambda: ports or process.poll() is not None)
            assert ports, "".join(lines)
            with httpx.Client(base_url=f"http://127.0.0.1:{ports[0]}", timeout=60.0) as client:
                wait_for(answers)
                client.process, client.lines = process, lines
                yield client
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(SECONDS)
            reader.join(SECONDS)


@pytest.fixture
def secret(path):
    with s3t.Run.open(path) as run:
        return Access(run).create("tests", scopes=["predict", "delete", "operate", "audit"])[1]


def test_deletions_while_many_ask_at_two_workers(path, secret):
    """No request fails; none that is sent after a deletion was acknowledged is answered by an older generation; and
    all answers of one generation are of the same members."""
    stop, asked, failed = threading.Event(), [], []

    def ask():
        with httpx.Client(base_url=str(client.base_url), headers=bearer(secret), timeout=60.0) as own:
            while not stop.is_set():
                sent = time.monotonic()
                answer = own.post("/v1/predict", json={"inputs": ["w1 w2", "w30"]})
                if answer.status_code != 200:
                    failed.append(answer.text)
                    return
                found = answer.json()
                asked.append((sent, found["generation"], json.dumps(found["members"])))

    with server(path, "--workers", "2", "--no-hold") as client:
        client.headers = bearer(secret)
        acknowledged = []
        with together(*[ask] * CALLERS):
            for number in range(DELETIONS):
                time.sleep(0.2)
                done = client.post("/v1/deletions", json={"records": [f"r{number}"]}).json()
                assert done["state"] in ("effective", "erased")
                acknowledged.append((time.monotonic(), done["id"]))
            time.sleep(0.5)
            stop.set()
        page = client.get("/metrics").text
        log = client.get("/v1/deletions").json()["deletions"]
    assert failed == [], "".join(line for line in client.lines if "bug" in line)
    assert len(asked) > 100
    assert not [id for sent, generation, _ in asked for at, id in acknowledged if sent > at and generation < id]
    members = {}
    for _, generation, answered_by in asked:
        members.setdefault(generation, set()).add(answered_by)
    assert all(len(each) == 1 for each in members.values())
    assert len(members) > 2
    counted = re.findall(r's3t_requests_total\{method="POST",route="/v1/predict",status="200"\} ([\d.]+)', page)
    assert float(counted[0]) == len(asked)
    assert [entry["generation"] for entry in log] == list(range(DELETIONS + 1))
    with s3t.Run.open(path) as run:
        assert run.audit().ok


def test_a_server_that_is_stopped_in_the_middle_holds_deletions_up_and_serves_nothing_old(path, secret):
    """On one machine the ledger knows that the process is there, so deletions wait for it as long as it sleeps. It
    takes what others have trained, too, and ends in order; a port that is taken is told in a sentence."""
    with server(path) as client:
        client.headers = bearer(secret)
        client.post("/v1/predict", json={"inputs": "w1"})
        command = [sys.executable, "-m", "s3t", "serve", str(path), "--port", str(client.base_url.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        assert (done.returncode, "Traceback" in done.stderr, command[-1] in done.stderr) == (1, False, True)
        os.kill(client.process.pid, signal.SIGSTOP)
        with s3t.Run.open(path) as run:
            assert run.delete(records=["r0", "r1", "r2", "r3"]).state == "accepted"
        with together(lambda: client.post("/v1/predict", json={"inputs": "w1"}).json()) as answers:
            os.kill(client.process.pid, signal.SIGCONT)
        assert answers[0]["generation"] == 1
        wait_for(lambda: client.get("/v1/deletions/1").json()["state"] == "erased")
        with s3t.Run.open(path) as run:
            run.repair()
        found = client.post("/v1/predict", json={"inputs": "w1"}).json()
        assert [len(member["prefix"]) for member in found["members"]] == [3, 3]
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(SECONDS) == 0, "".join(client.lines)
    assert "Traceback" not in "".join(client.lines)
    assert secret not in "".join(client.lines)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_has_ended_is_not_waited_for(path, secret, how):
    with server(path) as client:
        assert client.post("/v1/predict", json={"inputs": "w1"}, headers=bearer(secret)).status_code == 200
        client.process.send_signal(how)
        client.process.wait(SECONDS)
    with s3t.Run.open(path) as run:
        began = time.monotonic()
        assert run.delete(records=["r4"]).state == "erased"
        assert time.monotonic() - began < 3.0
