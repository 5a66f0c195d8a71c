"""Settings of a server. Workers read them from their environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from s3t_server.tokens import SCOPES

VARIABLE = "S3T_SERVE"
"""Environment variable with the settings of a server's workers, as JSON. It holds no secret."""


class Settings(BaseModel):
    """Settings of a server. `s3t serve --help` explains those that are its options. None: no bound, and no engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runs: tuple[Path, ...] = Field(min_length=1)
    """Run folders. Each is served under its folder's name, the first one also without it."""
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65_535)
    workers: int = Field(default=1, ge=1, le=256)
    open_scopes: tuple[str, ...] = ()
    repair: bool = True
    repair_hours_a_day: Annotated[float, Field(gt=0, le=24)] | None = None
    hold_records: Annotated[int, Field(ge=0)] | None = 1_000
    hold_share: Annotated[float, Field(ge=0, le=1)] | None = 0.25
    engine: Annotated[str, Field(pattern=r"^https?://[^/@]+(/.*)?$")] | None = None
    engine_adapters: Path | None = None
    engine_seconds: float = Field(default=30.0, gt=0)
    """Longest wait of an answer for the engine, in seconds."""
    exact: bool = False
    wait: Annotated[float, Field(ge=0, le=1)] = 0.002
    """Longest wait for requests to be answered together, in seconds."""
    max_body_bytes: int = Field(default=1_048_576, ge=1)
    """Largest body of a request, in bytes."""
    max_inputs: int = Field(default=256, ge=1)
    """Most inputs of a request."""
    max_records: int = Field(default=1_000, ge=1)
    """Most records that a request adds."""
    max_names: int = Field(default=1_000, ge=1)
    """Most records and subjects of a request for deletion."""
    max_pixels: int = Field(default=25_000_000, ge=1)
    """Most pixels of a request's images together."""
    max_queued_inputs: int = Field(default=10_000, ge=1)
    """Most inputs that wait to be answered at a worker; more are refused."""
    max_queued_bytes: int = Field(default=268_435_456, ge=1)
    """Most bytes of texts and images that wait to be answered at a worker; more are refused."""
    max_new_tokens: int = Field(default=1_024, ge=1)
    """Most tokens of a text that a language model writes."""
    max_texts: int = Field(default=16, ge=1)
    """Most texts that are written at the same time at a worker, and so prompts of a request."""
    max_queued_texts: int = Field(default=64, ge=0)
    """Most texts that wait to be written at a worker; more are refused."""
    body_seconds: float = Field(default=30.0, gt=0)
    """Longest time in which a request's body may arrive, in seconds."""
    answer_seconds: float = Field(default=60.0, gt=0)
    """Longest wait for an answer, or for a text to be begun, in seconds; then the request is refused."""
    hang_seconds: float = Field(default=300.0, gt=0)
    """Longest computation of a batch, or of a turn of texts; after that the process does not count as alive."""
    send_seconds: float = Field(default=30.0, gt=0)
    """Longest time in which a client may take an answer, in seconds."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        scopes, names = ", ".join(SCOPES), self.names
        problems = [f"there is no scope {scope!r}: {scopes}" for scope in self.open_scopes if scope not in SCOPES]
        twice = sorted({name for name in names if names.count(name) > 1})
        problems += [f"two runs are called {name}; rename a folder" for name in twice]
        if (self.engine is None) != (self.engine_adapters is None):
            problems.append("an engine and the folder of its adapters (--engine, --engine-adapters) are given together")
        if self.engine is not None and self.workers > 1:
            problems.append("beside an engine one process answers; leave --workers out")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(run.absolute().name for run in self.runs)
