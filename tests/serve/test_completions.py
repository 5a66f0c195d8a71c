"""Texts as OpenAI's clients ask for them: what is honoured and what refused, and that no deleted record writes."""

import asyncio
import json
import threading
from functools import partial
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
from s3t_server.tokens import Access
from s3t_server.writing import Order, Scribe
from testing import tiny
from testing.language import chat_table, language_recipe, make_language_model, prompt_table
from testing.roles import roles
from testing.served import posting, rest_of, serving, together, wait_for
from tests.run.test_language import CHATS
from tests.run.worlds import SMALL, trained_run

SECONDS = 60.0
HOW = {"max_tokens": 40, "temperature": 5.0}
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BODIES = {COMPLETIONS: {"prompt": "w1"}, CHAT: {"messages": [{"role": "user", "content": "w1"}]}}


def make_run(folder, kind):
    """The folder of a trained run: of prompts, of chats, or of prompts that a template puts together."""
    template = {"columns": {"prompt": ["w0 {prompt} w1 {more}", "w0 {prompt} w1"]}}
    changes, table = {
        "prompts": ({}, prompt_table()),
        "chats": (CHATS, chat_table()),
        "rows": (template, prompt_table().assign(more="w5")),
    }[kind]
    recipe = language_recipe(make_language_model(folder / "model"), **SMALL | changes)
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


@pytest.fixture(autouse=True, scope="module")
def a_step_a_turn():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("s3t_server.writing.TURN_SECONDS", 0.0)
        yield


@pytest.fixture
def path(made, tmp_path):
    """A run of prompts, to delete from."""
    return tiny.copy_run(made("prompts"), tmp_path / "run")


server = partial(serving, open_scopes=("predict", "delete", "operate"))


@pytest.fixture
def client(path):
    with server(path) as client:
        yield client


@pytest.fixture(scope="module")
def run(made, tmp_path_factory):
    """A run of prompts that no test changes: a copy, since copies of an open one wait for its session."""
    with s3t.Run.open(tiny.copy_run(made("prompts"), tmp_path_factory.mktemp("unchanged") / "run")) as run:
        yield run


@pytest.fixture(scope="module")
def reader(run):
    """A client of its server."""
    with server(run.path) as client:
        yield client


@pytest.fixture(scope="module")
def seed(run):
    """One that gives a text of many tokens."""
    how = {"max_new_tokens": 40, "temperature": 5.0}
    return next(seed for seed in range(200) if run.generate(["w1 w2"], seed=seed, **how).tokens[0] >= 10)


def asked(seed, **more):
    return HOW | {"prompt": "w1 w2", "seed": seed} | more


def streaming(client, body, route=COMPLETIONS):
    return client.stream("POST", route, json=body | {"stream": True})


def documents(answer):
    """Of a stream's events; and the text that says that it has come to its end."""
    lines = (line.removeprefix("data: ") for line in answer.iter_lines() if line)
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


# --- what is honoured


def test_completions_are_those_of_the_run(reader, run):
    how = {"temperature": 2.0, "top_p": 0.9, "seed": 3, "n": 2}
    wanted = run.generate(["w1 w2", "w3"], max_new_tokens=9, **how)
    more = {"model": "run", "user": "u", "metadata": {"a": "b"}, "store": True}
    answer = reader.post(COMPLETIONS, json={"prompt": ["w1 w2", "w3"], "max_tokens": 9} | how | more)
    assert (answer.status_code, answer.headers[GENERATION_HEADER]) == (200, "0"), answer.text
    found = answer.json()
    assert (found["object"], found["model"], found["id"][:5]) == ("text_completion", "run", "cmpl-")
    assert found["system_fingerprint"] == "s3t-generation-0"
    assert [(choice["index"], choice["text"]) for choice in found["choices"]] == [*enumerate(wanted.texts)]
    assert len({*wanted.texts}) == 4
    assert [choice["finish_reason"] for choice in found["choices"]] == list(wanted.finish)
    written = sum(wanted.tokens)
    assert found["usage"] == {"prompt_tokens": 3, "completion_tokens": written, "total_tokens": 3 + written}


