"""Whatever is sent, the answer is a problem document of the caller's fault, and the next one is answered."""

import json
import threading
import time

import pytest

from s3t_server.answering import PendingResponse
from s3t_server.batching import Batcher
from testing.served import bearer, posting, rest_of, serving, together, wait_for

JSON = {"Content-Type": "application/json"}
WRONG = {
    "no JSON": {"content": b"{", "headers": JSON},
    "not UTF-8": {"content": b'{"inputs": "\xff"}', "headers": JSON},
    "nothing": {"content": b"", "headers": JSON},
    "no content type": {"content": b'{"inputs": "w1"}'},
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


def check(refused, *statuses):
    assert refused.status_code in statuses, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    document = refused.json()
    assert document["status"] == refused.status_code
    assert document["detail"]
    return document


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_inputs(reader, wrong):
    assert "w1" not in json.dumps(check(reader.post("/v1/predict", **WRONG[wrong]), 400, 422))
    assert reader.post("/v1/predict", json={"inputs": "w1"}).status_code == 200


def test_wrong_deletions(reader):
    names = [[], ["a"] * 6, [""], [1.0], "r0", [True], [None], ["\ud800"]]
    for wrong in (*({"records": each} for each in names), {"record": ["r0"]}, {"subjects": ["p"], "dry_run": 7}):
        check(reader.post("/v1/deletions", content=json.dumps(wrong), headers=JSON), 422)
    assert reader.get("/v1/status").json()["generation"] == 0


def test_every_route_reads_its_body_strictly(reader):
    paths = reader.get("/v1/openapi.json").json()["paths"]
    routes = [(path, method) for path, how in paths.items() for method in how if "requestBody" in how[method]]
    assert len(routes) > 6
    asked = [(path, method, '{"inputs": 1, "inputs": 2}') for path, method in routes]
    asked += [
        ("/v1/deletions", "post", '{"records": ["r0"], "\\u0072ecords": ["r1"]}'),
        ("/v1/predict", "post", '{"inputs": [{"text": "w1", "text": "w2"}]}'),
    ]
    for path, method, body in asked:
        refused = reader.request(method, path, content=body, headers=JSON)
        assert check(refused, 422)["problems"] == ["body: gives a key of an object twice; keep one of the two"], path
    assert reader.get("/v1/status").json()["generation"] == 0


def test_too_many_and_too_long(reader):
    check(reader.post("/v1/predict", json={"inputs": ["w1"] * 6}), 413)
    check(reader.post("/v1/predict", content=b"x" * 400_001), 413)
    check(reader.post("/v1/predict", content=(b"x" * 1000 for _ in range(500))), 413)


def test_a_small_request_makes_no_large_answer(reader):
    for path, body in (("predict", {"inputs": [0] * 50_000}), ("deletions", {"records": [None] * 50_000})):
        refused = reader.post(f"/v1/{path}", json=body)
        check(refused, 413, 422)
        assert len(refused.content) < 5000
        refused = reader.post(f"/v1/{path}", json={f"field {number}": 0 for number in range(5000)})
        assert len(check(refused, 422)["problems"]) == 1


def test_other_paths_and_methods_and_no_such_deletion(reader):
    for method, path in (("GET", "/v2"), ("GET", "/v1/predict"), ("PUT", "/v1/status"), ("GET", "/docs")):
        check(reader.request(method, path), 404, 405)
    for id in ("x", "-1", "0", "3000000000", "99999999999999999999", "1.5"):
        check(reader.get(f"/v1/deletions/{id}"), 422)


def test_a_slow_client_holds_nobody_up_and_is_told(reader):
    with posting(reader, "/v1/predict", {"inputs": "w1"}, headers={"Content-Length": "100"}) as slow:
        began = time.monotonic()
        assert reader.post("/v1/predict", json={"inputs": "w1"}).status_code == 200
        assert time.monotonic() - began < 1.0
        assert b" 408 " in slow.recv(1000)


def test_a_client_that_goes_away_leaves_nothing_that_deletions_wait_for(client, tokens):
    for _ in range(10):
        with posting(client, "/v1/predict", {"inputs": "w1"}, headers=bearer(tokens["all"])):
            pass
    assert client.post("/v1/deletions", json={"records": ["r0"]}).json()["state"] in ("effective", "erased")


def test_a_client_that_does_not_read_holds_no_deletion_up_and_is_cut_off(path):
    settings = {"send_seconds": 1.0, "max_inputs": 3000, "send_buffer": 4096}
    with (
        serving(path, open_scopes=("predict", "delete"), **settings) as client,
        posting(client, "/v1/predict", {"inputs": ["w1"] * 3000}, buffer=4096) as deaf,
    ):
        content = deaf.recv(1)  # the answer has begun to leave
        assert client.post("/v1/predict", json={"inputs": "w1"}).status_code == 200
        deleted = client.post("/v1/deletions", json={"records": ["r0"]}).json()
        assert deleted["state"] in ("effective", "erased")
        content += rest_of(deaf)
    answer, _, document = content.partition(b"\r\n\r\n")
    length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    assert len(document) < length  # what it had not taken in time is lost


def test_a_bug_tells_its_place_in_the_log_and_nothing_to_the_caller(reader, monkeypatch, caplog):
    async def fail(*_arguments):
        raise RuntimeError("w1 is a record's text")

    monkeypatch.setattr(PendingResponse, "__call__", fail)
    document = check(reader.post("/v1/predict", json={"inputs": "w1"}), 500)
    assert "RuntimeError" not in json.dumps(document)
    assert "bug: RuntimeError" in caplog.text
    assert "record's text" not in caplog.text


@pytest.mark.parametrize("bound", [{"max_queued_inputs": 2}, {"max_queued_bytes": 3000}])
def test_what_waits_is_bounded(unchanged, bound, monkeypatch):
    entered, go_on, usual = threading.Event(), threading.Event(), Batcher._answer

    def slowly(self, batch):
        entered.set()
        go_on.wait(20)
        usual(self, batch)

    monkeypatch.setattr(Batcher, "_answer", slowly)
    with serving(unchanged, open_scopes=("predict",), exact=True, **bound) as client:

        def ask():
            return client.post("/v1/predict", json={"inputs": "w1 " * 400})

        with together(ask) as first:
            assert entered.wait(20)
            with together(ask, ask, ask, ask) as others:
                wait_for(lambda: len(others) == 2)
                assert [answer.status_code for answer in others] == [503, 503]
                assert others[0].headers["retry-after"] == "1"
                go_on.set()
    assert [answer.status_code for answer in (*first, *others[2:])] == [200, 200, 200]
