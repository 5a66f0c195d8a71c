"""Deletions over the server's limits wait until somebody else approves them."""

from functools import partial

import pytest

import s3t
from s3t.results.serving import Held
from s3t.run import approvals
from testing import tiny
from testing.roles import roles
from testing.served import bearer, serving, together, wait_for
from tests.cli.typed import document

RECORDS = list(tiny.text_table().id)


@pytest.fixture
def client(path, tokens):
    """Of a server that holds a request for more than two records."""
    with serving(path, hold_records=2, hold_share=None) as client:
        yield client


def delete(client, token, records, **headers):
    return client.post("/v1/deletions", json={"records": records}, headers={**bearer(token), **headers})


def test_a_held_request_is_approved_by_another_token(client, tokens, path):
    asked = delete(client, tokens["all"], RECORDS[:3])
    assert asked.status_code == 202
    document = asked.json()
    assert (document["state"], document["deleted"], document["id"]) == ("held", 0, None)
    where = f"/v1/held/{document['held']}"
    told = client.get(where, headers=bearer(tokens["operate"])).json()
    assert (told["plan"]["deleted"], told["plan"]["already"], told["plan"]["unknown"]) == (3, None, None)
    assert told["why"] == "3 records: over 2"
    assert client.get(where, headers=bearer(tokens["delete"])).json()["plan"] is None
    assert client.post(f"{where}/approve", headers=bearer(tokens["all"])).status_code == 403
    assert client.post(f"{where}/approve", headers=bearer(tokens["delete"])).status_code == 403
    assert 's3t_held_deletions{run="run"} 1.0' in client.get("/metrics", headers=bearer(tokens["operate"])).text
    with s3t.Run.open(path) as run:
        assert len(run.log()) == 1
    done = client.post(f"{where}/approve", headers=bearer(tokens["operate"])).json()
    assert (done["state"], done["decided_by"]) == ("done", "operate")
    followed = client.get(f"/v1/deletions/{done['deletion']}", headers=bearer(tokens["delete"])).json()
    assert followed["records"] == 3
    again = client.post(f"{where}/refuse", json={"reason": "late"}, headers=bearer(tokens["operate"]))
    assert again.status_code == 409


def test_an_approval_after_which_nothing_answers_says_so_and_leaves_the_repair_to_the_server(client, tokens):
    held = delete(client, tokens["delete"], RECORDS[:-1]).json()["held"]
    with s3t.Client(str(client.base_url), tokens["operate"]) as operator:
        done = operator.approve(held)
    assert (done.outcome.deleted, done.outcome.repair) == (len(RECORDS) - 1, None)
    assert done.outcome.warnings[0].startswith("NO SHARD ANSWERS")


def test_a_refused_request_deletes_nothing(client, tokens, path):
    held = delete(client, tokens["delete"], RECORDS[:3], **{"Idempotency-Key": "k"}).json()["held"]
    with s3t.Client(str(client.base_url), tokens["operate"]) as operator:
        assert [one.state for one in operator.held()] == ["held"]
        assert operator.refuse(held, "stolen token").reason == "stolen token"
        with pytest.raises(s3t.ServerError, match="refused"):
            operator.approve(held)
    repeated = delete(client, tokens["delete"], RECORDS[:3], **{"Idempotency-Key": "k"}).json()
    assert (repeated["state"], repeated["deleted"]) == ("refused", 0)
    with s3t.Run.open(path) as run:
        assert len(run.log()) == 1


def test_requests_at_once_do_not_pass_a_limit_together(client, tokens):
    asked = [partial(delete, client, tokens["delete"], [record]) for record in RECORDS[:6]]
    with together(*asked) as found:
        pass
    answers = [answer.json() for answer in found]
    assert sum(answer["deleted"] for answer in answers) == 2
    assert [answer["state"] for answer in answers].count("held") == 4


def test_a_dry_run_is_not_held_and_a_repeated_request_does_not_count_twice(client, tokens):
    headers = {**bearer(tokens["all"]), "Idempotency-Key": "k"}
    planned = client.post("/v1/deletions", json={"records": RECORDS[:3], "dry_run": True}, headers=headers).json()
    assert (planned["deleted"], planned["held"]) == (3, None)
    for _ in range(3):
        assert delete(client, tokens["all"], RECORDS[:2], **{"Idempotency-Key": "k"}).json()["deleted"] == 2


@pytest.mark.parametrize(("limits", "deleted"), [({"hold_records": None, "hold_share": None}, 19), ({}, 0)])
def test_a_quarter_of_a_shard_is_held_unless_told_otherwise(path, tokens, limits, deleted):
    with serving(path, **limits) as client:
        assert delete(client, tokens["delete"], RECORDS[:1]).json()["deleted"] == 1
        found = delete(client, tokens["delete"], RECORDS[1:20]).json()
        assert (found["deleted"], found["state"] == "held") == (deleted, deleted == 0)


