"""Texts as OpenAI's clients ask for them: what is honoured and what refused, and that no deleted record writes."""

import asyncio
import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from itertools import pairwise

import pyarrow as pa
import pytest

import s3t
from s3t.errors import StorageError
from s3t.ledger.presence import Work
from s3t.prediction.generation import Continuation, Sampling
from s3t.records.ingest import IngestedInputs
from s3t.run.pending import PendingTexts, SharedBatch
from s3t_server.answering import GENERATION_HEADER
from s3t_server.completions import IGNORED, WITHOUT_EFFECT, TextsResponse
from s3t_server.tokens import SCOPES, Access
from s3t_server.writing import Order, Scribe
from testing import tiny
from testing.language import chat_table, language_recipe, make_language_model, prompt_table
from testing.roles import roles
from testing.served import bearer, serving
from tests.run.test_language import CHATS
from tests.run.test_overtaken import state_of
from tests.run.worlds import SMALL, trained_run

SECONDS = 60.0
HOW = {"max_tokens": 40, "temperature": 5.0}
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BODIES = {COMPLETIONS: {"prompt": "w1"}, CHAT: {"messages": [{"role": "user", "content": "w1"}]}}


def make_run(folder, kind):
    """The folder of a trained run: of prompts, of chats, or of prompts that a template puts together."""
    recipes = {
        "prompts": (SMALL, prompt_table()),
        "chats": (SMALL | CHATS, chat_table()),
        "rows": (SMALL | {"columns": {"prompt": ["w0 {prompt} w1 {more}", "w0 {prompt} w1"]}}, None),
    }
    changes, table = recipes[kind]
    table = prompt_table().assign(more="w5") if table is None else table
    recipe = language_recipe(make_language_model(folder / "model"), **changes)
    with trained_run(folder / "run", recipe, table) as run:
        Access(run).create("app", scopes=["predict", "delete", "operate"])
    return folder / "run"


@pytest.fixture(scope="module")
def made(state_of_all, tmp_path_factory):
    """Folder of a trained run by its kind, each made once."""
    folders = {}

    def folder(kind):
        if kind not in folders:
            folders[kind] = make_run(tmp_path_factory.mktemp(kind), kind)
        return folders[kind]

    return folder


@pytest.fixture
def path(made, tmp_path):
    """A run of prompts."""
    return tiny.copy_run(made("prompts"), tmp_path / "run")


@contextmanager
def server(path, **settings):
    """A client of a server that writes a step a turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("s3t_server.writing.TURN_SECONDS", 0.0)
        with serving(path, open_scopes=("predict", "delete", "operate"), **settings) as client:
            yield client


@pytest.fixture
def client(path):
    with server(path) as client:
        yield client


@pytest.fixture
def seed(path):
    """One that gives a text of many tokens."""
    with s3t.Run.open(path) as run:
        how = {"max_new_tokens": 40, "temperature": 5.0}
        return next(seed for seed in range(200) if run.generate(["w1 w2"], seed=seed, **how).tokens[0] >= 10)


def asked(seed, **more):
    return HOW | {"prompt": "w1 w2", "seed": seed} | more


def events(answer):
    """The data of a stream's events."""
    return [line.removeprefix("data: ") for line in answer.iter_lines() if line]


def text_of(found):
    return "".join(choice["text"] for one in found for choice in one.get("choices", ()))


# --- what is honoured


def test_a_completion_is_that_of_the_run(client, path):
    with s3t.Run.open(path) as run:
        how = {"max_new_tokens": 9, "temperature": 2.0, "top_p": 0.9, "seed": 3}
        wanted = run.generate(["w1 w2", "w3"], **how)
    body = {"model": "run", "prompt": ["w1 w2", "w3"], "max_tokens": 9, "temperature": 2, "top_p": 0.9, "seed": 3}
    answer = client.post(COMPLETIONS, json=body | {"user": "u", "metadata": {"a": "b"}, "store": True, "n": 1})
    assert (answer.status_code, answer.headers[GENERATION_HEADER]) == (200, "0"), answer.text
    found = answer.json()
    assert (found["object"], found["model"], found["id"][:5]) == ("text_completion", "run", "cmpl-")
    assert found["system_fingerprint"] == "s3t-generation-0"
    assert [choice["index"] for choice in found["choices"]] == [0, 1]
    assert [choice["text"] for choice in found["choices"]] == list(wanted.texts)
    assert [choice["finish_reason"] for choice in found["choices"]] == list(wanted.finish)
    assert found["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": sum(wanted.tokens),
        "total_tokens": 3 + sum(wanted.tokens),
    }


