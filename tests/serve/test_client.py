"""`s3t.Client`: the verbs of a run over HTTP, and what it does when a server is busy, away, or another one."""

import httpx
import pytest

import s3t
from s3t.client import Client
from testing.served import answering, wait_for

TEXTS = ["w1 w2", "w30", "w22 w3 w4"]


@pytest.fixture
def served(client, tokens):
    """Of a server of `path`, with all scopes."""
    with Client(str(client.base_url), tokens["all"]) as own:
        yield own


def test_every_verb_gives_the_document_of_the_run_s(served, path):
    with s3t.Run.open(path) as run:
        found = served.predict(TEXTS)
        assert [row["label"] for row in found["predictions"]] == list(run.predict(TEXTS).predicted)
        assert len(served.predict("w1 w2", top=1)["predictions"][0]["probabilities"]) == 1
        assert served.predict({"text": "w1 w2"})["predictions"] == served.predict(["w1 w2"])["predictions"]
        assert served.status().to_json() == run.status(full=True).to_json()
        assert served.forecast().to_json() == run.forecast().to_json()
        planned = served.delete(records=["r0"], dry_run=True)
        assert (planned.dry_run, planned.deleted, planned.state) == (True, 1, None)
        done, again = (served.delete(records=["r0", "nobody"], key="ticket-1") for _ in range(2))
        assert (done.deleted, done.unknown, done.repeated, again.repeated) == (1, ("nobody",), False, True)
        wait_for(lambda: served.deletion(done.id).state == "erased")  # in the background: times change until then
        assert served.deletion(done.id) == served.log()[-1]
        assert [entry.to_json() for entry in served.log()] == [entry.to_json() for entry in run.log()]
        located = served.locate(records=["r0", "r1", "nobody"])
        wanted = run.locate(records=["r0", "r1", "nobody"])
        assert [each.to_json() for each in located] == [each.to_json() for each in wanted]
        assert [each.state == "erased" for each in located] == [True, False, False]


@pytest.mark.integration
def test_repairs_begin_and_are_followed_to_their_end(served, path):
    served.delete(records=["r0"])
    begun = served.repair(hours=1.0)
    told = list(served.follow(begun.id))
    assert (told[-1].state, told[-1].trained) == ("done", told[-1].stages)
    assert served.repairs()[0] == told[-1]
    assert served.status().missing == 0


def test_all_problems_of_an_input_and_refusals_in_the_server_s_words(served, client, tokens):
    with pytest.raises(s3t.InputError) as caught:
        served.predict([3, "w1", 4])
    assert len(caught.value.problems) == 2
    for wrong in ({}, {"records": "r0"}):
        for ask in (served.delete, served.locate):
            with pytest.raises(s3t.InputError):
                ask(**wrong)
    with pytest.raises(s3t.InputError, match="JSON"):
        served.predict([{"text": object()}])
    with pytest.raises(s3t.ServerError, match="strict") as unknown:
        served.delete(records=["nobody"], strict=True)
    assert (unknown.value.status, served.status().generation) == (404, 0)
    with Client(str(client.base_url), tokens["predict"]) as other:
        with pytest.raises(s3t.ServerError, match="scope operate") as refused:
            other.status()
        with pytest.raises(s3t.ServerError):
            list(other.follow("none"))
        assert tokens["predict"] not in repr(other)
    assert refused.value.status == 403


def test_an_address_or_a_token_that_is_none():
    for url in ("", "localhost:8080", "ftp://localhost", "http://", "http://h:x"):
        with pytest.raises(s3t.InputError, match="address"):
            Client(url)
    with pytest.raises(s3t.InputError, match="ASCII"):
        Client("http://localhost", "s3t_ä")


DONE = (200, {"id": 1, "generation": 1, "deleted": 1, "already": [], "unknown": [], "state": "erased"})
ADDRESS = "http://server"


@pytest.mark.parametrize("before", [httpx.RemoteProtocolError("ended"), (503, {}, {"Retry-After": "1"}), (429, {})])
def test_a_request_that_was_lost_or_came_too_early_is_made_again_with_its_key(before, monkeypatch):
    pauses, sent = [], answering(monkeypatch, before, before, DONE)
    monkeypatch.setattr("s3t.client.time.sleep", pauses.append)
    with Client(ADDRESS) as client:
        assert client.delete(records=["r0"]).deleted == 1
    assert (len(sent), len({request.headers["Idempotency-Key"] for request in sent})) == (3, 1)
    assert pauses == ([1.0, 1.0] if "Retry-After" in str(before) else [0.25, 0.5])


def test_after_its_last_attempt_the_refusal_is_told(monkeypatch):
    monkeypatch.setattr("s3t.client.time.sleep", lambda _: None)
    busy, gone = (503, {"detail": "9 inputs wait"}), httpx.ConnectError("refused")
    answering(monkeypatch, busy, busy, gone, gone)
    with Client(ADDRESS, attempts=2) as client:
        for words, status in (("9 inputs wait", 503), ("no answer from", None)):
            with pytest.raises(s3t.ServerError, match=words) as refused:
                client.predict(["w1"])
            assert refused.value.status == status


def test_another_server_is_named_as_such(monkeypatch):
    answers = ((200, "<html>"), (200, []), (404, "not here"), (500, {}))
    sent = answering(monkeypatch, *answers)
    with Client(ADDRESS) as client:
        for number in range(len(answers)):
            with pytest.raises(s3t.ServerError, match="server of s3t"):
                client.predict(["w1"])
            assert len(sent) == number + 1