def test_too_many_that_wait_are_refused_until_an_operator_has_decided(client, tokens, monkeypatch):
    monkeypatch.setattr(approvals, "MOST_WAITING", 1)
    held = delete(client, tokens["delete"], RECORDS[:3]).json()
    assert (held["state"], held["already"], held["unknown"]) == ("held", None, None)
    assert delete(client, tokens["delete"], RECORDS[:4]).status_code == 409


def hold_many(path, counts):
    """So many requests that wait, by caller, the last ones the newest; their ids."""
    callers = [caller for caller, count in counts.items() for _ in range(count)]
    ids = [f"{number:016x}" for number in range(len(callers))]
    with s3t.Run.open(path) as run, run.parts.ledger.writing() as transaction:
        for number, (id, caller) in enumerate(zip(ids, callers, strict=True)):
            what = {"why": "w", "names": 1, "records": 1, "content": b"c"}
            held = Held(id=id, asked_by=caller, asked_at=1e9 + number, **what)
            transaction.held.add(held, records=[number.to_bytes(32)], subjects=[])
    return ids


def test_lists_come_in_parts_and_by_what_is_asked_for(client, tokens, path):
    ids = hold_many(path, {"one": 3, "two": 2})[::-1]
    client.headers.update(bearer(tokens["operate"]))

    def listed(**asked):
        return [held["id"] for held in client.get("/v1/held", params=asked).json()["held"]]

    assert listed() == ids
    assert listed(limit=2) + listed(limit=2, after=ids[1]) + listed(after=ids[3]) == ids
    assert listed(asked_by="two", state="held") == ids[:2]
    assert listed(state="refused") == []
    assert client.get("/v1/held", params={"after": "none"}).status_code == 404
    assert client.get("/v1/held", params={"limit": 0}).status_code == 422
    delete(client, tokens["all"], RECORDS[:1])
    numbers = [entry["generation"] for entry in client.get("/v1/deletions").json()["deletions"]]
    assert numbers == [0, 1]
    assert [entry["generation"] for entry in client.get("/v1/deletions?after=0&limit=1").json()["deletions"]] == [1]
    assert client.get("/v1/repairs?limit=1").json() == {"repairs": []}


def test_all_of_one_caller_are_refused_at_once(client, tokens, path):
    ids = hold_many(path, {"stolen": 3, "good": 1})
    body = {"asked_by": "stolen", "reason": "token stolen"}
    assert client.post("/v1/held/refuse", json=body, headers=bearer(tokens["delete"])).status_code == 403
    refused = client.post("/v1/held/refuse", json=body, headers=bearer(tokens["operate"])).json()["held"]
    assert {held["id"] for held in refused} == {*ids[:3]}
    assert {held["state"] for held in refused} == {"refused"}
    with s3t.Run.open(path) as run:
        assert [held.id for held in run.approvals.waiting()] == ids[3:]
        assert run.approvals.refuse_all("stolen", by="x", reason="again") == ()
        with pytest.raises(s3t.InputError, match="reason: give 1"):
            run.approvals.refuse_all("good", by="x", reason=" ")
    asked = ("deletions", "held", path, "--asked-by", "good", "--limit", 1)
    assert [held["id"] for held in document(*asked)["held"]] == ids[3:]
    assert document("deletions", "refuse", path, "--asked-by", "good", "--reason", "no")["held"][0]["id"] == ids[3]
    assert document("deletions", "refuse", path, "--reason", "no", status=2)["error"]["problems"]


def test_the_page_shows_some_of_a_thousand_by_caller(path, tokens):
    hold_many(path, {f"caller {number}": 20 for number in range(50)})
    with serving(path) as client:
        origin = {"headers": {"Origin": str(client.base_url)}}
        client.post("/sign-in", data={"token": tokens["operate"]}, **origin)
        whole = client.get("/").text
        assert whole.count("Look into it") == 20
        assert "All 1000" not in whole
        assert "20 of caller 49<" in whole
        assert len(whole) < 100_000
        some = client.get("/sections/held", params={"of": "caller 49"}).text
        assert "Refuse all 20" in some
        assert "All 1000" in some
        client.post("/refuse-all", data={"asked_by": "caller 49", "reason": "no ticket"}, **origin)
        assert "20 of caller 49<" not in client.get("/").text


def test_one_that_nobody_knows(client, tokens):
    for id in ("nix", "%00"):
        for method, route, body in (
            ("GET", "", None),
            ("POST", "/approve", None),
            ("POST", "/refuse", {"reason": "no"}),
        ):
            answer = client.request(method, f"/v1/held/{id}{route}", headers=bearer(tokens["all"]), json=body)
            assert answer.status_code == 404


def test_a_server_that_is_asked_nothing_goes_on_with_what_another_process_has_approved(client, tokens, path):
    held = delete(client, tokens["delete"], RECORDS[:3]).json()["held"]
    with s3t.Run.open(path) as run:
        with roles(run).ledger.writing() as transaction:
            transaction.held.decide(held, by="ops", approved=True)  # and is killed
        wait_for(lambda: run.approvals.find(held).state == "done")
        assert all(location.deleted is not None for location in run.locate(records=RECORDS[:3]))