def test_a_stream_has_the_same_text_in_parts(client, seed):
    whole = client.post(COMPLETIONS, json=asked(seed)).json()
    with client.stream("POST", COMPLETIONS, json=asked(seed, stream=True)) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers[GENERATION_HEADER] == "0"
        *parts, end = events(answer)
    found = [json.loads(part) for part in parts]
    assert end == "[DONE]"
    assert len(found) > 3
    assert {one["id"] for one in found} == {found[0]["id"]}
    assert text_of(found) == whole["choices"][0]["text"]
    assert [one["choices"][0]["finish_reason"] for one in found if one["choices"][0]["finish_reason"]] == [
        whole["choices"][0]["finish_reason"]
    ]
    assert not any("usage" in one for one in found)


def test_a_completion_tells_how_likely_its_tokens_are(client, path):
    """As the ensemble says, whatever the temperature; the end of the text is no token of it."""
    for seed in range(200):
        body = asked(seed, logprobs=3)
        answer = client.post(COMPLETIONS, json=body).json()
        (whole,) = answer["choices"]
        found = whole["logprobs"]
        written = answer["usage"]["completion_tokens"] - (whole["finish_reason"] == "stop")
        if len(found["tokens"]) == written >= 5:  # without special tokens, of which nothing is in the text
            break
    with s3t.Run.open(path) as run:
        writer = run.parts.writer
        tokenizer = writer.encoder.tokenizer
        (before,) = writer.encoder.prompts(writer.checked(["w1 w2"]).features)
        tokens = tokenizer("".join(found["tokens"]), add_special_tokens=False)["input_ids"]
        (wanted,) = writer.likelihoods([Continuation(before, tokens)])
        assert len(tokens) == written
    assert "".join(found["tokens"]) == whole["text"]
    assert sum(found["token_logprobs"]) == pytest.approx(wanted.log_probability, abs=1e-4)
    places = zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], found["text_offset"], strict=True)
    for token, log, likeliest, offset in places:
        assert whole["text"][offset:].startswith(token)
        assert likeliest[token] == pytest.approx(log)
        assert log <= max(likeliest.values()) <= 0
        assert 3 <= len(likeliest) <= 4
    with client.stream("POST", COMPLETIONS, json=body | {"stream": True}) as answer:
        parts = [json.loads(part)["choices"][0]["logprobs"] for part in events(answer)[:-1]]
    assert {name: [one for part in parts for one in part[name]] for name in found} == found
    (alone,) = client.post(COMPLETIONS, json=asked(seed, logprobs=0)).json()["choices"]
    assert [list(one) for one in alone["logprobs"]["top_logprobs"]] == [[token] for token in found["tokens"]]
    assert client.post(COMPLETIONS, json=asked(seed)).json()["choices"][0]["logprobs"] is None


def test_a_stream_counts_its_tokens_if_it_is_asked_to(client, seed):
    whole = client.post(COMPLETIONS, json=asked(seed, prompt=["w1 w2", "w3"])).json()
    body = asked(seed, prompt=["w1 w2", "w3"], stream=True, stream_options={"include_usage": True})
    with client.stream("POST", COMPLETIONS, json=body) as answer:
        *parts, last, _ = map(str, events(answer))
    assert json.loads(last)["usage"] == whole["usage"]
    assert json.loads(last)["choices"] == []
    found = [json.loads(part) for part in parts]
    assert all(one["usage"] is None for one in found)
    for index in (0, 1):
        own = [one for one in found if one["choices"][0]["index"] == index]
        assert text_of(own) == whole["choices"][index]["text"]