def test_openai_s_defaults(reader, run):
    wanted = run.generate(["w1 w2"], max_new_tokens=16, temperature=1.0, seed=7)
    found = reader.post(COMPLETIONS, json={"prompt": "w1 w2", "seed": 7, "max_tokens": None, "stop": None}).json()
    assert found["choices"][0]["text"] == wanted.texts[0]
    drawn = {reader.post(COMPLETIONS, json=HOW | {"prompt": "w1 w2"}).json()["choices"][0]["text"] for _ in range(4)}
    assert len(drawn) > 1  # a seed of its own for each


@pytest.mark.parametrize("counted", [False, True])
def test_a_stream_has_the_same_texts_in_parts_and_counts_its_tokens_if_it_is_asked_to(reader, seed, counted):
    body = asked(seed, prompt=["w1 w2", "w3"])
    whole = reader.post(COMPLETIONS, json=body).json()
    options = {"stream_options": {"include_usage": True}} if counted else {}
    with streaming(reader, body | options) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers[GENERATION_HEADER] == "0"
        *found, end = documents(answer)
    assert end == "[DONE]"
    assert len({one["id"] for one in found}) == 1
    if counted:
        last = found.pop()
        assert (last["usage"], last["choices"]) == (whole["usage"], [])
    assert all(one.get("usage", "none") == (None if counted else "none") for one in found)
    parts = [one["choices"][0] for one in found]
    assert len(parts) > 3
    for wanted in whole["choices"]:
        own = [part for part in parts if part["index"] == wanted["index"]]
        assert "".join(part["text"] for part in own) == wanted["text"]
        assert [part["finish_reason"] for part in own if part["finish_reason"]] == [wanted["finish_reason"]]


def test_a_completion_tells_how_likely_its_tokens_are(reader, run):
    """As the ensemble says, whatever the temperature; the end of the text is no token of it."""
    for seed in range(200):
        body = asked(seed, logprobs=3)
        answer = reader.post(COMPLETIONS, json=body).json()
        (whole,) = answer["choices"]
        found = whole["logprobs"]
        written = answer["usage"]["completion_tokens"] - (whole["finish_reason"] == "stop")
        if len(found["tokens"]) == written >= 5:  # without special tokens, of which nothing is in the text
            break
    writer = run.parts.writer
    tokens = writer.encoder.tokenizer("".join(found["tokens"]), add_special_tokens=False)["input_ids"]
    (before,) = writer.encoder.prompts(writer.checked(["w1 w2"]).features)
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
    with streaming(reader, body) as streamed:
        parts = [part["choices"][0]["logprobs"] for part in documents(streamed)[:-1]]
    assert {name: [one for part in parts for one in part[name]] for name in found} == found
    (alone,) = reader.post(COMPLETIONS, json=asked(seed, logprobs=0)).json()["choices"]
    assert [list(one) for one in alone["logprobs"]["top_logprobs"]] == [[token] for token in found["tokens"]]
    assert reader.post(COMPLETIONS, json=asked(seed)).json()["choices"][0]["logprobs"] is None


def test_a_text_ends_at_a_stop_text_and_at_the_greatest_length(reader, seed):
    (whole,) = reader.post(COMPLETIONS, json=asked(seed)).json()["choices"]
    stop = f" {whole['text'].split()[3]}"
    for given in (stop, ["never", stop]):
        (stopped,) = reader.post(COMPLETIONS, json=asked(seed, stop=given)).json()["choices"]
        assert stopped["text"] == whole["text"][: whole["text"].index(stop)]
        assert stopped["finish_reason"] == "stop"
    cut = reader.post(COMPLETIONS, json=asked(seed, max_tokens=2)).json()
    assert (cut["choices"][0]["finish_reason"], cut["usage"]["completion_tokens"]) == ("length", 2)


