"""No stage reads memory that it has not written: what lay there could be of a deleted record."""

import pytest

import s3t
from s3t.training import numerics
from testing import tiny

SHORT = {"epochs": 1, "batch_size": 8}
KINDS = {
    "packed, bfloat16": ("text", {"precision": "bfloat16", "shortcuts": ["packing"]}, {}),
    "padded, float32": ("text", {"precision": "float32", "shortcuts": [], "trunk_cache": False}, {}),
    "padded, trunk": ("text", {"precision": "bfloat16", "shortcuts": [], "trunk_cache": True}, {}),
    "as PEFT computes": ("text", {"precision": "bfloat16"}, {"use_dora": True}),
    "images": ("image", {"precision": "float32"}, {}),
}
ALIKE = ("padded, float32", "images")
"""Of these nothing is padded, or it is as in another kind."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.integration] * (kind in ALIKE)) for kind in KINDS]
)
def test_stages_are_the_same_where_new_memory_holds_nan(kind, request, tmp_path, monkeypatch):
    inputs, training, adapter = KINDS[kind]
    recipe = tiny.recipe(
        request.getfixturevalue(f"{inputs}_model"),
        kind=inputs,
        training=SHORT | training,
        adapter=adapter,
        partition={"shards": 1, "slices": 2},
        sequences={"budget": 1},
    )
    table = tiny.text_table() if inputs == "text" else tiny.image_table()
    trained = []
    for fill in (False, True):
        monkeypatch.setattr(numerics, "FILL_NEW_MEMORY", fill)
        with s3t.Run.create(tmp_path / str(fill), recipe=recipe, data=table) as run:
            run.train()
        files = tiny.artifacts(tmp_path / str(fill)).items()
        trained.append(sorted(file for path, file in files if "safetensors" in path))
    assert len(trained[0]) == 2
    assert trained[0] == trained[1]
