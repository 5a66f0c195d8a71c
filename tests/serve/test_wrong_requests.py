"""Whatever is sent, the answer is a problem document of the caller's fault, and the next one is answered."""

import json
import socket
import threading
import time
from contextlib import suppress

import pytest

from s3t_server.answering import PendingResponse
from testing.served import serving

JSON = {"Content-Type": "application/json"}
WRONG = {
    "no JSON": {"content": b"{", "headers": JSON},
    "not UTF-8": {"content": b'{"inputs": "\xff"}', "headers": JSON},
    "nothing": {"content": b"", "headers": JSON},
    "no content type": {"content": b'{"inputs": "w1"}'},
    "numbers": {"json": {"inputs": [0] * 3}},
    "lists of numbers": {"json": {"inputs": [[0, 1]]}},
    "null": {"json": {"inputs": None}},
    "a number": {"json": 3},
    "another field": {"json": {"inputs": "w1", "input": "w1"}},
    "an empty text": {"json": {"inputs": [""]}},
    "another column": {"json": {"inputs": [{"words": "w1"}]}},
    "mixed": {"json": {"inputs": ["w1", {"text": "w1"}]}},
    "half a pair": {"content": json.dumps({"inputs": "\ud800"}).encode(), "headers": JSON},
    "top 0": {"json": {"inputs": "w1", "top": 0}},
    "top 1.0": {"json": {"inputs": "w1", "top": 1.0}},
    "deep": {"content": b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "headers": JSON},
    "form": {"data": {"inputs": "w1"}},
}


@pytest.fixture(scope="module")
def open_client(trained_once, tmp_path_factory):
    from testing import tiny

    path = tiny.copy_run(trained_once, tmp_path_factory.mktemp("wrong") / "run")
    scopes = ("predict", "add", "delete", "operate", "audit")
    with serving(
        path, open_scopes=scopes, max_inputs=5, max_names=5, max_body_bytes=400_000, body_seconds=1.0
    ) as client:
        yield client


def check(refused, *statuses):
    assert refused.status_code in statuses, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    document = refused.json()
    assert document["status"] == refused.status_code
    assert document["detail"]
    return document


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_inputs(open_client, wrong):
    document = check(open_client.post("/v1/predict", **WRONG[wrong]), 400, 422)
    assert "w1" not in json.dumps(document)
    assert open_client.post("/v1/predict", json={"inputs": "w1"}).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"records": []},
        {"records": ["a"] * 6},
        {"records": [""]},
        {"records": [1.5]},
        {"records": "r0"},
        {"record": ["r0"]},
        {"records": [True]},
        {"records": [1.0]},
        {"records": [None]},
        {"records": ["\ud800"]},
        {"subjects": ["p"], "dry_run": 7},
    ],
)
def test_wrong_deletions(open_client, wrong):
    refused = open_client.post("/v1/deletions", content=json.dumps(wrong), headers=JSON)
    check(refused, 422)
    assert open_client.get("/v1/status").json()["generation"] == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/deletions", '{"subjects": ["r0"], "subjects": ["r1"]}'),
        ("/v1/deletions", '{"records": ["r0"], "\\u0072ecords": ["r1"]}'),
        ("/v1/predict", '{"inputs": [{"text": "w1", "text": "w2"}]}'),
        ("/classify", '{"input": "w1", "input": "w2"}'),
    ],
)
def test_a_key_that_is_given_twice(open_client, path, body):
    document = check(open_client.post(path, content=body, headers=JSON), 422)
    assert document["problems"] == ["body: gives a key of an object twice; keep one of the two"]
    assert open_client.get("/v1/status").json()["generation"] == 0


def test_every_route_reads_its_body_strictly(open_client):
    paths = open_client.get("/v1/openapi.json").json()["paths"]
    routes = [(path, method) for path, how in paths.items() for method in how if "requestBody" in how[method]]
    assert len(routes) > 6
    for path, method in routes:
        refused = open_client.request(method, path, content='{"inputs": 1, "inputs": 2}', headers=JSON)
        assert check(refused, 422)["problems"] == ["body: gives a key of an object twice; keep one of the two"], path


def test_too_many_and_too_long(open_client):
    check(open_client.post("/v1/predict", json={"inputs": ["w1"] * 6}), 413)
    check(open_client.post("/v1/predict", content=b"x" * 400_001), 413)

    def in_parts():
        for _ in range(500):
            yield b"x" * 1000

    check(open_client.post("/v1/predict", content=in_parts()), 413)