@pytest.mark.integration
def test_prompts_are_rows_where_the_recipe_has_a_template(made):
    rows = [{"prompt": "w3", "more": "w4"}, {"prompt": "w3", "more": ""}]
    with s3t.Run.open(made("rows")) as run, server(run.path) as client:
        wanted = run.generate(rows, max_new_tokens=16, temperature=1.0, seed=1)
        found = client.post(COMPLETIONS, json={"prompt": rows, "seed": 1}).json()
        assert [choice["text"] for choice in found["choices"]] == list(wanted.texts)
        assert client.post(COMPLETIONS, json={"prompt": rows[0], "seed": 1}).status_code == 200
        assert client.post(COMPLETIONS, json={"prompt": "w3"}).status_code == 400


@pytest.mark.integration
def test_a_chat_is_answered(made):
    chat = [{"role": "system", "content": "w9"}, {"role": "user", "content": "w1\nw2"}]
    with s3t.Run.open(made("chats")) as run:
        wanted = run.generate([chat], max_new_tokens=9, temperature=2.0, seed=3)
    parts = [{"type": "text", "text": "w1"}, {"type": "text", "text": "w2"}]
    body = {"model": "run", "temperature": 2.0, "seed": 3, "max_completion_tokens": 9}
    with server(made("chats")) as client:

        def post(messages, **more):
            return client.post(CHAT, json={"messages": messages} | more)

        for content in ("w1\nw2", parts):
            found = post([chat[0], {"role": "user", "content": content}], **body, max_tokens=20).json()
            message = found["choices"][0]["message"]
            assert found["object"] == "chat.completion"
            assert (message["content"], message["role"]) == (wanted.texts[0], "assistant")
        with streaming(client, body | {"messages": chat}, CHAT) as answer:
            deltas = [event["choices"][0]["delta"] for event in documents(answer)[:-1]]
        assert "".join(delta["content"] for delta in deltas) == wanted.texts[0]
        assert [delta.get("role") for delta in deltas] == ["assistant", *[None] * (len(deltas) - 1)]
        likely = {"temperature": 5.0, "logprobs": True, "top_logprobs": 2, "seed": 4}
        (choice,) = post(chat, **likely).json()["choices"]
        content = choice["logprobs"]["content"]
        assert bytes(byte for one in content for byte in one["bytes"]).decode() == choice["message"]["content"]
        assert all(len(one["top_logprobs"]) == 2 for one in content)
        assert all(one["logprob"] <= one["top_logprobs"][0]["logprob"] <= 0 for one in content)
        assert "logprobs: true" in post(chat, **likely | {"logprobs": False}).text
        assert post(chat, temperature=5.0).json()["usage"]["total_tokens"] <= 48
        refused = client.post(COMPLETIONS, json={"prompt": "w1"})
        assert (refused.status_code, CHAT in refused.json()["detail"]) == (404, True)
        for wrong in ("w1", [], [1], [{"role": "user"}], [{"role": "user", "content": [{"type": "image_url"}]}]):
            assert post(wrong).status_code == 400
        assert "assistant's turn" in post([*chat, {"role": "assistant", "content": "w3"}]).json()["detail"]
        half = '{"messages": [{"role": "user", "content": "\\ud800"}]}'
        refused = client.post(CHAT, content=half, headers={"Content-Type": "application/json"})
        assert (refused.status_code, "surrogate" in refused.json()["detail"]) == (400, True)


# --- what is refused

TOO_LONG = "w1 " * 60
WRONG = {
    "n": [0],
    "logprobs": [True, 21],
    "max_tokens": [0, 2000, True],
    "temperature": [-1, "1"],
    "top_p": [0],
    "stop": [["a"] * 5, ""],
    "seed": [1.5],
    "stream": ["yes"],
    "prompt": [[1, 2], [], "", None, TOO_LONG],
    "stream_options": [{"include_usage": True}],  # of no stream
    **{name: ["sekret"] for name in WITHOUT_EFFECT},
}
WRONG_STREAMS = ({"continuous_usage_stats": True}, {"sekret": True})


