"""Requests and answers as other servers have them, so that their clients work: vLLM and SGLang (`/classify`), and
text-embeddings-inference (`/predict`). The engine, its fence and its bounds are those of `POST /v1/predict`. OpenAI's
texts are in `completions`.

Fields that change nothing here are ignored, as those servers do; all others are refused.
"""

import time
import uuid
from functools import partial
from typing import Annotated, Any

from fastapi import Response
from pydantic import BaseModel, Field, StrictStr, WithJsonSchema

from s3t.results.answers import Predictions
from s3t_server.answering import answer, check_model
from s3t_server.documents import ForeignBody
from s3t_server.problems import wrong_input
from s3t_server.routes import OF_A_BODY, SHAPES, Served, group, refusals

_TEXT = {"type": "string"}
_PAIR = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 2}


class ClassifyRequest(ForeignBody):
    """Texts to classify, as vLLM and SGLang take them."""

    # Texts are cut as in training.
    without_effect = {  # noqa: RUF012
        **dict.fromkeys(("use_activation", "activation", "softmax", "add_special_tokens"), (True,)),
        "truncate_prompt_tokens": (-1,),
        "truncation_side": ("right",),
        "mm_processor_kwargs": ({},),
        "priority": (0,),
    }

    # Checked by hand: of a long list pydantic would report each element.
    input: Annotated[Any, WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]})]
    model: StrictStr | None = Field(default=None, description="The run's name, as GET /v1/models has it.")


class TextPredictRequest(ForeignBody):
    """Texts and pairs to classify, as text-embeddings-inference takes them."""

    without_effect = {  # noqa: RUF012
        "raw_scores": (False,),
        "truncate": (True,),
        "truncation_direction": ("Right", "right"),
        "parameters": ({},),
    }

    inputs: Annotated[
        Any,
        WithJsonSchema(
            {
                "anyOf": [_TEXT, _PAIR, {"type": "array", "items": _PAIR, "minItems": 1}],
                "description": "A text, a pair of texts, or a batch: a list of lists of one or two texts.",
            }
        ),
    ]


class Score(BaseModel):
    """A label and its probability."""

    score: float
    label: str


MODELS, CLASSIFIERS = group(SHAPES, "predict"), group(SHAPES, "predict")


@MODELS.get("/v1/models", summary="The run's name, as OpenAI's clients ask for it")
def models(served: Served) -> dict[str, Any]:
    """One model: the run."""
    made = int(served.run.log([0])[0].received_at.timestamp())
    return {"object": "list", "data": [{"id": served.name, "object": "model", "created": made, "owned_by": "s3t"}]}


def _responses(shape: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    described = {"model": shape, "description": "Answers of one generation, which the header S3T-Generation names."}
    return refusals(*OF_A_BODY, *statuses) | {200: described}


_CLASSIFIED = _responses(dict[str, Any], 404)


@CLASSIFIERS.post("/v1/classify", summary="Classify texts, as vLLM and SGLang do", responses=_CLASSIFIED)
@CLASSIFIERS.post("/classify", summary="Classify texts, as vLLM and SGLang do", responses=_CLASSIFIED)
async def classify(asked: ClassifyRequest, served: Served) -> Response:
    """Each text's label, and its probabilities in the order of the run's labels."""
    check_model(served, asked.model)
    asked.check_others()
    texts = asked.input if isinstance(asked.input, list) else [asked.input]
    if any(not isinstance(text, str) for text in texts):
        raise wrong_input(["input: is no text or list of texts"])
    return await answer(served, texts, partial(_classified, model=served.name))


@CLASSIFIERS.post(
    "/predict",
    summary="Classify texts, as text-embeddings-inference does",
    responses=_responses(list[Score] | list[list[Score]]),
)
async def predict(asked: TextPredictRequest, served: Served) -> Response:
    """Labels with their probabilities, the likeliest first: a list of them, or of a batch a list an input."""
    asked.check_others()
    alone = not isinstance(asked.inputs, list) or isinstance(next(iter(asked.inputs), None), str)
    batch = [asked.inputs] if alone else asked.inputs
    inputs = [_text_or_pair(value) for value in batch]
    if wrong := [place for place, value in enumerate(inputs) if value is None]:
        raise wrong_input([f"inputs.{place}: is no list of one or two texts" for place in wrong])
    if not inputs:
        raise wrong_input(["inputs: is an empty list"])
    return await answer(served, inputs, partial(_scored, alone=alone))


def _text_or_pair(value: Any) -> str | list[str] | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) in (1, 2) and all(isinstance(part, str) for part in value):
        return value[0] if len(value) == 1 else value
    return None


def _classified(predictions: Predictions, *, model: str) -> dict[str, Any]:
    """The shape of vLLM's `/classify`, without `usage`: tokens are not counted."""
    return {
        "id": f"classify-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [
            {
                "index": index,
                "label": row["label"],
                "probs": list(row["probabilities"].values()),
                "num_classes": len(predictions.classes),
            }
            for index, row in enumerate(predictions.rows())
        ],
    }


def _scored(predictions: Predictions, *, alone: bool) -> list[Any]:
    """The shape of text-embeddings-inference's `/predict`."""
    labels = len(predictions.classes)
    rows = [
        [{"score": value, "label": name} for name, value in row["probabilities"].items()]
        for row in predictions.rows(top=labels)
    ]
    return rows[0] if alone else rows
