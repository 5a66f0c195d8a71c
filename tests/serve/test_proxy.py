"""The shipped Caddyfile, run by Caddy with TLS before two server processes: dead runs and a dead replica behind it."""

import os
import re
import ssl
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

import s3t
from benchmarks.service import free_port
from testing import tiny
from testing.served import wait_for
from tests.serve.test_server import SECONDS, server

pytestmark = pytest.mark.integration
CADDY = Path(sys.executable).with_name("caddy")
CADDYFILE = Path(__file__).resolve().parents[2] / "deploy" / "Caddyfile"
CALLER = "127.0.0.2"
"""Address that callers have, and the proxy has not."""
OPEN = [word for scope in ("predict", "delete", "operate") for word in ("--open", scope)]
OPTIONS = [*OPEN, "--no-hold", "--no-repair"]


@contextmanager
def proxied(folder, *replicas):
    """A client of Caddy, as it is shipped but for its addresses, and that it keeps to its own folder and port."""
    port, root = free_port(), folder / "data" / "caddy" / "pki" / "authorities" / "local" / "root.crt"
    addresses = " ".join(each.base_url.netloc.decode() for each in replicas)
    text = CADDYFILE.read_text().replace("s3t-a:8080 s3t-b:8080", addresses)
    own, kept = folder / "Caddyfile", "{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects"
    own.write_text(re.sub(r"(?m)^\{$", kept, text, count=1))
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("DATA", "CONFIG")}
    environment = os.environ | homes | {"S3T_HOST": f"localhost:{port}"}
    with (folder / "caddy.log").open("wb") as log:
        process = subprocess.Popen([CADDY, "run", "--config", own], env=environment, stderr=log, stdout=log)
    try:
        wait_for(lambda: root.exists() or process.poll() is not None)
        assert process.poll() is None, (folder / "caddy.log").read_text()
        there = httpx.HTTPTransport(verify=ssl.create_default_context(cafile=root), local_address=CALLER)
        with httpx.Client(base_url=f"https://localhost:{port}", transport=there, timeout=60.0) as client:
            until_status(client, "/readyz", 200)
            yield client
    finally:
        process.terminate()
        process.wait(SECONDS)


def until_status(client, route, status, **request):
    def answered():
        with suppress(httpx.TransportError):
            return client.request("POST" if request else "GET", route, **request).status_code == status

    wait_for(answered)


@pytest.fixture
def other(path):
    s3t.Run.clone(path, path.with_name("other")).close()
    return path.with_name("other")


def test_runs_that_answer_no_more_take_nothing_else_with_them(path, other, tmp_path):
    everybody = list(tiny.text_table().id)
    with (
        server(path, str(other), *OPTIONS) as first,
        server(path, str(other), *OPTIONS) as second,
        proxied(tmp_path, first, second) as client,
    ):

        def predicts(name):
            return client.post(f"/runs/{name}/v1/predict", json={"inputs": "w1"}).status_code

        def works(name):
            return {
                client.get(route).status_code
                for route in ("/healthz", "/readyz", f"/runs/{name}/", f"/runs/{name}/v1/status")
            }

        assert (predicts("run"), predicts("other")) == (200, 200)
        assert client.get("/metrics").status_code == 404
        client.post("/runs/other/v1/deletions", json={"records": everybody[:20]})
        assert (predicts("run"), predicts("other")) == (200, 503)
        assert works("run") == works("other") == {200}
        client.post("/runs/run/v1/deletions", json={"records": everybody[:20]})
        assert (predicts("run"), predicts("other")) == (503, 503)
        assert works("run") == works("other") == {200}
        for name in ("run", "other"):
            gone = client.post(f"/runs/{name}/v1/deletions", json={"records": everybody[20:21]})
            assert (gone.status_code, gone.json()["deleted"]) == (202, 1)
            assert client.post(f"/runs/{name}/v1/repairs", json={}).status_code == 202
            until_status(client, f"/runs/{name}/v1/predict", 200, json={"inputs": "w1"})


def test_a_replica_that_is_killed_is_passed_by(path, tmp_path):
    with (
        server(path, *OPTIONS) as first,
        server(path, *OPTIONS) as second,
        proxied(tmp_path, first, second) as client,
    ):
        asked = [client.post("/v1/predict", json={"inputs": "w1"}) for _ in range(4)]
        assert {answer.status_code for answer in asked} == {200}
        first.process.kill()
        for _ in range(20):
            assert client.post("/v1/predict", json={"inputs": "w1"}).status_code == 200
        taken = client.post("/v1/deletions", json={"records": ["r3"]})
        assert (taken.status_code, taken.json()["deleted"]) == (202, 1)
        answered = [line for line in second.lines if '"/v1/predict"' in line]
    assert {re.search(r'"client": "(.*?)"', line)[1] for line in answered} == {CALLER}