def test_what_cannot_be_honoured_is_refused_by_name(reader):
    wrong = [(name, {name: value}) for name, values in WRONG.items() for value in values]
    wrong += [("stream_options", {"stream": True, "stream_options": options}) for options in WRONG_STREAMS]
    for named, body in [*wrong, ("1 field", {"sekret": 1})]:
        refused = reader.post(COMPLETIONS, json={"prompt": "w7"} | body)
        assert refused.status_code == 400, (body, refused.text)
        assert refused.headers["content-type"] == "application/problem+json"
        error = refused.json()["error"]
        assert named in error["message"]
        assert error["type"] == "invalid_request_error"
        assert error["code"] == ("context_length_exceeded" if body == {"prompt": TOO_LONG} else None)
        assert "w7" not in refused.text
        assert "sekret" not in refused.text


def test_values_that_change_nothing_are_taken(reader):
    fields = dict.fromkeys(IGNORED, "anything")
    for place in range(2):
        fields |= {name: (*values, None)[place] for name, values in WITHOUT_EFFECT.items() if len(values) >= place}
        assert reader.post(COMPLETIONS, json={"prompt": "w1", "model": None} | fields).status_code == 200
    lowest = reader.post(COMPLETIONS, json={"prompt": "w1", "temperature": 1e-320, "seed": -5})
    assert lowest.status_code == 200


def test_another_model_and_the_other_route_are_not_there(reader, tmp_path, trained_once):
    assert reader.post(COMPLETIONS, json={"prompt": "w1", "model": "another"}).status_code == 404
    refused = reader.post(CHAT, json=BODIES[CHAT])
    assert (refused.status_code, COMPLETIONS in refused.json()["error"]["message"]) == (404, True)
    described = reader.get("/v1/openapi.json").json()["paths"]
    assert (COMPLETIONS in described, CHAT in described) == (True, False)
    assert reader.post("/runs/run/v1/completions", json={"prompt": "w1", "model": "run"}).status_code == 200
    with serving(tiny.copy_run(trained_once, tmp_path / "labels"), open_scopes=("predict",)) as labels:
        for route, body in BODIES.items():
            assert labels.post(route, json=body).status_code == 404


def test_no_text_stands_in_the_log(reader, caplog):
    with caplog.at_level("INFO"):
        reader.post(COMPLETIONS, json={"prompt": "w1 w2", "max_tokens": 3})
        reader.post(COMPLETIONS, json={"prompt": 3, "w7": "w8"})
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "s3t.requests"]
    assert (lines[0]["route"], lines[0]["generation"], lines[0]["inputs"]) == (COMPLETIONS, 0, 1)
    assert not any(word in caplog.text for word in ("w1", "w2", "w7", "w8"))


# --- the fence


@pytest.fixture
def deletion(path):
    """Another process deletes a record of everything that writes, and waits for nobody. What is left is effective."""
    with s3t.Run.open(path) as other:
        roles(other).deleter.patience = 0.0

        def delete():
            other.delete(records=["r3"])
            return delete.state()

        delete.state = lambda: other.log()[-1].state
        delete.ends = lambda: wait_for(lambda: delete.state() in ("effective", "erased"))
        yield delete


def before_turn(monkeypatch, number, act):
    """Act once, before a turn; the batches whose turns came."""
    usual, turns = SharedBatch.turn, []

    def turn(batch, seconds):
        turns.append(batch)
        if len(turns) == number:
            act()
        return usual(batch, seconds)

    monkeypatch.setattr(SharedBatch, "turn", turn)
    return turns


@pytest.fixture
def finished(monkeypatch):
    """Set when all of a text was written."""
    event, usual = threading.Event(), Order.put

    def put(order, piece):
        usual(order, piece)
        if piece is None:
            event.set()

    monkeypatch.setattr(Order, "put", put)
    return event