def test_a_small_request_makes_no_large_answer(open_client):
    for path, body in (("predict", {"inputs": [0] * 50_000}), ("deletions", {"records": [None] * 50_000})):
        refused = open_client.post(f"/v1/{path}", json=body)
        check(refused, 413, 422)
        assert len(refused.content) < 5000
        refused = open_client.post(f"/v1/{path}", json={f"field {number}": 0 for number in range(5000)})
        assert len(check(refused, 422)["problems"]) == 1


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v2"), ("GET", "/v1/predict"), ("PUT", "/v1/status"), ("GET", "/docs")]
)
def test_other_paths_and_methods(open_client, method, path):
    check(open_client.request(method, path), 404, 405)


@pytest.mark.parametrize("id", ["x", "-1", "0", "3000000000", "99999999999999999999", "1.5"])
def test_no_such_deletion(open_client, id):
    check(open_client.get(f"/v1/deletions/{id}"), 422)


def test_a_slow_client_holds_nobody_up_and_is_told(open_client):
    address = open_client.base_url.host, open_client.base_url.port
    with socket.create_connection(address) as slow:
        slow.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        began = time.monotonic()
        assert open_client.post("/v1/predict", json={"inputs": "w1"}).status_code == 200
        assert time.monotonic() - began < 1.0
        slow.settimeout(10.0)
        assert b" 408 " in slow.recv(1000)


def test_a_client_that_goes_away_leaves_nothing_that_deletions_wait_for(open_client, path, tokens):
    with serving(path) as client:
        client.headers["Authorization"] = f"Bearer {tokens['all']}"
        address = client.base_url.host, client.base_url.port
        body = json.dumps({"inputs": "w1"}).encode()
        lines = ["POST /v1/predict HTTP/1.1", "Host: x", "Content-Type: application/json"]
        lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join([*lines, f"Authorization: Bearer {tokens['all']}", "", ""])
        for _ in range(10):
            with socket.create_connection(address) as gone:
                gone.sendall(head.encode() + body)
        deleted = client.post("/v1/deletions", json={"records": ["r0"]}).json()
        assert deleted["state"] in ("effective", "erased")


def test_a_client_that_does_not_read_holds_no_deletion_up_and_is_cut_off(path):
    scopes = ("predict", "delete")
    with serving(path, open_scopes=scopes, send_seconds=1.0, max_inputs=3000, send_buffer=4096) as client:
        body = json.dumps({"inputs": ["w1"] * 3000}).encode()
        fields = ["POST /v1/predict HTTP/1.1", "Host: x", "Content-Type: application/json"]
        head = "\r\n".join([*fields, f"Content-Length: {len(body)}", "", ""])
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect((client.base_url.host, client.base_url.port))
            deaf.sendall(head.encode() + body)
            deaf.settimeout(20.0)
            content = deaf.recv(1)  # the answer has begun to leave
            assert client.post("/v1/predict", json={"inputs": "w1"}).status_code == 200
            deleted = client.post("/v1/deletions", json={"records": ["r0"]}).json()
            assert deleted["state"] in ("effective", "erased")
            with suppress(ConnectionError):
                while part := deaf.recv(1 << 16):
                    content += part
        answer, _, document = content.partition(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        assert len(document) < length  # what it had not taken in time is lost


def test_a_bug_tells_its_place_in_the_log_and_nothing_to_the_caller(open_client, monkeypatch, caplog):
    async def fail(*_arguments):
        raise RuntimeError("w1 is a record's text")

    monkeypatch.setattr(PendingResponse, "__call__", fail)
    document = check(open_client.post("/v1/predict", json={"inputs": "w1"}), 500)
    assert "RuntimeError" not in json.dumps(document)
    assert "bug: RuntimeError" in caplog.text
    assert "record's text" not in caplog.text


@pytest.mark.parametrize("bound", [{"max_queued_inputs": 2}, {"max_queued_bytes": 3000}])
def test_what_waits_is_bounded(path, bound):
    from s3t_server.batching import Batcher

    entered, go_on = threading.Event(), threading.Event()

    with (
        serving(path, open_scopes=("predict",), exact=True, **bound) as client,
        pytest.MonkeyPatch.context() as patch,
    ):
        usual = Batcher._answer

        def slowly(self, batch):
            entered.set()
            go_on.wait(20)
            usual(self, batch)

        patch.setattr(Batcher, "_answer", slowly)
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(client.post("/v1/predict", json={"inputs": "w1 " * 400})))
            for _ in range(5)
        ]
        threads[0].start()
        assert entered.wait(20)
        for thread in threads[1:]:
            thread.start()
        until = time.monotonic() + 20
        while len(answers) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert [answer.status_code for answer in answers] == [503, 503]
        assert answers[0].headers["retry-after"] == "1"
        go_on.set()
        for thread in threads:
            thread.join()
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 503, 503]