def test_openai_s_defaults(client, path):
    with s3t.Run.open(path) as run:
        wanted = run.generate(["w1 w2"], max_new_tokens=16, temperature=1.0, seed=7)
    found = client.post(COMPLETIONS, json={"prompt": "w1 w2", "seed": 7, "max_tokens": None, "stop": None}).json()
    assert found["choices"][0]["text"] == wanted.texts[0]
    drawn = {client.post(COMPLETIONS, json=HOW | {"prompt": "w1 w2"}).json()["choices"][0]["text"] for _ in range(4)}
    assert len(drawn) > 1  # a seed of its own for each


def test_several_choices_differ_and_a_seed_repeats_them(client, path):
    body = HOW | {"prompt": ["w1 w2", "w1 w2"], "n": 2, "seed": 3}
    with s3t.Run.open(path) as run:
        wanted = run.generate(body["prompt"], max_new_tokens=40, temperature=5.0, seed=3, n=2)
    for _ in range(2):
        found = client.post(COMPLETIONS, json=body).json()
        assert [choice["text"] for choice in found["choices"]] == list(wanted.texts)
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2, 3]
    assert len({choice["text"] for choice in found["choices"]}) == 4
    assert found["usage"]["prompt_tokens"] == 4
    with client.stream("POST", COMPLETIONS, json=body | {"stream": True}) as answer:
        parts = [json.loads(event)["choices"][0] for event in events(answer)[:-1]]
    assert ["".join(part["text"] for part in parts if part["index"] == index) for index in range(4)] == list(
        wanted.texts
    )


def test_a_text_ends_at_a_stop_text_and_at_the_greatest_length(client, seed):
    (whole,) = client.post(COMPLETIONS, json=asked(seed)).json()["choices"]
    stop = f" {whole['text'].split()[3]}"
    for given in (stop, ["never", stop]):
        (stopped,) = client.post(COMPLETIONS, json=asked(seed, stop=given)).json()["choices"]
        assert stopped["text"] == whole["text"][: whole["text"].index(stop)]
        assert stopped["finish_reason"] == "stop"
    cut = client.post(COMPLETIONS, json=asked(seed, max_tokens=2)).json()
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == 2


@pytest.mark.integration
def test_a_chat_is_answered(made, tmp_path):
    path = tiny.copy_run(made("chats"), tmp_path / "run")
    chat = [{"role": "system", "content": "w9"}, {"role": "user", "content": "w1\nw2"}]
    with s3t.Run.open(path) as run:
        wanted = run.generate([chat], max_new_tokens=9, temperature=2.0, seed=3)
    parts = [{"type": "text", "text": "w1"}, {"type": "text", "text": "w2"}]
    body = {"model": "run", "temperature": 2.0, "seed": 3, "max_completion_tokens": 9}
    with server(path) as client:
        for content in ("w1\nw2", parts):
            messages = [chat[0], {"role": "user", "content": content}]
            found = client.post(CHAT, json=body | {"messages": messages, "max_tokens": 20}).json()
            assert found["object"] == "chat.completion"
            assert found["choices"][0]["message"]["content"] == wanted.texts[0]
            assert found["choices"][0]["message"]["role"] == "assistant"
        with client.stream("POST", CHAT, json=body | {"messages": chat, "stream": True}) as answer:
            deltas = [json.loads(event)["choices"][0]["delta"] for event in events(answer)[:-1]]
        assert "".join(delta["content"] for delta in deltas) == wanted.texts[0]
        assert [delta.get("role") for delta in deltas] == ["assistant", *[None] * (len(deltas) - 1)]
        long = client.post(CHAT, json={"messages": chat, "temperature": 5.0}).json()
        likely = {"messages": chat, "temperature": 5.0, "logprobs": True, "top_logprobs": 2, "seed": 4}
        (choice,) = client.post(CHAT, json=likely).json()["choices"]
        content = choice["logprobs"]["content"]
        assert bytes(byte for one in content for byte in one["bytes"]).decode() == choice["message"]["content"]
        assert all(len(one["top_logprobs"]) == 2 for one in content)
        assert all(one["logprob"] <= one["top_logprobs"][0]["logprob"] <= 0 for one in content)
        assert "logprobs: true" in client.post(CHAT, json=likely | {"logprobs": False}).text
        assert long["usage"]["total_tokens"] <= 48
        refused = client.post(COMPLETIONS, json={"prompt": "w1"})
        assert (refused.status_code, CHAT in refused.json()["detail"]) == (404, True)
        for wrong in ("w1", [], [1], [{"role": "user"}], [{"role": "user", "content": [{"type": "image_url"}]}]):
            assert client.post(CHAT, json={"messages": wrong}).status_code == 400
        ended = [*chat, {"role": "assistant", "content": "w3"}]
        assert "assistant's turn" in client.post(CHAT, json={"messages": ended}).json()["detail"]
        half = '{"messages": [{"role": "user", "content": "\\ud800"}]}'
        refused = client.post(CHAT, content=half, headers={"Content-Type": "application/json"})
        assert (refused.status_code, "surrogate" in refused.json()["detail"]) == (400, True)


