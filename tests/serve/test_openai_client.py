"""The `openai` library asks a real server of a real language model, while people are deleted."""

import asyncio
import os
from pathlib import Path

import openai
import pandas as pd
import pytest

import s3t
from s3t_server.tokens import Access
from testing import tiny
from testing.language import language_recipe
from testing.stories260k import convert
from tests.run.worlds import SMALL, trained_run
from tests.serve.test_server import server

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif("S3T_DATA" not in os.environ, reason="needs the model of stories in S3T_DATA"),
]
NAMES = ["Lily", "Tim", "Mia", "Ben", "Sue", "Max"]
CHAT = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
HOW = {"max_tokens": 60, "temperature": 0.8, "seed": 5}


def _made(folder, *, chat):
    weights = Path(os.environ["S3T_DATA"]) / "weights"
    model = convert(weights / "stories260K.bin", weights / "tok512.bin", folder / "model")
    table = pd.DataFrame({"id": [f"r{number}" for number in range(24)]})
    stories = [(f"Once upon a time, {NAMES[n % 6]} had", f" a toy number {n}. It was very big.") for n in range(24)]
    if chat:
        (model / "chat_template.jinja").write_text(CHAT)
        table["messages"] = [
            [{"role": "user", "content": prompt}, {"role": "assistant", "content": told}] for prompt, told in stories
        ]
        columns = {"id": "id", "messages": "messages", "prompt": None, "completion": None}
    else:
        table["prompt"], table["completion"] = zip(*stories, strict=True)
        columns = {}
    recipe = language_recipe(model, **SMALL, columns=columns, language={"max_length": 64})
    with trained_run(folder / "run", recipe, table) as run:
        return folder / "run", Access(run).create("app", scopes=["predict", "delete"])[1]


@pytest.fixture(scope="module")
def stories(state_of_all, tmp_path_factory):
    return _made(tmp_path_factory.mktemp("stories"), chat=False)


@pytest.fixture
def path(stories, tmp_path):
    return tiny.copy_run(stories[0], tmp_path / "stories")


def client_of(served, secret, **more):
    return openai.OpenAI(base_url=f"{served.base_url}/v1", api_key=secret, max_retries=0, **more)


def test_completions_whole_and_streamed_with_real_errors(path, stories):
    secret = stories[1]
    prompt = "Once upon a time, Lily had"
    with s3t.Run.open(path) as run:
        wanted = run.generate([prompt], max_new_tokens=60, temperature=0.8, seed=5)
    with server(path) as served:
        client = client_of(served, secret)
        assert [model.id for model in client.models.list()] == ["stories"]
        whole = client.completions.create(model="stories", prompt=prompt, **HOW)
        assert whole.choices[0].text == wanted.texts[0]
        assert whole.choices[0].finish_reason == wanted.finish[0]
        assert whole.system_fingerprint == "s3t-generation-0"
        assert whole.usage.completion_tokens == wanted.tokens[0]
        raw = client.completions.with_raw_response.create(model="stories", prompt=prompt, **HOW)
        assert raw.headers["s3t-generation"] == "0"
        options = {"stream": True, "stream_options": {"include_usage": True}}
        parts = list(client.completions.create(model="stories", prompt=prompt, **HOW, **options))
        assert "".join(choice.text for part in parts for choice in part.choices) == wanted.texts[0]
        assert parts[-1].usage == whole.usage
        likely = client.completions.create(model="stories", prompt=prompt, logprobs=2, **HOW).choices[0].logprobs
        assert "".join(likely.tokens) == wanted.texts[0]
        with pytest.raises(openai.BadRequestError, match="logit_bias: cannot be honoured"):
            client.completions.create(model="stories", prompt=prompt, logit_bias={"5": 1})
        with pytest.raises(openai.NotFoundError, match="this address serves stories"):
            client.completions.create(model="gpt", prompt=prompt)
        with pytest.raises(openai.NotFoundError, match="send `prompt` to /v1/completions"):
            client.chat.completions.create(model="stories", messages=[{"role": "user", "content": "Hi"}])
        with pytest.raises(openai.AuthenticationError, match="not one of this run's"):
            client_of(served, "s3t_x").completions.create(model="stories", prompt=prompt)


def test_a_stream_that_a_deletion_overtakes_raises_and_the_next_is_of_its_generation(path, stories):
    secret = stories[1]
    with server(path) as served:
        client = client_of(served, secret)
        headers = {"Authorization": f"Bearer {secret}"}
        raised = 0
        for record in ("r0", "r1", "r2", "r3", "r4", "r5"):  # until one comes in the middle of a stream
            try:
                how = {"max_tokens": 400, "temperature": 1.5, "stream": True}
                stream = client.completions.create(model="stories", prompt="Once", **how)
                next(stream)
                deleted = served.post("/v1/deletions", json={"records": [record]}, headers=headers).json()
                assert deleted["state"] in ("effective", "erased")
                for _ in stream:
                    pass
            except openai.APIError as error:
                assert "a deletion took a stage that was writing" in str(error)  # noqa: PT017
                raised += 1
                break
        assert raised == 1
        try:
            after = client.completions.create(model="stories", prompt="Once", **HOW)
        except openai.InternalServerError as error:
            assert "no shard" in str(error)  # noqa: PT017
        else:
            assert after.system_fingerprint == f"s3t-generation-{deleted['id']}"


def test_chats_and_many_clients_at_once(state_of_all, tmp_path):
    path, secret = _made(tmp_path, chat=True)
    messages = [{"role": "user", "content": "Once upon a time, Tim had"}]
    with s3t.Run.open(path) as run:
        (wanted,) = run.generate([messages], max_new_tokens=30, temperature=0.8, seed=5).texts
    how = {"model": "run", "messages": messages, "max_completion_tokens": 30, "temperature": 0.8, "seed": 5}

    async def ask(client, stream):
        if not stream:
            return (await client.chat.completions.create(**how)).choices[0].message.content
        parts = [part async for part in await client.chat.completions.create(**how, stream=True)]
        return "".join(part.choices[0].delta.content or "" for part in parts)

    async def all_of(address):
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=secret) as client:
            return await asyncio.gather(*(ask(client, number % 2 == 0) for number in range(12)))

    with server(path) as served:
        assert set(asyncio.run(all_of(served.base_url))) == {wanted}
