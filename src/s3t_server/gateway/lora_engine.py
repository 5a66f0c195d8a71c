"""Client of an engine with LoRA adapters, as vLLM's OpenAI-compatible server is one.

Routes and answers as in vLLM's documents; `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1` makes it load adapters while it runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import httpx
import numpy as np

from s3t.errors import EngineError
from s3t.tasks.aggregate import Scores

KEY_VARIABLE = "S3T_ENGINE_KEY"
"""Environment variable with the engine's API key, if it wants one."""
_KEEPS = "the engine keeps an adapter that it was told to unload"
_LOADS_NOT = "the engine does not load an adapter"
_CONNECT_SECONDS = 2.0
LOAD_SECONDS = 120.0
"""Loading copies weights to the accelerator, behind the requests that are under way."""
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Errors of requests that the engine did not get."""
_OF_A_PROXY = (httpx.codes.BAD_GATEWAY, httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.GATEWAY_TIMEOUT)
"""Statuses with which a proxy answers for an engine that it has not heard from."""
_SUM_TOLERANCE = 0.02
"""Probabilities of an engine that computes in bfloat16 add up to 1 within this."""


class UnknownAdapterError(EngineError):
    """The engine has no adapter of that name."""


class LostAnswerError(EngineError):
    """The engine got a request, or may have, and gave no answer: it may be at work on it."""


class LoraEngine:
    """An engine at an address. Safe to share among threads.

    Every method raises EngineError: the engine refused, was not reached, or answered something else than documented.

    Args:
        url: of its server, without `/v1`.
        seconds: longest wait for an answer.
    """

    def __init__(self, url: str, *, seconds: float) -> None:
        self.url, self.seconds = url.rstrip("/"), seconds
        key = os.environ.get(KEY_VARIABLE)
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
        )

    def close(self) -> None:
        self._http.close()

    def models(self) -> tuple[str, frozenset[str]]:
        """The base model's name, and those of all adapters."""
        answer = self._asked("GET", "/v1/models")
        try:
            entries = _document(answer)["data"]
            bases = [str(each["id"]) for each in entries if not each.get("parent")]
            return bases[0], frozenset(str(each["id"]) for each in entries if each.get("parent"))
        except (KeyError, TypeError, IndexError, AttributeError):
            raise self._unexpected("/v1/models", answer) from None

    def load(self, name: str, path: str) -> None:
        """Load an adapter from a folder that the engine sees. One of that name is loaded already: the same content."""
        wanted = {"lora_name": name, "lora_path": path}
        answer = self._asked("POST", "/v1/load_lora_adapter", wanted, seconds=LOAD_SECONDS, again=False)
        status = answer.status_code
        if status in _OF_A_PROXY:
            what = f"was to load {name}, and a proxy answered with {status}; let it wait {LOAD_SECONDS:g} seconds"
            raise self._error(what, LostAnswerError, public=_LOADS_NOT)
        if status == httpx.codes.NOT_FOUND and name not in answer.text:
            how = "start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
            raise self._error(f"loads no adapters while it runs; {how}", public=_LOADS_NOT)
        is_loaded = status == httpx.codes.BAD_REQUEST and "already" in _message(answer)
        if not answer.is_success and not is_loaded:
            why = "does it see that folder, and has it room and rank for the adapter? Its log has the reason"
            raise self._error(f"does not load {name} from {path} (status {status}): {why}", public=_LOADS_NOT)

    def unload(self, name: str) -> None:
        """Unload an adapter. Whether it is gone only `check_gone` tells."""
        answer = self._asked("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        if not answer.is_success and not _is_unknown(answer, name):
            what = f"does not unload {name} (status {answer.status_code}); if that stays so, restart the engine"
            raise self._error(what, public=_KEEPS)

    def check_gone(self, name: str, prompt: Sequence[int]) -> None:
        """Check that an adapter is not listed, and that a request to it is refused as one to an unknown model.

        The base model has to answer the same request: else the refusal would show nothing.
        """
        (base, adapters), told = self.models(), "which it was told to unload; restart it"
        if name in adapters:
            raise self._error(f"still lists {name}, {told}", public=_KEEPS)
        answer = self._classified(name, [prompt])
        if answer.is_success:
            raise self._error(f"still answers as {name}, {told}", public=_KEEPS)
        if not _is_unknown(answer, name):
            raise self._unexpected("/classify", answer)
        if not self._classified(base, [prompt]).is_success:
            shows = f"so a refusal to answer as {name} does not show that it is gone"
            raise self._error(f"does not answer as {base} either, {shows}")

    def classify(self, name: str, prompts: Sequence[Sequence[int]], *, labels: int) -> Scores:
        """Probabilities of an adapter's labels, N x C."""
        answer = self._classified(name, prompts)
        if _is_unknown(answer, name):
            raise self._error(f"does not have {name} any more", UnknownAdapterError)
        try:
            document: Any = _document(answer) if answer.is_success else None
            rows = sorted(document["data"], key=lambda each: each["index"])
            found = np.array([each["probs"] for each in rows], dtype=np.float64)
        except (KeyError, TypeError, ValueError):
            raise self._unexpected("/classify", answer) from None
        if document.get("model") != name:
            raise self._error(f"was asked as {name}, and answered as another model")
        if found.shape != (len(prompts), labels):
            what = f"gives {found.shape} probabilities for {len(prompts)} inputs and {labels} labels"
            raise self._error(f"{what}; start it with a base model that has as many")
        if not np.all(found >= 0) or not np.allclose(found.sum(axis=1), 1.0, atol=_SUM_TOLERANCE):
            raise self._error("gives no probabilities that add up to 1")
        return found

    def _classified(self, name: str, prompts: Sequence[Sequence[int]]) -> httpx.Response:
        # Token ids: the engine then cuts and tokenises nothing, and gets no text.
        return self._asked("POST", "/classify", {"model": name, "input": [list(prompt) for prompt in prompts]})

    def _asked(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        seconds: float | None = None,
        again: bool = True,
    ) -> httpx.Response:
        """Send a request; `again`, once, where the connection had ended: then it may be sent twice."""
        timeout = httpx.Timeout(seconds or self.seconds, connect=_CONNECT_SECONDS)
        send = partial(self._http.request, method, path, json=body, timeout=timeout)
        try:
            try:
                return send()
            except (httpx.NetworkError, httpx.RemoteProtocolError):
                if not again:
                    raise
                return send()
        except httpx.HTTPError as error:
            kind = EngineError if isinstance(error, _NOT_SENT) else LostAnswerError
            what = f"is not reached ({type(error).__name__}); start it, or wait for it"
            raise self._error(what, kind, public="the engine is not reached") from error

    def _unexpected(self, path: str, answer: httpx.Response) -> EngineError:
        what = f"answers {path} with status {answer.status_code}, and not as vLLM does; its log has the reason"
        return self._error(what)

    def _error(self, what: str, kind: type[EngineError] = EngineError, **public: str) -> EngineError:
        return kind(f"the engine at {self.url} {what}", **public)


def _document(answer: httpx.Response) -> Any:
    """The JSON of an answer; None if it is none."""
    try:
        return answer.json()
    except ValueError:
        return None


def _message(answer: httpx.Response) -> str:
    """The message of an error document; "" if it is none. Older engines have its fields at the top."""
    document = _document(answer)
    inner = document.get("error", document) if isinstance(document, dict) else None
    return str(inner.get("message", "")) if isinstance(inner, dict) else ""


def _is_unknown(answer: httpx.Response, name: str) -> bool:
    """True if the engine says that it has no model of that name. A 404 of something before it names none."""
    return answer.status_code == httpx.codes.NOT_FOUND and name in _message(answer)
