"""What a program may pass to be predicted: every shape gives the same rows."""

import io
import sys
import types

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

from s3t.errors import DataError
from s3t.records.ingest import ingest_inputs
from tests.records import given

TEXTS = ["where is it", "it came", "007"]
PAIRS = [("a man sleeps", "a man rests"), ("it rains", "it is dry")]


def recipe(**columns):
    return given.recipe(task=f"{'image' if 'image' in columns else 'text'}-classification", columns=columns)


SINGLE, PAIR = recipe(text="words"), recipe(text="premise", text_pair="hypothesis")
IMAGE = recipe(image="img")


@pytest.mark.parametrize(
    "inputs",
    [
        TEXTS,
        tuple(TEXTS),
        pd.Series(TEXTS, index=[5, 3, 1]),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        {"words": np.array(TEXTS), "other": [1, 2, 3]},
        {"words": pd.Series(TEXTS)},
        [{"words": text} for text in TEXTS],
        pd.DataFrame({"words": TEXTS}),
        pa.table({"words": TEXTS}),
    ],
    ids=lambda inputs: type(inputs).__name__,
)
def test_texts_in_any_shape_are_the_same_inputs(inputs):
    features, ids, places = ingest_inputs(inputs, SINGLE)
    assert features.to_pydict() == {"text": TEXTS}
    assert ids is None
    assert list(places) == [0, 1, 2]


@pytest.mark.parametrize(
    "inputs",
    [PAIRS, np.array(PAIRS), dict(zip(("premise", "hypothesis"), map(list, zip(*PAIRS, strict=True)), strict=True))],
    ids=["tuples", "array", "columns"],
)
def test_pairs_in_any_shape_are_the_same_inputs(inputs):
    features = ingest_inputs(inputs, PAIR).features
    assert features.to_pydict() == {"text": [pair[0] for pair in PAIRS], "text_pair": [pair[1] for pair in PAIRS]}


def test_images_and_arrays_are_taken_pixel_by_pixel(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (2, 5, 4, 3), dtype=np.uint8)
    encoded = []
    for each in pixels:
        content = io.BytesIO()
        Image.fromarray(each).save(content, format="png")
        encoded.append(content.getvalue())
    for inputs in (pixels, list(pixels), [Image.fromarray(each) for each in pixels], encoded, {"img": encoded}):
        found = ingest_inputs(inputs, IMAGE).features["image"].to_pylist()
        assert np.array_equal([np.asarray(Image.open(io.BytesIO(content))) for content in found], pixels)
    grey = ingest_inputs(pixels[..., 0], IMAGE).features["image"].to_pylist()
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(grey[1])).convert("L")), pixels[1, ..., 0])


@pytest.mark.parametrize(
    ("inputs", "of", "problem"),
    [
        (TEXTS, PAIR, "neither pairs of texts nor rows; the recipe's inputs have premise, hypothesis"),
        (PAIRS, SINGLE, "neither texts nor rows; the recipe's inputs have words"),
        ({"words": "one text"}, SINGLE, "a mapping whose 'words' is no list"),
        ({"words": TEXTS, "id": [1]}, SINGLE, "columns of different lengths"),
        ("one text", SINGLE, "one string"),
        ([1, 2], SINGLE, "neither texts nor rows"),
        (
            ["a"],
            recipe(text="{question} {answer}"),
            "puts texts together from question, answer; pass rows that have them",
        ),
        (np.zeros((2, 3, 3)), IMAGE, "row 0: the image is an array of float64 and shape (3, 3); give uint8"),
        (Image.new("L", (2, 2)), IMAGE, "are one image; pass it in a list"),
    ],
)
def test_what_fits_no_column_is_refused_in_a_sentence(inputs, of, problem):
    with pytest.raises(DataError) as caught:
        ingest_inputs(inputs, of)
    assert problem in caught.value.problems[0]


def test_a_series_that_misses_a_text_names_its_row():
    with pytest.raises(DataError, match="row 1: column 'words' is empty"):
        ingest_inputs(pd.Series(["a", None]), SINGLE)


@pytest.mark.parametrize(("package", "inputs"), [("pandas", ["w1", "w2"]), ("datasets", [{"text": "w1"}])])
def test_inputs_are_read_while_another_thread_imports_a_package(package, inputs, monkeypatch):
    """A module that is being imported is there already, and has no classes yet."""
    monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    assert ingest_inputs(inputs, recipe(text="text")).features.num_rows == len(inputs)