def test_a_whole_text_that_a_deletion_overtakes_is_written_anew(client, path, deletion, monkeypatch):
    body = asked(3, temperature=1.0)
    before = client.post(COMPLETIONS, json=body).json()
    before_turn(monkeypatch, 3, deletion)
    answer = client.post(COMPLETIONS, json=body)
    assert answer.headers[GENERATION_HEADER] == "1"
    assert answer.json()["system_fingerprint"] == "s3t-generation-1"
    with s3t.Run.open(path) as run:
        after = run.generate(["w1 w2"], max_new_tokens=40, temperature=1.0, seed=3)
    assert answer.json()["choices"][0]["text"] == after.texts[0] != before["choices"][0]["text"]
    deletion.ends()


def test_a_stream_that_a_deletion_overtakes_ends_with_an_error(client, seed, deletion, monkeypatch):
    arrived = threading.Event()
    turns = before_turn(monkeypatch, 3, lambda: arrived.wait(SECONDS) and deletion())
    with streaming(client, asked(seed)) as answer:
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
    deletion.ends()


def test_a_stream_that_is_overtaken_before_its_first_part_is_begun_anew(client, seed, deletion, monkeypatch):
    before_turn(monkeypatch, 1, deletion)
    with streaming(client, asked(seed)) as answer:
        assert answer.headers[GENERATION_HEADER] == "1"
        assert documents(answer)[-1] == "[DONE]"


def test_a_deletion_waits_for_a_part_on_its_way_and_no_part_after_it_leaves(
    client, seed, deletion, finished, monkeypatch
):
    """The whole text is written, and its first part is being handed over, when the deletion comes."""
    usual_part, usual_begun = TextsResponse._part, Order.begun
    handing, go_on, held = threading.Event(), threading.Event(), []

    async def part(response, pending, content, *, last=False):
        if not handing.is_set():
            handing.set()
            await asyncio.to_thread(go_on.wait, SECONDS)
        await usual_part(response, pending, content, last=last)

    def begun(order, batch, texts):
        held.append(texts)
        usual_begun(order, batch, texts)

    monkeypatch.setattr(TextsResponse, "_part", part)
    monkeypatch.setattr(Order, "begun", begun)
    with together(lambda: client.post(COMPLETIONS, json=asked(seed, stream=True))) as answers:
        assert handing.wait(SECONDS)
        assert finished.wait(SECONDS)
        assert deletion() == "accepted"
        wait_for(lambda: held[0]._work.overtaken)
        held[0]._presence.look()
        assert deletion.state() == "accepted"  # the part has not left
        go_on.set()
    assert ["error" in one for one in documents(answers[0])] == [False, True]
    deletion.ends()


@pytest.mark.parametrize("stream", [False, True])
def test_the_last_look_is_right_before_a_text_leaves(reader, seed, monkeypatch, stream):
    looks = []

    def may_leave(texts):
        looks.append(texts)
        return len({id(each) for each in looks}) > 1

    monkeypatch.setattr(PendingTexts, "may_leave", may_leave)
    assert reader.post(COMPLETIONS, json=asked(seed, stream=stream)).status_code == 200
    assert len({id(each) for each in looks}) == 2  # it was begun anew


def test_a_fault_in_the_middle_of_a_stream_is_told_without_its_text(reader, seed, monkeypatch):
    usual, calls = Work.confirm, []

    def confirm(work):
        calls.append(work)
        if len(calls) == 3:
            raise StorageError("/secret/place: no space left")
        usual(work)

    monkeypatch.setattr(Work, "confirm", confirm)
    with streaming(reader, asked(seed)) as answer:
        found = documents(answer)
    assert found[-1]["error"]["type"] == "server_error"
    assert "secret" not in str(found)


# --- bounds


