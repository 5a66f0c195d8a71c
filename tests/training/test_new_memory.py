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


@pytest.mark.parametrize("kind", KINDS)
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
        trained.append(
            {path: file for path, file in tiny.artifacts(tmp_path / str(fill)).items() if "safetensors" in path}
        )
    assert len(trained[0]) == 2
    assert sorted(trained[0].values()) == sorted(trained[1].values())
