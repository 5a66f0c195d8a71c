"""What every experiment is told, read from its config.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Settings of an experiment. All of them stand in its config.yaml: there are no defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(ge=0)
    """All randomness derives from it."""


S = TypeVar("S", bound=Settings)


def load(kind: type[S], path: Path, overrides: Mapping[str, Any] | None = None) -> S:
    """The settings in a file, some of them overridden.

    Raises:
        pydantic.ValidationError: with everything that is wrong.
    """
    return kind.model_validate({**yaml.safe_load(path.read_text()), **(overrides or {})})