def test_a_client_that_goes_away_ends_its_text(client, seed, deletion, monkeypatch):
    gone, usual = threading.Event(), Order.leave

    def leave(order):
        usual(order)
        gone.set()

    monkeypatch.setattr(Order, "leave", leave)
    turns = before_turn(monkeypatch, 3, lambda: gone.wait(SECONDS))
    for stream in (True, False):
        gone.clear()
        turns.clear()
        with posting(client, COMPLETIONS, asked(seed, stream=stream)):
            wait_for(lambda: len(turns) >= 3)
        assert gone.wait(SECONDS)
        assert client.post(COMPLETIONS, json={"prompt": "w1", "max_tokens": 1}).status_code == 200
        assert turns.count(turns[0]) <= 4
        assert turns[-1] is not turns[0]  # nobody joins a text that is gone
    deletion()
    deletion.ends()


def test_a_client_that_does_not_read_holds_no_deletion_up_and_is_cut_off(path, seed, deletion, finished):
    """All is written, and a part waits for the client, when the deletion comes."""
    body = asked(seed, prompt=["w1 w2"] * 100, stream=True)
    with (
        server(path, send_seconds=1.0, max_texts=100, send_buffer=4096) as client,
        posting(client, COMPLETIONS, body, buffer=4096) as deaf,
    ):
        assert finished.wait(SECONDS)
        deletion()
        deletion.ends()
        content = rest_of(deaf)
    assert b"[DONE]" not in content
    assert b'"error"' not in content  # it was cut off: what it had not taken in time is lost


def test_texts_that_wait_are_bounded_and_others_are_told_when_to_ask_again(run, seed, monkeypatch):
    with server(run.path, max_texts=2, max_queued_texts=2) as client:
        for many in ({"prompt": ["w1"] * 3}, {"prompt": "w1", "n": 10**12}):
            refused = client.post(COMPLETIONS, json=many)
            assert (refused.status_code, "ask for at most" in refused.json()["detail"]) == (413, True)
        began, go_on = threading.Event(), threading.Event()
        before_turn(monkeypatch, 1, lambda: (began.set(), go_on.wait(SECONDS)))

        def ask():
            return client.post(COMPLETIONS, json=asked(seed, prompt=["w1 w2", "w3"]))

        with together(ask) as first:
            assert began.wait(SECONDS)
            with together(ask, ask, ask) as others:
                wait_for(lambda: len(others) == 2)
                assert [(each.status_code, each.headers["retry-after"]) for each in others] == [(503, "1")] * 2
                go_on.set()
    assert others[2].json()["choices"] == first[0].json()["choices"]


def test_a_text_that_waits_too_long_is_refused_and_one_under_way_is_not(run, seed, monkeypatch):
    """The first takes all the room until the second was refused."""
    refused = threading.Event()
    turns = before_turn(monkeypatch, 2, lambda: refused.wait(SECONDS))
    with (
        server(run.path, max_texts=1, answer_seconds=0.2) as client,
        together(lambda: client.post(COMPLETIONS, json=asked(seed))) as answers,
    ):
        wait_for(lambda: turns)
        second = client.post(COMPLETIONS, json=asked(seed))
        refused.set()
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
def test_texts_of_several_clients_are_written_side_by_side_or_exactly_in_turns(run, seed, monkeypatch, exact):
    both = threading.Event()
    turns = before_turn(monkeypatch, 2, lambda: both.wait(SECONDS))
    usual = Order.__init__

    def ordered(order, *arguments):
        usual(order, *arguments)
        if turns:
            both.set()

    monkeypatch.setattr(Order, "__init__", ordered)
    with (
        server(run.path, exact=exact) as client,
        together(lambda: client.post(COMPLETIONS, json=asked(seed)).json()) as first,
    ):
        wait_for(lambda: len(turns) >= 2)
        second = client.post(COMPLETIONS, json=asked(seed)).json()
    assert first[0]["choices"] == second["choices"]
    order = [turns.index(batch) for batch in turns]
    switches = sum(one != other for one, other in pairwise(order))
    assert switches > 5 if exact else switches == 0
