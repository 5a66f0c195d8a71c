"""Client of an engine with LoRA adapters, as vLLM's OpenAI-compatible server is one.

Routes and answers as in vLLM's documents; `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1` makes it load adapters while it runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

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


class Listing(NamedTuple):
    """Models of an engine."""

    base: str
    adapters: frozenset[str]


class LoraEngine:
    """An engine at an address. Safe to share among threads.

    Every method raises EngineError: the engine refused, was not reached, or answered something else than documented.

    Args:
        url: of its server, without `/v1`.
        seconds: longest wait for an answer.
    """

    def __init__(self, url: str, *, seconds: float) -> None:
        self.url = url.rstrip("/")
        key = os.environ.get(KEY_VARIABLE)
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(seconds, connect=_CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
        )

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def models(self) -> Listing:
        """The base model's name, and those of all adapters."""
        answer = self._asked("GET", "/v1/models")
        try:
            entries = _document(answer)["data"]
            bases = [str(each["id"]) for each in entries if not each.get("parent")]
            return Listing(bases[0], frozenset(str(each["id"]) for each in entries if each.get("parent")))
        except (KeyError, TypeError, IndexError, AttributeError):
            raise self._unexpected("/v1/models", answer) from None

    def load(self, name: str, path: str) -> None:
        """Load an adapter from a folder that the engine sees. One of that name is loaded already: the same content."""
        wanted = {"lora_name": name, "lora_path": path}
        answer = self._asked("POST", "/v1/load_lora_adapter", wanted, seconds=LOAD_SECONDS, again=False)
        if answer.status_code in _OF_A_PROXY:
            reason = f"the engine at {self.url} was to load {name}, and a proxy answered with {answer.status_code}"
            raise LostAnswerError(f"{reason}; let the proxy wait {LOAD_SECONDS:g} seconds", public=_LOADS_NOT)
        if answer.status_code == httpx.codes.NOT_FOUND and name not in answer.text:
            raise EngineError(
                f"the engine at {self.url} loads no adapters while it runs; start vLLM with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1",
                public=_LOADS_NOT,
            )
        if not answer.is_success and not (answer.status_code == httpx.codes.BAD_REQUEST and _is_loaded(answer)):
            raise EngineError(
                f"the engine at {self.url} does not load {name} from {path} (status {answer.status_code}): does it see "
                "that folder, and has it room and rank for the adapter? Its log has the reason",
                public=_LOADS_NOT,
            )

    def unload(self, name: str) -> None:
        """Unload an adapter. Whether it is gone only `check_gone` tells."""
        answer = self._asked("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        if not answer.is_success and not _is_unknown(answer, name):
            raise EngineError(
                f"the engine at {self.url} does not unload {name} (status {answer.status_code}); if that stays so, "
                "restart the engine",
                public=_KEEPS,
            )

    def check_gone(self, name: str, prompt: Sequence[int]) -> None:
        """Check that an adapter is not listed, and that a request to it is refused as one to an unknown model.

        The base model has to answer the same request: else the refusal would show nothing.
        """
        listing = self.models()
        if name in listing.adapters:
            raise self._kept("lists", name)
        answer = self._classified(name, [prompt])
        if answer.is_success:
            raise self._kept("answers as", name)
        if not _is_unknown(answer, name):
            raise self._unexpected("/classify", answer)
        if not self._classified(listing.base, [prompt]).is_success:
            raise EngineError(
                f"the engine at {self.url} does not answer as {listing.base} either, so a refusal to answer as {name} "
                "does not show that it is gone"
            )

    def classify(self, name: str, prompts: Sequence[Sequence[int]], *, labels: int) -> Scores:
        """Probabilities of an adapter's labels, N x C."""
        answer = self._classified(name, prompts)
        if _is_unknown(answer, name):
            raise UnknownAdapterError(f"the engine at {self.url} does not have {name} any more")
        if not answer.is_success:
            raise self._unexpected("/classify", answer)
        try:
            document = _document(answer)
            rows = sorted(document["data"], key=lambda each: each["index"])
            found = np.array([each["probs"] for each in rows], dtype=np.float64)
        except (KeyError, TypeError, ValueError):
            raise self._unexpected("/classify", answer) from None
        if document.get("model") != name:
            raise EngineError(f"the engine at {self.url} was asked as {name}, and answered as another model")
        if found.shape != (len(prompts), labels):
            raise EngineError(
                f"the engine at {self.url} gives {found.shape} probabilities for {len(prompts)} inputs and {labels} "
                "labels; start it with a base model that has as many"
            )
        if not np.all(found >= 0) or not np.allclose(found.sum(axis=1), 1.0, atol=_SUM_TOLERANCE):
            raise EngineError(f"the engine at {self.url} gives no probabilities that add up to 1")
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
        options: dict[str, Any] = (
            {} if seconds is None else {"timeout": httpx.Timeout(seconds, connect=_CONNECT_SECONDS)}
        )
        send = partial(self._http.request, method, path, json=body, **options)
        try:
            try:
                return send()
            except (httpx.NetworkError, httpx.RemoteProtocolError):
                if not again:
                    raise
                return send()
        except httpx.HTTPError as error:
            kind = EngineError if isinstance(error, _NOT_SENT) else LostAnswerError
            reason = f"the engine at {self.url} is not reached ({type(error).__name__}); start it, or wait for it"
            raise kind(reason, public="the engine is not reached") from error

    def _kept(self, how: str, name: str) -> EngineError:
        reason = f"the engine at {self.url} still {how} {name}, which it was told to unload; restart it"
        return EngineError(reason, public=_KEEPS)

    def _unexpected(self, path: str, answer: httpx.Response) -> EngineError:
        return EngineError(
            f"the engine at {self.url} answers {path} with status {answer.status_code}, and not as vLLM does; its log "
            "has the reason"
        )


def _document(answer: httpx.Response) -> Any:
    """The JSON of an answer; None if it is none."""
    try:
        return answer.json()
    except ValueError:
        return None


def _error(answer: httpx.Response) -> str:
    """The message of an error document; "" if it is none. Older engines have its fields at the top."""
    document = _document(answer)
    inner = document.get("error", document) if isinstance(document, dict) else None
    return str(inner.get("message", "")) if isinstance(inner, dict) else ""


def _is_unknown(answer: httpx.Response, name: str) -> bool:
    """True if the engine says that it has no model of that name. A 404 of something before it names none."""
    return answer.status_code == httpx.codes.NOT_FOUND and name in _error(answer)


def _is_loaded(answer: httpx.Response) -> bool:
    return "already" in _error(answer)
