"""Bodies of requests and answers, as the OpenAPI document describes them."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, ClassVar

from PIL import Image
from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    model_validator,
)

from s3t.recipe import Recipe
from s3t.records.images import FORMATS
from s3t.records.ingest import Inputs
from s3t.results.changes import Deletion
from s3t.results.serving import Held
from s3t.run.approvals import MOST_REASON
from s3t.wording import counted
from s3t_server.problems import Refused, wrong_input
from s3t_server.settings import Settings

_INPUT = (
    {"type": "string", "description": "A text, or an image in base64."},
    {"type": "object", "description": "A row with the columns of the recipe."},
)
_SEVERAL = {
    "type": "array",
    "items": {"anyOf": [*_INPUT, {"type": "array", "items": {"type": "string"}}]},
    "description": "Several inputs; among them an array is a pair of texts, or a list of words.",
}
MAX_NAMES = 10_000
"""Most names that are read of a request for deletion; a server's own bound may be lower."""
MOST_ID = 2**31 - 1
"""Largest id of a deletion that a ledger can have."""
Name = StrictStr | StrictInt


class RequestBody(BaseModel):
    """A body without other fields: of those one problem is told, however many there are."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"additionalProperties": False})

    @model_validator(mode="before")
    @classmethod
    def _has_no_other_fields(cls, body: Any) -> Any:
        if isinstance(body, dict) and not body.keys() <= cls.model_fields.keys():
            raise ValueError(f"has other fields than {', '.join(cls.model_fields)}")
        return body


class ForeignBody(BaseModel):
    """A body as clients of other servers send it. Other fields are ignored if they change nothing, and else refused."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": False})

    ignored: ClassVar[Collection[str]] = {"user", "request_id", "rid", "cache_salt", "metadata"}
    """Fields that change no answer here, whatever they say."""
    without_effect: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Fields that cannot be honoured, by their values that change nothing; null is always one."""

    def check_others(self, problems: Sequence[str] = ()) -> None:
        """Check the other fields, and tell of other problems, too. All unknown ones are one problem."""
        told, unknown = list(problems), 0
        for name, value in (self.model_extra or {}).items():
            if value is None or name in self.ignored:
                continue
            fine = self.without_effect.get(name)
            if fine is None:
                unknown += 1
            elif not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in fine):
                values = " or ".join(map(json.dumps, fine))
                told.append(f"{name}: cannot be honoured; leave it out" + (f", or give {values}" if values else ""))
        if unknown:
            told.append(f"body: has {counted(unknown, 'field')} that s3t does not know; send none of these")
        if told:
            raise wrong_input(told)


class PredictRequest(RequestBody):
    """Inputs to answer."""

    # Checked by `inputs_of`: of a long list pydantic would report each element, several times.
    inputs: Annotated[Any, WithJsonSchema({"anyOf": [*_INPUT, _SEVERAL]})] = Field(
        examples=["where is my card?", ["a text", "another"]]
    )
    top: Annotated[StrictInt, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="Labels with their probabilities, the likeliest first; without, all of them."
    )


class PredictResponse(BaseModel):
    """Answers of one generation."""

    run: str
    generation: int = Field(description="The newest deletion that was accepted when its members were chosen.")
    members: list[dict[str, Any]] = Field(description="Shard and prefix of each member that answered.")
    cut: int = Field(description="Number of inputs with more tokens than max_length: only the first ones are read.")
    predictions: list[dict[str, Any]] = Field(
        description="For each input its label, labels, tags or value, and probabilities where the run gives them."
    )


class NamesRequest(RequestBody):
    """Records and people."""

    records: Annotated[list[Name], FailFast(), Field(max_length=MAX_NAMES)] = Field(
        default=[], description="Ids of records."
    )
    subjects: Annotated[list[Name], FailFast(), Field(max_length=MAX_NAMES)] = Field(
        default=[], description="People, with all of their records."
    )

    def check_count(self, most: int) -> None:
        names = len(self.records) + len(self.subjects)
        if not 0 < names <= most:
            raise wrong_input([f"{names} records and subjects; give 1 to {most}"])


class DeletionRequest(NamesRequest):
    """Records and people to delete."""

    strict: StrictBool = Field(default=False, description="Delete nothing unless every name is known.")
    dry_run: StrictBool = Field(
        default=False, description="Say what would happen, and do nothing. Needs the scope operate, too."
    )


class AdditionRequest(RequestBody):
    """Records to take in."""

    records: Annotated[list[dict[str, Any]], FailFast(), Field(min_length=1)] = Field(
        description="Rows with the columns of the recipe; an image in base64."
    )
    replace: bool = Field(
        default=False, description="Rows may replace records of the same id. Needs the scope operate."
    )
    readmit: bool = Field(default=False, description="Deleted ids and people may come back. Needs the scope operate.")
    new_labels: list[StrictStr] = Field(
        default=[], max_length=1000, description="Labels that the run has from now on. Needs the scope operate."
    )


class PlannedRequest(Held):
    """A held request, and what it would do."""

    plan: Deletion | None = Field(
        default=None, description="Forecast of a request that waits, for operators: a dry run. Else null."
    )


class RefusalRequest(RequestBody):
    """The refusal of a held request."""

    reason: StrictStr = Field(min_length=1, max_length=MOST_REASON, description="Stored for good: name no person.")


class RefusalsRequest(RefusalRequest):
    """The refusal of all held requests of a caller that wait."""

    asked_by: StrictStr = Field(min_length=1, max_length=200, description="Name of the caller's token.")


class RepairRequest(RequestBody):
    """A repair to begin."""

    hours: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False, strict=True)] | None = Field(
        default=None, description="Begin no stage after so many hours; without, train all that is missing."
    )
    learn: StrictBool = Field(default=False, description="Learn all that was added, too.")


def inputs_of(given: Any, recipe: Recipe, settings: Settings) -> Inputs:
    """Inputs of a request, one or a list, as `Run.predict` takes them."""
    inputs: list[Any] = given if isinstance(given, list) else [given]
    if len(inputs) > settings.max_inputs:
        detail = f"{len(inputs)} inputs; send at most {settings.max_inputs} at once"
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    if recipe.task.inputs.kind == "image":
        return _images(inputs, settings.max_pixels)
    wrong = [place for place, each in enumerate(inputs) if not _is_input(each)]
    if wrong:
        raise wrong_input([f"inputs.{place}: is no text, pair, list of words or row" for place in wrong])
    return inputs


def rows_of(rows: Sequence[Mapping[str, Any]], recipe: Recipe, settings: Settings) -> Sequence[Mapping[str, Any]]:
    """Rows of a request, as `Run.add` takes them. Of an image the bytes: a path would be one on the server."""
    if len(rows) > settings.max_records:
        detail = f"{len(rows)} records; send at most {settings.max_records} at once"
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    column = recipe.columns.image
    if recipe.task.inputs.kind != "image" or column is None:
        return rows
    images = _images([row.get(column) for row in rows], settings.max_pixels, field="records")
    return [{**row, column: image} for row, image in zip(rows, images, strict=True)]


def _is_input(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(part, str) for part in value)
    return isinstance(value, str | dict)


def _images(inputs: Sequence[Any], max_pixels: int, *, field: str = "inputs") -> list[bytes]:
    """The bytes of images, of which the headers alone are read; together of bounded size."""
    images, pixels = [], 0
    for place, value in enumerate(inputs):
        try:
            content = base64.b64decode(value.rpartition("base64,")[2], validate=True)
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                pixels += image.width * image.height
        except Image.DecompressionBombError:
            pixels += max_pixels + 1
        except Exception:  # whatever Pillow finds; and what is no text
            formats = ", ".join(FORMATS)
            raise wrong_input([f"{field}.{place}: is no image ({formats}) in base64"]) from None
        if pixels > max_pixels:
            detail = f"images of more than {max_pixels} pixels together; send smaller ones, or fewer"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        images.append(content)
    return images
