"""What every experiment is told, read from its config.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Settings of an experiment. All of them stand in its config.yaml: there are no defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(ge=0)
    """All randomness derives from it."""


S = TypeVar("S", bound=Settings)


def load(kind: type[S], path: Path, *, smoke: bool = False) -> S:
    """The settings in a file.

    Args:
        kind: which settings.
        path: of the file.
        smoke: those of its `smoke` part in the place of others: a small size, to see that it works.

    Raises:
        pydantic.ValidationError: with everything that is wrong.
    """
    found = yaml.safe_load(path.read_text())
    small = found.pop("smoke", {})
    return kind.model_validate(found | small if smoke else found)
