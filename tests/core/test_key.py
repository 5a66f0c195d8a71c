"""Keys: whatever decides a stage's tensors changes its key, and nothing else does."""

import re
from dataclasses import replace
from datetime import date
from typing import Literal, get_args, get_origin

import pytest

from s3t.core import KeyInputs, Place, Secret, Stage, stage_key
from s3t.orders import SELECTORS
from s3t.recipe import Prediction, recipe_from, training_part

DIGESTS = ("d0", "d1")

RESOLVED = {
    "precision": "float32",
    "threads": 1,
    "attention": "sdpa",
    "shortcuts": ["packing"],
    "trunk_cache": True,
}


def recipe_with(**changes):
    given = {
        "task": "text-classification",
        "base_model": "some/model",
        "columns": {"text": "text"},
        "labels": ["a", "b"],
        "partition": {"shards": 2, "slices": 3},
        "sequences": {"budget": 2},
    }
    given |= changes | {"training": RESOLVED | changes.get("training", {})}
    if given["task"].startswith("text"):
        given["text"] = {"pooling": "mean"} | changes.get("text", {})
    return recipe_from({name: value for name, value in given.items() if value is not ...})


def key(
    *,
    salt="salt",
    base="base",
    stage=Stage(1, (0, 2)),  # noqa: B008
    digests=DIGESTS,
    parents=("parent",),
    **recipe,
):
    return key_of(recipe_with(**recipe), salt=salt, base=base, stage=stage, digests=digests, parents=parents)


def key_of(recipe, *, salt="salt", base="base", stage=Stage(1, (0, 2)), digests=DIGESTS, parents=("parent",)):  # noqa: B008
    part = training_part(recipe, labels=recipe.labels or ())
    inputs = KeyInputs(secret=Secret(salt=salt), base_digest=base, training_part=part)
    return stage_key(inputs, stage, slice_digests=digests, parents=parents)


SAME = [
    {"sequences": {"budget": 6}},
    {"partition": {"shards": 9, "slices": 5}},
    {"training": {"device": "cpu"}},
    {"training": {"device": "cuda"}},
    {"training": {"cache_memory": "1MiB", "cache_disk": 0}},
    {"training": {"precision": "float32"}},
    {"prediction": {"aggregation": "vote", "batch_size": 1}},
    {"sequences": {"selector": "cyclic"}},
    {"columns": {"text": "words", "id": "id", "subject": "person", "label": "answer"}},
    {"image": {"mean": [0.1]}},
    {"base_model": "the/same/weights/elsewhere"},
    {},
]
OTHER = [
    {"labels": ["b", "a"]},
    {"labels": ["a", "b", "c"]},
    {"task": "text-regression", "labels": ...},
    {"adapter": {"rank": 8}},
    {"adapter": {"alpha": 8}},
    {"adapter": {"dropout": 0.1}},
    {"adapter": {"use_rslora": True}},
    {"adapter": {"use_dora": True}},
    {"adapter": {"kind": "ia3"}},
    {"adapter": {"target_modules": ["query"]}},
    {"adapter": {"layers_per_slice": 2}},
    {"adapter": {"init_lora_weights": "gaussian"}},
    {"training": {"seed": 1}},
    {"training": {"epochs": 5}},
    {"training": {"batch_size": 8}},
    {"training": {"learning_rate": 1e-3}},
    {"training": {"head_learning_rate": 1e-3}},
    {"training": {"schedule": "cosine"}},
    {"training": {"warmup": 0.1}},
    {"training": {"weight_decay": 0.1}},
    {"training": {"max_grad_norm": None}},
    {"text": {"max_length": 5}},
    {"text": {"special_tokens": "control"}},
    {"text": {"pooling": "first"}},
    {"text": {"pooling": "last"}},
    {"training": {"precision": "bfloat16"}},
    {"training": {"threads": 2}},
    {"training": {"quantization": "8bit"}},
    {"training": {"quantization": "4bit"}},
    {"training": {"attention": "eager"}},
    {"training": {"shortcuts": []}},
    {"training": {"shortcuts": ["packing", "first-token"]}},
    {"training": {"trunk_cache": False}},
    {"base": "another base"},
    {"salt": "another salt"},
    {"stage": Stage(0, (0, 2))},
    {"stage": Stage(1, (2, 0))},
    {"stage": Stage(1, (0, 1))},
    {"digests": ("d0", "d2")},
    {"digests": ("d1", "d0")},
    {"parents": ["another parent"]},
    {"parents": ["parent", "parent"]},
    {"parents": []},
]


@pytest.mark.parametrize("change", SAME, ids=str)
def test_what_does_not_change_the_tensors_does_not_change_the_key(change):
    assert key(**change) == key()


@pytest.mark.parametrize("change", OTHER, ids=str)
def test_what_changes_the_tensors_changes_the_key(change):
    assert key(**change) != key()


def test_no_two_changes_give_one_key():
    assert len({key(**change) for change in OTHER}) == len(OTHER)


RECIPES = {
    "text": recipe_with(),
    "language": recipe_with(task="causal-lm", labels=...),
    "image": recipe_with(task="image-classification", columns={"image": "i"}),
    "sisa": recipe_with(method="sisa", sequences={}),
}
WITHOUT_BITS = {"device", "cache_memory", "cache_disk", "checkpointing"}


def types_in(annotation):
    inner = () if get_origin(annotation) is Literal else get_args(annotation)
    return {get_origin(annotation) or annotation, *(each for one in inner for each in types_in(one))}


def literals_in(annotation):
    inner = get_args(annotation)
    return [*inner] if get_origin(annotation) is Literal else [each for one in inner for each in literals_in(one)]


