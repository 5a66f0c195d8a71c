"""Keys: whatever decides a stage's tensors changes its key, and nothing else does."""

from dataclasses import replace
from datetime import date
from typing import Literal, get_args, get_origin

import pytest

from s3t.core import KeyInputs, Place, Secret, Stage, stage_key
from s3t.recipe import Prediction, recipe_from, training_part

RESOLVED = {"precision": "float32", "threads": 1, "attention": "sdpa", "shortcuts": ["packing"], "trunk_cache": True}
OF_KEYS = {
    **{"salt": "salt", "base": "base", "stage": Stage(1, (0, 2))},
    **{"digests": ("d0", "d1"), "parents": ("parent",), "later": ()},
}
"""What is in a key beside the recipe."""


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


def key(**changes):
    beside = {name: changes.pop(name) for name in OF_KEYS if name in changes}
    return key_of(recipe_with(**changes), **beside)


def key_of(recipe, **beside):
    given = OF_KEYS | beside
    part = training_part(recipe, labels=recipe.labels or ())
    inputs = KeyInputs(secret=Secret(salt=given["salt"]), base_digest=given["base"], training_part=part)
    digests, parents = given["digests"], given["parents"]
    return stage_key(inputs, given["stage"], slice_digests=digests, parents=parents, labels=given["later"])


SAME = [
    {"sequences": {"budget": 6}},
    {"partition": {"shards": 9, "slices": 5}},
    {"training": {"device": "cuda"}},
    {"training": {"cache_memory": "1MiB", "cache_disk": 0}},
    {"training": {"precision": "float32"}},
    {"prediction": {"aggregation": "vote", "batch_size": 1}},
    {"sequences": {"selector": "cyclic"}},
    {"columns": {"text": "words", "id": "id", "subject": "person", "label": "answer"}},
    {"image": {"mean": [0.1]}},
    {"base_model": "the/same/weights/elsewhere"},
    {"ridge": {"layers": 2}},  # nobody asked for such a head
]
OTHER = [
    {"labels": ["b", "a"]},
    {"labels": ["a", "b", "c"]},
    {"task": "text-regression", "labels": ...},
    {"adapter": {"rank": 8}},
    {"text": {"pooling": "first"}},
    {"text": {"pooling": "last"}},
    {"training": {"quantization": "8bit"}},
    {"training": {"quantization": "4bit"}},
    {"training": {"shortcuts": []}},
    {"training": {"shortcuts": ["packing", "first-token"]}},
    {"base": "another base"},
    {"salt": "another salt"},
    {"stage": Stage(0, (0, 2))},
    {"stage": Stage(1, (2, 0))},
    {"digests": ("d0", "d2")},
    {"digests": ("d1", "d0")},
    {"parents": ["another parent"]},
    {"parents": ["parent", "parent"]},
    {"parents": []},
    {"later": ("c",)},
]


@pytest.mark.parametrize("change", SAME, ids=str)
def test_what_does_not_change_the_tensors_does_not_change_the_key(change):
    assert key(**change) == key()


def test_what_changes_the_tensors_changes_the_key():
    assert len({key(), *(key(**change) for change in OTHER)}) == 1 + len(OTHER)


RECIPES = {
    "text": recipe_with(),
    "language": recipe_with(task="causal-lm", labels=...),
    "image": recipe_with(task="image-classification", columns={"image": "i"}),
    "sisa": recipe_with(method="sisa", sequences={}),
}
WITHOUT_BITS = {"device", "cache_memory", "cache_disk", "checkpoint_minutes", "checkpointing"}


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


def test_every_field_of_a_stage_is_in_its_key():
    stage, others = (
        Stage(1, (2,)),
        {"shard": 0, "prefix": (0,), "kind": "prototypes", "reads": (Place(0, 0),), "seen": 1},
    )
    assert others.keys() == {*Stage._fields}
    assert len({key(stage=stage), *(key(stage=stage._replace(**{name: value})) for name, value in others.items())}) == 6


def test_the_training_part_names_what_decides_tensors_and_nothing_else():
    part = training_part(recipe_with(), labels=("a", "b"))
    assert set(part) == {"task", "labels", "adapter", "training", "method", "validation", "text"}
    assert "device" not in part["training"]


@pytest.mark.parametrize("auto", [*RESOLVED, "pooling"])
def test_an_auto_that_decides_bits_never_reaches_a_key(auto):
    changes = {"text": {"pooling": "auto"}} if auto == "pooling" else {"training": {auto: "auto"}}
    with pytest.raises(ValueError, match="not resolved"):
        training_part(recipe_with(**changes), labels=("a", "b"))


def test_the_threshold_is_in_the_key_where_public_records_choose():
    recipes = [recipe_with().model_copy(update={"prediction": Prediction(threshold=at)}) for at in (0.4, 0.5)]
    alone, beside = ([training_part(made, labels=(), validation=told) for made in recipes] for told in (None, "digest"))
    assert alone[0] == alone[1]
    assert beside[0] != beside[1]


PLAIN = {"training": {"trunk_cache": False}}
LANGUAGE = PLAIN | {"task": "causal-lm", "columns": {"text": "t"}, "labels": ...}
IMAGES = PLAIN | {"task": "image-classification", "columns": {"image": "i"}}
WAYS = {
    "what a method trains": [  # the share of earlier records, the layers of a stage and, from the bottom, of how many
        PLAIN,
        PLAIN | {"method": {"replay": 0.5}},
        PLAIN | {"method": {"direction": "bottom-up"}},
        PLAIN | {"method": {"direction": "bottom-up"}, "partition": {"shards": 2, "slices": 4}},
        PLAIN | {"method": {"direction": "bottom-up", "replay": 0.5}},
    ],
    "what a solved head sees": [
        {"head": "ridge"} | features
        for features in ({}, {"ridge": {"layers": 0}}, {"ridge": {"layers": 2}}, {"ridge": {"projection": 8}})
    ],
    "how texts become tokens": [
        LANGUAGE | {"language": way}
        for way in ({}, {"date": "2026-01-05"}, {"date": "2026-01-06"}, {"special_tokens": "control"}, {"loss": "all"})
    ],
    "how images vary": [
        IMAGES | {"image": way} for way in ({}, {"crop": 1}, {"crop": 2}, {"flip": True}, {"crop": 1, "flip": True})
    ],
}


@pytest.mark.parametrize("what", WAYS)
def test_each_way_has_a_key_of_its_own(what):
    assert len({key(**way) for way in WAYS[what]}) == len(WAYS[what])
