"""Bodies of requests and answers, as the OpenAPI document describes them."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Annotated, Any

from PIL import Image, UnidentifiedImageError
from pydantic import BaseModel, ConfigDict, Field

from s3t.recipe import Recipe
from s3t.records.inputs import Inputs
from s3t.serve.problems import Refused
from s3t.serve.settings import Settings

Input = str | dict[str, Any] | list[str]
"""A text; a row with the recipe's columns; a pair of texts, or words."""


class PredictRequest(BaseModel):
    """Inputs to answer."""

    model_config = ConfigDict(extra="forbid")

    inputs: Input | list[Input] = Field(
        description="One input or a list. A text, or an image in base64; within a list a pair of texts, or a list of "
        "words; or a row with the columns of the recipe.",
        examples=["where is my card?", ["a text", "another"]],
    )
    top: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="Labels with their probabilities, the likeliest first; without, all of them."
    )

    def listed(self) -> list[Any]:
        """The inputs as a list."""
        return self.inputs if isinstance(self.inputs, list) else [self.inputs]


class PredictResponse(BaseModel):
    """Answers of one generation."""

    run: str
    generation: int = Field(description="Deletions that were accepted before it: the newest when it left.")
    members: list[dict[str, Any]] = Field(description="Shard and prefix of each member that answered.")
    predictions: list[dict[str, Any]] = Field(
        description="For each input its label, labels, tags or value, and probabilities where the run gives them."
    )


class DeletionRequest(BaseModel):
    """Records and people to delete."""

    model_config = ConfigDict(extra="forbid")

    records: list[str | int] = Field(default=[], description="Ids of records.")
    subjects: list[str | int] = Field(default=[], description="People, all of whose records go.")
    strict: bool = Field(default=False, description="Delete nothing unless every name is known.")
    dry_run: bool = Field(default=False, description="Say what would happen, and do nothing. Needs the scope operate.")


class DeletionResponse(BaseModel):
    """A deletion that was accepted, or that changed nothing."""

    id: int | None = Field(description="For `GET /v1/deletions/{id}`; null if no record was taken.")
    deleted: int = Field(description="Records.")
    already: list[str] = Field(description="Names that were gone before.")
    unknown: list[str] = Field(description="Names that the run has never held.")
    state: str | None = Field(description="accepted, effective or erased; null if no record was taken.")
    repeated: bool = Field(description="The idempotency key was used before; nothing more was done.")
    dry_run: bool
    plan: dict[str, Any] | None = Field(
        default=None, description="For operators: slices hit, stages lost, depths before and after."
    )


class RepairRequest(BaseModel):
    """A repair to begin."""

    model_config = ConfigDict(extra="forbid")

    hours: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] | None = Field(
        default=None, description="Begin no stage after so many hours; without, train all that is missing."
    )


def inputs_of(request: PredictRequest, recipe: Recipe, settings: Settings) -> Inputs:
    """Inputs as `Run.predict` takes them.

    Raises:
        Refused: 413 for too many or too large ones, 422 for what is no image.
    """
    listed = request.listed()
    if len(listed) > settings.most_inputs:
        raise Refused(413, f"{len(listed)} inputs; send at most {settings.most_inputs} at once")
    if recipe.task.inputs.kind == "image":
        return [_image(place, each, settings.most_pixels) for place, each in enumerate(listed)]
    return listed


def _image(place: int, value: Input, most: int) -> bytes:
    """The bytes of an image of bounded size, of which the header alone is read."""
    where = f"inputs.{place}"
    if not isinstance(value, str):
        raise Refused(422, "wrong input", problems=[f"{where}: give an image as base64"])
    try:
        content = base64.b64decode(value.rpartition("base64,")[2], validate=True)
        with Image.open(io.BytesIO(content)) as image:
            width, height = image.size
    except (binascii.Error, UnidentifiedImageError, OSError, ValueError, SyntaxError):
        raise Refused(422, "wrong input", problems=[f"{where}: is no image in base64"]) from None
    except Image.DecompressionBombError:
        width = height = most
    if width * height > most:
        raise Refused(413, f"{where}: an image of more than {most} pixels; send a smaller one")
    return content