def another(annotation, value):
    """Another value of a field, of its type; whether recipes take it does not matter to keys."""
    types = types_in(annotation)
    for literal in literals_in(annotation):
        if literal not in (value, "auto"):
            return [literal] if list in types and value != [literal] else [] if list in types else literal
    if list in types:
        return [*(value if isinstance(value, list) else ()), "other" if str in types else 7.0]
    if bool in types:
        return not value
    if date in types:
        return date(1999, 12, 31)
    return f"{value}x" if str in types else 1 + (0 if isinstance(value, str) or value is None else value)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("part", ["adapter", "training", "text", "language", "image"])
def test_every_field_of_a_part_that_decides_tensors_is_in_the_key_and_no_other(name, part):
    recipe = RECIPES[name]
    own, unused = getattr(recipe, part), {"sisa": "layers_per_slice"}.get(name, "layers")
    changed = set()
    for field, about in type(own).model_fields.items():
        other = own.model_copy(update={field: another(about.annotation, getattr(own, field))})
        assert getattr(other, field) != getattr(own, field)
        if key_of(recipe.model_copy(update={part: other})) != key_of(recipe):
            changed.add(field)
    in_key = part in ("adapter", "training", recipe.task.inputs.section)
    assert changed == ({*type(own).model_fields} - WITHOUT_BITS - {unused} if in_key else set())


def test_every_option_of_a_method_and_its_name_are_in_the_key():
    recipe = RECIPES["text"]
    method = recipe.method
    others = {"replay": 0.5, "direction": "bottom-up", "trainable": "all"}
    assert others.keys() == method.declared().keys() - {"name"}
    changed = [replace(method, **{name: value}) for name, value in others.items()]
    keys = {key_of(recipe.model_copy(update={"method": each})) for each in [*changed, replace(method, name="other")]}
    assert len(keys - {key_of(recipe)}) == len(others) + 1


def test_the_features_of_a_solved_head_are_in_its_key():
    features = [{}, {"ridge": {"layers": 0}}, {"ridge": {"layers": 2}}, {"ridge": {"projection": 8}}]
    assert len({key(head="ridge", **each) for each in features}) == len(features)
    assert key(ridge={"layers": 2}) == key()


def test_every_field_of_a_stage_is_in_its_key():
    stage, others = (
        Stage(1, (2,)),
        {"shard": 0, "prefix": (0,), "kind": "prototypes", "reads": (Place(0, 0),), "seen": 1},
    )
    assert others.keys() == {*Stage._fields}
    assert len({key(stage=stage), *(key(stage=stage._replace(**{name: value})) for name, value in others.items())}) == 6


def made_with(*, pooling="mean", **training):
    fields = {"task": "text-classification", "base_model": "m", "columns": {"text": "t"}, "labels": ["a", "b"]}
    return recipe_from(fields | {"training": training, "text": {"pooling": pooling}})


def test_the_training_part_names_what_decides_tensors_and_nothing_else():
    part = training_part(made_with(**RESOLVED), labels=("a", "b"))
    assert set(part) == {"task", "labels", "adapter", "training", "method", "validation", "text"}
    assert "device" not in part["training"]


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_stage_is_shared_by_runs_of_every_selector(selector):
    assert key(sequences={"budget": 2 if selector != "full" else 6, "selector": selector}) == key()


@pytest.mark.parametrize("auto", [*RESOLVED, "pooling"])
def test_an_auto_that_decides_bits_never_reaches_a_key(auto):
    with pytest.raises(ValueError, match="not resolved"):
        training_part(made_with(**RESOLVED | {auto: "auto"}), labels=("a", "b"))


def test_a_key_is_64_hexadecimal_digits():
    assert re.fullmatch("[0-9a-f]{64}", key())


def test_image_recipes_hold_the_pixels_part_and_not_the_text_part():
    fields = {"task": "image-classification", "columns": {"image": "i"}}
    assert key(**fields) == key(**fields, text={"max_length": 5})
    assert key(**fields) != key(**fields, image={"mean": [0.1]})


def test_the_threshold_is_in_the_key_where_public_records_choose():
    recipes = [made_with(**RESOLVED).model_copy(update={"prediction": Prediction(threshold=at)}) for at in (0.4, 0.5)]
    alone, beside = ([training_part(made, labels=(), validation=told) for made in recipes] for told in (None, "digest"))
    assert alone[0] == alone[1]
    assert beside[0] != beside[1]


PLAIN = {"training": {"trunk_cache": False}}
METHODS = [
    {},
    {"method": {"replay": 0.5}},
    {"method": {"direction": "bottom-up"}},
    {"method": {"direction": "bottom-up"}, "partition": {"shards": 2, "slices": 4}},
    {"method": {"direction": "bottom-up", "replay": 0.5}},
]


def test_what_a_method_trains_is_in_the_key():
    """The share of earlier records, the layers that a stage trains, and, from the bottom, of how many stages."""
    assert len({key(**PLAIN, **change) for change in METHODS}) == len(METHODS)


def test_how_texts_become_tokens_is_in_the_key():
    fields = PLAIN | {"task": "causal-lm", "columns": {"text": "t"}, "labels": ...}
    ways = [{}, {"date": "2026-01-05"}, {"date": "2026-01-06"}, {"special_tokens": "control"}, {"loss": "all"}]
    assert len({key(**fields, language=way) for way in ways}) == len(ways)


def test_how_images_vary_is_in_the_key():
    fields = PLAIN | {"task": "image-classification", "columns": {"image": "i"}}
    ways = [{}, {"crop": 1}, {"crop": 2}, {"flip": True}, {"crop": 1, "flip": True}]
    assert len({key(**fields, image=way) for way in ways}) == len(ways)
