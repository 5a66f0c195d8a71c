"""Servers as they run: processes that share a port, deletions that come while hundreds ask, and an orderly end."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import pytest

import s3t
from s3t_server.tokens import Access
from testing.served import bearer

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

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            until = time.monotonic() + SECONDS
            while not ports:
                assert process.poll() is None, "".join(lines)
                assert time.monotonic() < until, "".join(lines)
                time.sleep(0.05)
            with httpx.Client(base_url=f"http://127.0.0.1:{ports[0]}", timeout=60.0) as client:
                while True:
                    try:
                        if client.get("/readyz").status_code == 200:
                            break
                    except httpx.TransportError:
                        time.sleep(0.05)
                    assert time.monotonic() < until, "".join(lines)
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

    def ask(base):
        with httpx.Client(base_url=base, headers=bearer(secret), timeout=60.0) as own:
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
        threads = [threading.Thread(target=ask, args=(str(client.base_url),)) for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        acknowledged = []
        for number in range(DELETIONS):
            time.sleep(0.2)
            answer = client.post("/v1/deletions", json={"records": [f"r{number}"]})
            assert answer.status_code == 202, answer.text
            assert answer.json()["state"] in ("effective", "erased")
            acknowledged.append((time.monotonic(), answer.json()["id"]))
        time.sleep(0.5)
        stop.set()
        for thread in threads:
            thread.join(SECONDS)
        page = client.get("/metrics").text
        log = client.get("/v1/deletions").json()["deletions"]
    assert failed == [], "".join(line for line in client.lines if "bug" in line)
    assert len(asked) > 100
    stale = [
        (generation, id) for sent, generation, _ in asked for at, id in acknowledged if sent > at and generation < id
    ]
    assert stale == []
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


def test_stages_that_another_process_trains_are_taken_into_use(path, secret):
    with server(path) as client:
        client.headers = bearer(secret)
        client.post("/v1/deletions", json={"records": ["r0", "r1", "r2", "r3"]})
        shallow = client.get("/v1/status").json()
        assert shallow["missing"] > 0
        with s3t.Run.open(path) as run:
            run.repair()
        found = client.post("/v1/predict", json={"inputs": "w1"}).json()
        assert [len(member["prefix"]) for member in found["members"]] == [3, 3]
        assert client.get("/v1/status").json()["missing"] == 0


def test_it_ends_in_order_and_its_session_with_it(path, secret):
    with server(path) as client:
        client.headers = bearer(secret)
        assert client.post("/v1/predict", json={"inputs": "w1"}).status_code == 200
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(SECONDS) == 0, "".join(client.lines)
    assert "Traceback" not in "".join(client.lines)
    assert secret not in "".join(client.lines)
    with s3t.Run.open(path) as run:
        began = time.monotonic()
        assert run.delete(records=["r0"]).state == "erased"
        assert time.monotonic() - began < 3.0  # it waits for no server


def test_a_killed_worker_is_not_waited_for(path, secret):
    with server(path) as client:
        client.headers = bearer(secret)
        client.post("/v1/predict", json={"inputs": "w1"})
        os.kill(client.process.pid, signal.SIGKILL)
        client.process.wait(SECONDS)
    with s3t.Run.open(path) as run:
        assert run.delete(records=["r0"]).state == "erased"


def test_a_server_that_is_stopped_in_the_middle_holds_deletions_up_and_serves_nothing_old(path, secret):
    """On one machine the ledger knows that the process is there, so deletions wait for it as long as it sleeps."""
    with server(path) as client:
        client.headers = bearer(secret)
        client.post("/v1/predict", json={"inputs": "w1"})
        os.kill(client.process.pid, signal.SIGSTOP)
        with s3t.Run.open(path) as run:
            report = run.delete(records=["r0"])
            assert report.state == "accepted"
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(client.post("/v1/predict", json={"inputs": "w1"})))
        waiting.start()
        os.kill(client.process.pid, signal.SIGCONT)
        waiting.join(SECONDS)
        assert answers[0].json()["generation"] == 1
        until = time.monotonic() + SECONDS
        while client.get("/v1/deletions/1").json()["state"] != "erased":
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_port_that_is_taken_is_told_in_a_sentence(path, secret):
    with server(path) as client:
        port = str(client.base_url.port)
        command = [sys.executable, "-m", "s3t", "serve", str(path), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert port in done.stderr