@pytest.mark.integration
def test_prompts_are_rows_where_the_recipe_has_a_template(made, tmp_path):
    path = tiny.copy_run(made("rows"), tmp_path / "run")
    rows = [{"prompt": "w3", "more": "w4"}, {"prompt": "w3", "more": ""}]
    with s3t.Run.open(path) as run:
        wanted = run.generate(rows, max_new_tokens=16, temperature=1.0, seed=1)
    with server(path) as client:
        found = client.post(COMPLETIONS, json={"prompt": rows, "seed": 1}).json()
        assert [choice["text"] for choice in found["choices"]] == list(wanted.texts)
        assert client.post(COMPLETIONS, json={"prompt": rows[0], "seed": 1}).status_code == 200
        assert client.post(COMPLETIONS, json={"prompt": "w3"}).status_code == 400


# --- what is refused


@pytest.mark.integration
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"n": 0}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"echo": True}, "echo"),
        ({"suffix": "w1"}, "suffix"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": 1, "top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": -1}, "frequency_penalty"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"top_k": 5}, "top_k"),
        ({"priority": 1}, "priority"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"sekret": True}}, "stream_options"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2000}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ""}, "stop"),
        ({"seed": 1.5}, "seed"),
        ({"stream": "yes"}, "stream"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": "w1 " * 60}, "prompt"),
        ({"sekret": 1}, "1 field"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(client, body, named):
    refused = client.post(COMPLETIONS, json={"prompt": "w7"} | body)
    assert refused.status_code == 400, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    found = refused.json()
    assert named in found["error"]["message"]
    assert found["error"]["type"] == "invalid_request_error"
    too_long = body == {"prompt": "w1 " * 60}
    assert found["error"]["code"] == ("context_length_exceeded" if too_long else None)
    assert "w7" not in refused.text
    assert "sekret" not in refused.text


def test_more_choices_than_may_be_written_at_once_are_refused(client):
    refused = client.post(COMPLETIONS, json={"prompt": ["w1", "w2"], "n": 10**12})
    assert (refused.status_code, "ask for at most" in refused.json()["detail"]) == (413, True)


def test_values_that_change_nothing_are_taken(client):
    fields = dict.fromkeys(IGNORED, "anything")
    for place in range(2):
        fields |= {name: (*values, None)[place] for name, values in WITHOUT_EFFECT.items() if len(values) >= place}
        assert client.post(COMPLETIONS, json={"prompt": "w1", "model": None} | fields).status_code == 200
    lowest = client.post(COMPLETIONS, json={"prompt": "w1", "temperature": 1e-320, "seed": -5})
    assert lowest.status_code == 200


def test_another_model_and_the_other_route_are_not_there(client, path, trained_once):
    assert client.post(COMPLETIONS, json={"prompt": "w1", "model": "another"}).status_code == 404
    refused = client.post(CHAT, json={"messages": [{"role": "user", "content": "w1"}]})
    assert (refused.status_code, COMPLETIONS in refused.json()["error"]["message"]) == (404, True)
    assert client.post("/runs/run/v1/completions", json={"prompt": "w1", "model": "run"}).status_code == 200
    with serving(tiny.copy_run(trained_once, path.parent / "labels"), open_scopes=("predict",)) as labels:
        for route in (COMPLETIONS, CHAT):
            assert labels.post(route, json={"prompt": "w1"}).status_code == 404


@pytest.mark.integration
@pytest.mark.parametrize(("kind", "own", "other"), [("prompts", COMPLETIONS, CHAT), ("chats", CHAT, COMPLETIONS)])
def test_the_routes_are_open_to_those_who_may_predict(made, tmp_path, kind, own, other):
    path = tiny.copy_run(made(kind), tmp_path / "run")
    with s3t.Run.open(path) as run:
        tokens = {scope: Access(run).create(scope, scopes=[scope])[1] for scope in SCOPES}
    with serving(path) as client:
        described = client.get("/v1/openapi.json").json()["paths"]
        assert own in described
        assert other not in described
        for route in (own, other):
            assert client.post(route, json=BODIES[route]).status_code == 401
            refused = client.post(route, json=BODIES[route], headers=bearer("s3t_x"))
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
            for scope in SCOPES:
                status = client.post(route, json=BODIES[route], headers=bearer(tokens[scope])).status_code
                assert status == (403 if scope != "predict" else 200 if route == own else 404)


def test_no_text_stands_in_the_log(path, caplog):
    with caplog.at_level("INFO"), server(path) as client:
        client.post(COMPLETIONS, json={"prompt": "w1 w2", "max_tokens": 3})
        client.post(COMPLETIONS, json={"prompt": 3, "w7": "w8"})
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "s3t.requests"]
    assert (lines[0]["route"], lines[0]["generation"], lines[0]["inputs"]) == (COMPLETIONS, 0, 1)
    assert not any(word in caplog.text for word in ("w1", "w2", "w7", "w8"))


# --- the fence


@pytest.fixture
def deletion(path):
    """Another process deletes a record of everything that writes, and waits for nobody."""
    with s3t.Run.open(path) as other:
        roles(other).deleter.patience = 0.0

        def delete():
            other.delete(records=["r3"])
            return state_of(other)

        delete.state = lambda: state_of(other)
        yield delete


def before_turn(monkeypatch, number, act):
    """Act once, before a turn; with the batch whose turn it is."""
    usual, turns = SharedBatch.turn, []

    def turn(batch, seconds):
        turns.append(batch)
        if len(turns) == number:
            act(batch)
        return usual(batch, seconds)

    monkeypatch.setattr(SharedBatch, "turn", turn)
    return turns


def wait_until(true):
    until = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_whole_text_that_a_deletion_overtakes_is_written_anew(client, path, deletion, monkeypatch):
    body = asked(3, temperature=1.0)
    before = client.post(COMPLETIONS, json=body).json()
    before_turn(monkeypatch, 3, lambda _batch: deletion())
    answer = client.post(COMPLETIONS, json=body)
    assert answer.headers[GENERATION_HEADER] == "1"
    assert answer.json()["system_fingerprint"] == "s3t-generation-1"
    with s3t.Run.open(path) as run:
        after = run.generate(["w1 w2"], max_new_tokens=40, temperature=1.0, seed=3)
    assert answer.json()["choices"][0]["text"] == after.texts[0] != before["choices"][0]["text"]
    wait_until(lambda: deletion.state() in ("effective", "erased"))


def test_a_stream_that_a_deletion_overtakes_ends_with_an_error(client, seed, deletion, monkeypatch):
    arrived = threading.Event()

    def act(_batch):
        assert arrived.wait(SECONDS)
        deletion()

    turns = before_turn(monkeypatch, 3, act)
    with client.stream("POST", COMPLETIONS, json=asked(seed, stream=True)) as answer:
        found = []
        for line in answer.iter_lines():
            arrived.set()
            if line:
                found.append(json.loads(line.removeprefix("data: ")))
    assert len(turns) == 3
    assert len(found) <= 3  # what two turns wrote, and the error; no [DONE]
    assert found[-1]["error"]["type"] == "server_error"
    assert "a deletion took a stage that was writing" in found[-1]["error"]["message"]
    assert all(one["system_fingerprint"] == "s3t-generation-0" for one in found[:-1])
    wait_until(lambda: deletion.state() in ("effective", "erased"))


def test_a_stream_that_is_overtaken_before_its_first_part_is_begun_anew(client, seed, deletion, monkeypatch):
    before_turn(monkeypatch, 1, lambda _batch: deletion())
    with client.stream("POST", COMPLETIONS, json=asked(seed, stream=True)) as answer:
        assert answer.headers[GENERATION_HEADER] == "1"
        assert events(answer)[-1] == "[DONE]"


def test_a_deletion_waits_for_a_part_on_its_way_and_no_part_after_it_leaves(client, seed, deletion, monkeypatch):
    """The whole text is written, and its first part is being handed over, when the deletion comes."""
    usual_part, usual_put, usual_begun = TextsResponse._part, Order.put, Order.begun
    handing, go_on, finished, held = threading.Event(), threading.Event(), threading.Event(), []

    async def part(response, pending, content, *, last=False):
        from anyio import to_thread

        if not handing.is_set():
            handing.set()
            await to_thread.run_sync(go_on.wait, SECONDS)
        await usual_part(response, pending, content, last=last)

    def put(order, piece):
        usual_put(order, piece)
        if piece is None:
            finished.set()

    def begun(order, batch, texts):
        held.append(texts)
        usual_begun(order, batch, texts)

    monkeypatch.setattr(TextsResponse, "_part", part)
    monkeypatch.setattr(Order, "put", put)
    monkeypatch.setattr(Order, "begun", begun)
    answers = []
    reader = threading.Thread(
        target=lambda: answers.append(client.post(COMPLETIONS, json=asked(seed, stream=True)).text)
    )
    reader.start()
    assert handing.wait(SECONDS)
    assert finished.wait(SECONDS)
    assert deletion() == "accepted"
    wait_until(lambda: held[0]._work.overtaken)
    held[0]._presence.look()
    assert deletion.state() == "accepted"  # the part has not left
    go_on.set()
    reader.join(SECONDS)
    found = [json.loads(line.removeprefix("data: ")) for line in answers[0].split("\n\n") if line]
    assert ["error" in one for one in found] == [False, True]
    wait_until(lambda: deletion.state() in ("effective", "erased"))


@pytest.mark.parametrize("stream", [False, True])
def test_the_last_look_is_right_before_a_text_leaves(client, seed, monkeypatch, stream):
    looks = []

    def may_leave(texts):
        looks.append(texts)
        return len({id(each) for each in looks}) > 1

    monkeypatch.setattr(PendingTexts, "may_leave", may_leave)
    assert client.post(COMPLETIONS, json=asked(seed, stream=stream)).status_code == 200
    assert len({id(each) for each in looks}) == 2  # it was begun anew


def test_a_fault_in_the_middle_of_a_stream_is_told_without_its_text(client, seed, monkeypatch):
    usual, calls = Work.confirm, []

    def confirm(work):
        calls.append(work)
        if len(calls) == 3:
            raise StorageError("/secret/place: no space left")
        usual(work)

    monkeypatch.setattr(Work, "confirm", confirm)
    with client.stream("POST", COMPLETIONS, json=asked(seed, stream=True)) as answer:
        found = events(answer)
    assert json.loads(found[-1])["error"]["type"] == "server_error"
    assert "secret" not in "".join(found)


# --- bounds


def test_a_client_that_goes_away_ends_its_text(client, seed, deletion, monkeypatch):
    gone, usual = threading.Event(), Order.leave

    def leave(order):
        usual(order)
        gone.set()

    monkeypatch.setattr(Order, "leave", leave)
    turns = before_turn(monkeypatch, 3, lambda _batch: gone.wait(SECONDS))
    for stream in (True, False):
        gone.clear()
        turns.clear()
        body = json.dumps(asked(seed, stream=stream)).encode()
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_until(lambda: len(turns) >= 3)
        assert gone.wait(SECONDS)
        assert client.post(COMPLETIONS, json={"prompt": "w1", "max_tokens": 1}).status_code == 200
        assert turns.count(turns[0]) <= 4
        assert turns[-1] is not turns[0]  # nobody joins a text that is gone
    assert deletion() is not None
    wait_until(lambda: deletion.state() in ("effective", "erased"))


def test_a_client_that_does_not_read_holds_no_deletion_up_and_is_cut_off(path, seed, deletion, monkeypatch):
    """All is written, and a part waits for the client, when the deletion comes."""
    finished, usual = threading.Event(), Order.put

    def put(order, piece):
        usual(order, piece)
        if piece is None:
            finished.set()

    monkeypatch.setattr(Order, "put", put)
    with server(path, send_seconds=1.0, max_texts=100, send_buffer=4096) as client, socket.socket() as deaf:
        body = json.dumps(asked(seed, prompt=["w1 w2"] * 100, stream=True)).encode()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((client.base_url.host, client.base_url.port))
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        deaf.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        deaf.settimeout(SECONDS)
        assert finished.wait(SECONDS)
        deletion()
        wait_until(lambda: deletion.state() in ("effective", "erased"))
        content = b""
        with suppress(ConnectionError):
            while part := deaf.recv(1 << 16):
                content += part
    assert b"[DONE]" not in content
    assert b'"error"' not in content  # it was cut off: what it had not taken in time is lost


def test_texts_that_wait_are_bounded_and_others_are_told_when_to_ask_again(path, seed, monkeypatch):
    with server(path, max_texts=2, max_queued_texts=2) as client:
        assert client.post(COMPLETIONS, json={"prompt": ["w1"] * 3}).status_code == 413
        began, go_on = threading.Event(), threading.Event()

        def act(_batch):
            began.set()
            go_on.wait(SECONDS)

        before_turn(monkeypatch, 1, act)
        answers = []
        threads = [
            threading.Thread(
                target=lambda: answers.append(client.post(COMPLETIONS, json=asked(seed, prompt=["w1 w2", "w3"])))
            )
            for _ in range(4)
        ]
        threads[0].start()
        assert began.wait(SECONDS)
        for thread in threads[1:]:
            thread.start()
        wait_until(lambda: len(answers) == 2)
        assert [(answer.status_code, answer.headers["retry-after"]) for answer in answers] == [(503, "1")] * 2
        go_on.set()
        for thread in threads:
            thread.join(SECONDS)
    assert sorted(answer.status_code for answer in answers) == [200, 200, 503, 503]
    texts = [answer.json()["choices"] for answer in answers if answer.status_code == 200]
    assert texts[0] == texts[1]


def test_a_text_that_waits_too_long_is_refused_and_one_under_way_is_not(path, seed, monkeypatch):
    """The first takes all the room until the second was refused."""
    with server(path, max_texts=1, answer_seconds=0.2) as client:
        refused = threading.Event()
        before_turn(monkeypatch, 2, lambda _batch: refused.wait(SECONDS))
        answers = []
        first = threading.Thread(target=lambda: answers.append(client.post(COMPLETIONS, json=asked(seed))))
        first.start()
        time.sleep(0.1)
        second = client.post(COMPLETIONS, json=asked(seed))
        refused.set()
        first.join(SECONDS)
    assert (second.status_code, second.headers["retry-after"]) == (503, "1")
    assert "not answered within 0.2 seconds" in second.json()["error"]["message"]
    assert answers[0].status_code == 200


def test_requests_whose_client_is_gone_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(Scribe, "_work", lambda _scribe: None)  # as while the first of them waits for room
    scribe = Scribe(None, most=1, max_queued=1, together=True)
    prompts = IngestedInputs(pa.table({"prompt": ["w1"]}), None, range(1))

    async def come_and_go():
        for _ in range(5):
            scribe.order(prompts, Sampling(), caller="").leave()

    asyncio.run(come_and_go())
    assert len([*scribe._waiting]) == 1


@pytest.mark.parametrize("exact", [False, True])
def test_texts_of_several_clients_are_written_side_by_side_or_exactly_in_turns(path, seed, monkeypatch, exact):
    both = threading.Event()
    turns = before_turn(monkeypatch, 2, lambda _batch: both.wait(SECONDS))
    usual = Order.__init__

    def ordered(order, *arguments):
        usual(order, *arguments)
        if turns:
            both.set()

    monkeypatch.setattr(Order, "__init__", ordered)
    answers = []
    with server(path, exact=exact) as client:
        first = threading.Thread(target=lambda: answers.append(client.post(COMPLETIONS, json=asked(seed)).json()))
        first.start()
        wait_until(lambda: len(turns) >= 2)
        answers.append(client.post(COMPLETIONS, json=asked(seed)).json())
        first.join(SECONDS)
    assert answers[0]["choices"] == answers[1]["choices"]
    order = [turns.index(batch) for batch in turns]
    switches = sum(one != other for one, other in pairwise(order))
    assert switches > 5 if exact else switches == 0
