"""Who may do what: without a token nothing, with one what its scopes say, and no longer than it lives."""

import json
import logging
import time

import pytest

import s3t
from s3t_server.callers import Callers
from s3t_server.problems import Refused
from s3t_server.tokens import SCOPES, Access
from testing.served import bearer, serving

ROUTES = {
    ("POST", "/v1/predict"): {"predict"},
    ("POST", "/v1/records"): {"add"},
    ("GET", "/v1/additions"): {"add", "delete", "operate", "audit"},
    ("POST", "/v1/deletions"): {"delete"},
    ("GET", "/v1/deletions"): {"delete", "operate", "audit"},
    ("GET", "/v1/deletions/{id}"): {"delete", "operate", "audit"},
    ("GET", "/v1/held"): {"delete", "operate", "audit"},
    ("GET", "/v1/held/{id}"): {"delete", "operate", "audit"},
    ("POST", "/v1/held/{id}/approve"): {"operate"},
    ("POST", "/v1/held/{id}/refuse"): {"operate"},
    ("POST", "/v1/held/refuse"): {"operate"},
    ("GET", "/v1/status"): {"operate"},
    ("POST", "/v1/locate"): {"operate"},
    ("GET", "/v1/forecast"): {"operate"},
    ("POST", "/v1/repairs"): {"operate"},
    ("GET", "/v1/repairs"): {"operate"},
    ("GET", "/v1/repairs/{id}"): {"operate"},
    ("GET", "/metrics"): {"operate"},
    ("POST", "/classify"): {"predict"},
    ("POST", "/v1/classify"): {"predict"},
    ("POST", "/predict"): {"predict"},
    ("GET", "/v1/models"): {"predict"},
}
OPEN = {("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/v1/readyz")}
BODIES = {
    "/v1/predict": {"inputs": "w1"},
    "/v1/records": {"records": []},
    "/v1/repairs": {},
    "/v1/deletions": {"records": ["nobody"]},
    "/v1/locate": {"records": ["nobody"]},
    "/v1/held/{id}/approve": {},
    "/v1/held/{id}/refuse": {"reason": "a mistake"},
    "/v1/held/refuse": {"asked_by": "nobody", "reason": "a mistake"},
    "/classify": {"input": "w1"},
    "/v1/classify": {"input": "w1"},
    "/predict": {"inputs": "w1"},
}


def ask(client, method, route, headers):
    body = {"json": BODIES[route]} if method == "POST" else {}
    return client.request(method, route.replace("{id}", "1"), headers=headers, **body)


def test_every_route_is_tried(reader):
    described = reader.get("/v1/openapi.json").json()["paths"]
    found = {(method.upper(), path) for path, methods in described.items() for method in methods}
    assert found == ROUTES.keys() | OPEN


def test_each_scope_opens_its_routes_alone(client, tokens):
    for (method, route), scopes in ROUTES.items():
        for scope in SCOPES:
            status = ask(client, method, route, bearer(tokens[scope])).status_code
            assert (status == 403) == (scope not in scopes), (method, route, scope, status)
            assert status not in (401, 500)


@pytest.mark.integration
def test_no_route_answers_without_a_token_that_is_accepted(client, tokens, path):
    with s3t.Run.open(path) as run:
        Access(run).revoke("delete")
        _, expired = Access(run).create("short", scopes=list(SCOPES), days=1e-9)
    secrets = ("s3t_" + "x" * 43, expired, tokens["delete"], tokens["all"][:-1])
    del client.headers["Authorization"]
    for headers in ({}, {"Authorization": f"Basic {tokens['all']}"}, *map(bearer, secrets)):
        for method, route in ROUTES:
            refused = ask(client, method, route, headers)
            assert refused.status_code == refused.json()["status"] == 401, (method, route)
            assert refused.headers["www-authenticate"].startswith("Bearer")
            assert refused.headers["content-type"] == "application/problem+json"


def test_the_token_is_looked_at_before_the_form_of_the_body_is(client):
    for body in ({"json": {"inputs": 3}}, {"content": b"{", "headers": {"Content-Type": "application/json"}}):
        for authorization, status in (("", 401), (client.headers["Authorization"], 422)):
            headers = body.get("headers", {}) | {"Authorization": authorization}
            assert client.post("/v1/predict", **{**body, "headers": headers}).status_code == status


def test_scopes_may_be_open_and_deletion_is_not_by_that(unchanged):
    with serving(unchanged, open_scopes=("predict",)) as client:
        for headers in ({}, bearer("EMPTY")):  # clients of other servers send a word where none is asked for
            assert client.post("/v1/predict", json={"inputs": "w1"}, headers=headers).status_code == 200
            assert client.post("/v1/deletions", json={"records": ["r0"]}, headers=headers).status_code == 401
            assert client.get("/v1/status", headers=headers).status_code == 401


@pytest.fixture
def callers(trained):
    return Callers(Access(trained), frozenset())


def test_a_token_has_its_requests_of_a_minute(trained, callers, monkeypatch):
    now = {"seconds": 1000.0}
    monkeypatch.setattr("s3t_server.callers.time.monotonic", lambda: now["seconds"])
    _, few = Access(trained).create("few", scopes=["predict"], per_minute=2)
    _, any_number = Access(trained).create("many", scopes=["predict"])
    for _ in range(2):
        assert callers.check(f"Bearer {few}", ["predict"]).name == "few"
    with pytest.raises(Refused) as refused:
        callers.check(f"Bearer {few}", ["predict"])
    assert (refused.value.status_code, refused.value.headers["Retry-After"]) == (429, "61")
    for _ in range(5):
        callers.check(f"bearer {any_number}", ["predict"])
    now["seconds"] += 60.0
    assert callers.check(f"Bearer {few}", ["predict"]).name == "few"


def test_a_token_that_was_taken_a_moment_ago_is_refused_once_it_has_expired_or_another_process_has_revoked_it(
    trained, callers, monkeypatch
):
    made = {name: Access(trained).create(name, scopes=["predict"], days=1)[1] for name in ("revoked", "expired")}
    for name, secret in made.items():
        assert callers.check(f"Bearer {secret}", ["predict"]).name == name
    with s3t.Run.open(trained.path) as other:
        Access(other).revoke("revoked")
    with pytest.raises(Refused, match="revoked"):
        callers.check(f"Bearer {made['revoked']}", ["predict"])
    later = time.time() + 86_401
    monkeypatch.setattr("s3t_server.callers.time.time", lambda: later)
    with pytest.raises(Refused, match="expired"):
        callers.check(f"Bearer {made['expired']}", ["predict"])


def test_of_wrong_tokens_nothing_is_kept(callers):
    for number in range(3):
        with pytest.raises(Refused, match="not one of"):
            callers.check(f"Bearer s3t_{number}", ["predict"])
    assert not callers._known[1]


def test_the_log_says_who_asked_what_and_no_text(client, tokens, caplog):
    with caplog.at_level(logging.INFO):
        client.post("/v1/predict", json={"inputs": ["w7 secret"]}, headers=bearer(tokens["predict"]))
        client.post("/v1/predict", json={"inputs": {"text": 5, "private": 1}})
        client.post("/v1/deletions", json={"records": ["r0"]})
    line = next(json.loads(record.getMessage()) for record in caplog.records if record.name == "s3t.requests")
    told = {"client": "127.0.0.1", "route": "/v1/predict", "token": "predict", "generation": 0}
    assert told.items() <= line.items()
    for secret in ("w7", "private", "r0", *tokens.values()):
        assert secret not in caplog.text
