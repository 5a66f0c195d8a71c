"""The `openai` library asks a server of texts and of chats: whole, streamed, many at once, while people are deleted."""

import asyncio
from contextlib import ExitStack

import openai
import pytest

import s3t
from s3t_server.tokens import Access
from testing.roles import roles
from testing.served import serving
from tests.serve.test_completions import before_turn, make_run

pytestmark = pytest.mark.integration
HOW = {"model": "run", "max_tokens": 40, "temperature": 5.0, "seed": 5}


@pytest.fixture
def opened(state_of_all, tmp_path, monkeypatch):
    """Opens a run of a kind and its server; what a client is made with."""
    monkeypatch.setattr("s3t_server.writing.TURN_SECONDS", 0.0)
    with ExitStack() as stack:

        def open_one(kind):
            run = stack.enter_context(s3t.Run.open(make_run(tmp_path, kind)))
            _, secret = Access(run).create("openai", scopes=["predict"])
            client = stack.enter_context(serving(run.path, repair=False))
            return run, {"base_url": f"{client.base_url}/v1", "api_key": secret, "max_retries": 0}

        yield open_one


def test_completions_whole_and_streamed_with_real_errors_and_one_that_a_deletion_overtakes(opened, monkeypatch):
    run, given = opened("prompts")
    wanted = run.generate(["w1 w2"], max_new_tokens=40, temperature=5.0, seed=5)
    client, asked = openai.OpenAI(**given), HOW | {"prompt": "w1 w2"}
    assert [model.id for model in client.models.list()] == ["run"]
    whole = client.completions.create(**asked)
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == (wanted.texts[0], wanted.finish[0])
    assert (whole.system_fingerprint, whole.usage.completion_tokens) == ("s3t-generation-0", wanted.tokens[0])
    assert client.completions.with_raw_response.create(**asked).headers["s3t-generation"] == "0"
    parts = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(choice.text for part in parts for choice in part.choices) == wanted.texts[0]
    assert parts[-1].usage == whole.usage
    assert client.completions.create(**asked, logprobs=2).choices[0].logprobs.tokens
    with pytest.raises(openai.BadRequestError, match="logit_bias: cannot be honoured"):
        client.completions.create(**asked, logit_bias={"5": 1})
    with pytest.raises(openai.NotFoundError, match="this address serves run"):
        client.completions.create(**asked | {"model": "gpt"})
    with pytest.raises(openai.NotFoundError, match="send `prompt` to /v1/completions"):
        client.chat.completions.create(model="run", messages=[{"role": "user", "content": "Hi"}])
    with pytest.raises(openai.AuthenticationError, match="not one of this run's"):
        openai.OpenAI(**given | {"api_key": "s3t_x"}).completions.create(**asked)
    roles(run).deleter.patience = 0.0
    before_turn(monkeypatch, 3, lambda: run.delete(records=["r3"]))
    with pytest.raises(openai.APIError, match="a deletion took a stage that was writing"):
        list(client.completions.create(**asked, stream=True))
    assert client.completions.create(**asked).system_fingerprint == "s3t-generation-1"


def test_chats_and_many_clients_at_once(opened):
    run, given = opened("chats")
    messages = [{"role": "user", "content": "w1 w2"}]
    (wanted,) = run.generate([messages], max_new_tokens=40, temperature=5.0, seed=5).texts

    async def ask(client, stream):
        if not stream:
            return (await client.chat.completions.create(**HOW, messages=messages)).choices[0].message.content
        parts = [part async for part in await client.chat.completions.create(**HOW, messages=messages, stream=True)]
        return "".join(part.choices[0].delta.content or "" for part in parts)

    async def ask_all():
        async with openai.AsyncOpenAI(**given) as client:
            return await asyncio.gather(*(ask(client, number % 2 == 0) for number in range(12)))

    assert set(asyncio.run(ask_all())) == {wanted}
