"""What the client makes of an engine's answers, also of those that no engine should give."""

import contextlib

import httpx
import numpy as np
import pytest

from s3t.errors import EngineError
from s3t_server.gateway.lora_engine import KEY_VARIABLE, LoraEngine, LostAnswerError, UnknownAdapterError
from testing import served

PROMPTS = [[1, 2], [3]]


def answering(monkeypatch, *answers):
    """A client that gets these answers, one after the other, and the requests that it has sent."""
    sent = served.answering(monkeypatch, *answers)
    return contextlib.closing(LoraEngine("http://engine/", seconds=5.0)), sent


def refusal(status, message):
    return status, {"error": {"message": message}}


def classified(rows, *, model="x"):
    data = [{"index": index, "probs": row, "num_classes": len(row)} for index, row in enumerate(rows)]
    return 200, {"object": "list", "model": model, "data": data}


UNKNOWN = 404, {"error": {"message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404}}
LISTING = 200, {"data": [{"id": "base", "parent": None}, {"id": "y", "parent": "base"}]}
NO_ROUTE = 404, {"detail": "Not Found"}


def test_probabilities_are_in_the_order_of_the_inputs(monkeypatch):
    status, body = classified([[0.25, 0.75], [1.0, 0.0]])
    body["data"].reverse()
    client, sent = answering(monkeypatch, (status, body))
    with client as engine:
        np.testing.assert_array_equal(engine.classify("x", PROMPTS, labels=2), [[0.25, 0.75], [1.0, 0.0]])
    assert sent[0].url == "http://engine/classify"


WRONG = {
    "another number of labels": (classified([[0.2, 0.3, 0.5]] * 2), "labels; start it with a base model"),
    "another number of inputs": (classified([[0.5, 0.5]]), "for 2 inputs"),
    "logits": (classified([[-3.0, 4.0]] * 2), "no probabilities that add up"),
    "not a number": (classified([[None, 1.0]] * 2), "no probabilities that add up"),
    "another model": (classified([[0.5, 0.5]] * 2, model="base"), "answered as another model"),
    "no document": ((200, "fine"), "not as vLLM does"),
    "another document": ((200, {"data": [1]}), "not as vLLM does"),
    "a failure": (refusal(500, "no"), "status 500"),
    "no such route": (NO_ROUTE, "status 404"),
}


@pytest.mark.parametrize(("answer", "reason"), WRONG.values(), ids=WRONG)
def test_an_answer_that_is_none_is_refused(monkeypatch, answer, reason):
    client, _ = answering(monkeypatch, answer)
    with client as engine, pytest.raises(EngineError, match=reason) as refused:
        engine.classify("x", PROMPTS, labels=2)
    assert not isinstance(refused.value, UnknownAdapterError)


def test_an_adapter_that_the_engine_does_not_have_is_told_apart(monkeypatch):
    as_it_was = 404, {"object": "error"} | UNKNOWN[1]["error"]
    client, _ = answering(monkeypatch, UNKNOWN, as_it_was)
    with client as engine:
        for _ in range(2):
            with pytest.raises(UnknownAdapterError):
                engine.classify("x", PROMPTS, labels=2)


GONE = {
    "gone": ([LISTING, UNKNOWN, classified([[0.5, 0.5]])], None),
    "listed": ([(200, {"data": [{"id": "b"}, {"id": "x", "parent": "b"}]})], "still lists"),
    "answered": ([LISTING, classified([[0.5, 0.5]])], "still answers"),
    "behind a wrong route": ([LISTING, NO_ROUTE], "not as vLLM does"),
    "refused for another reason": ([LISTING, refusal(400, "x is too long")], "not as vLLM does"),
    "an engine that answers nobody": ([LISTING, UNKNOWN, UNKNOWN], "does not show that it is gone"),
    "no list": ([(200, {"data": []})], "not as vLLM does"),
}


@pytest.mark.parametrize(("answers", "reason"), GONE.values(), ids=GONE)
def test_what_shows_that_an_adapter_is_gone(monkeypatch, answers, reason):
    client, _ = answering(monkeypatch, *answers)
    with client as engine, contextlib.nullcontext() if reason is None else pytest.raises(EngineError, match=reason):
        engine.check_gone("x", [1])


def test_loading_twice_and_unloading_twice_are_no_errors(monkeypatch):
    twice = refusal(400, "The lora adapter 'x' has already been loaded.")
    gone = refusal(404, "The lora adapter 'x' cannot be found.")
    client, sent = answering(monkeypatch, (200, "Success"), twice, (200, "Success"), gone)
    with client as engine:
        for _ in range(2):
            engine.load("x", "/adapters/x")
        for _ in range(2):
            engine.unload("x")
    assert b'"lora_path":"/adapters/x"' in sent[0].content


LOST = (httpx.ReadTimeout("late"), httpx.ReadError("gone"), (504, "a proxy's page"))
NOT_LOST = (httpx.ConnectError("refused"), refusal(500, "no room"))


@pytest.mark.parametrize("answer", [*LOST, *NOT_LOST])
def test_a_load_is_sent_once_and_whether_its_answer_was_lost_is_told(monkeypatch, answer):
    client, sent = answering(monkeypatch, answer)
    with client as engine, pytest.raises(EngineError) as raised:
        engine.load("x", "/adapters/x")
    assert len(sent) == 1
    assert isinstance(raised.value, LostAnswerError) == (answer in LOST)


def test_refusals_to_load_and_unload_say_what_helps(monkeypatch):
    no_room = refusal(500, "no room")
    client, _ = answering(monkeypatch, NO_ROUTE, no_room, no_room, NO_ROUTE)
    with client as engine:
        for reason in ("VLLM_ALLOW_RUNTIME_LORA_UPDATING=1", "does it see that folder"):
            with pytest.raises(EngineError, match=reason):
                engine.load("x", "/adapters/x")
        for _ in range(2):
            with pytest.raises(EngineError, match="restart the engine"):
                engine.unload("x")


def test_a_connection_that_had_ended_is_tried_again_once_and_the_key_is_sent(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    ended = httpx.RemoteProtocolError("ended")
    client, sent = answering(monkeypatch, ended, LISTING, ended, ended, httpx.ReadTimeout("late"))
    with client as engine:
        assert engine.models() == ("base", frozenset({"y"}))
        for reason in ("RemoteProtocolError", "ReadTimeout"):
            with pytest.raises(EngineError, match=f"not reached .{reason}"):
                engine.models()
    assert len(sent) == 5
    assert {request.headers["Authorization"] for request in sent} == {"Bearer secret"}
