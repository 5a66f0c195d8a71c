"""What members can share is found out for every architecture, and not guessed."""

from pathlib import Path

import pytest

from s3t.models.assembly import assemble
from s3t.models.passes import Sharing, find_sharing
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest
from testing import tiny
from tests.models.kinds import LLAMA, SMALL, TEXT, model_of_kind

KINDS = TEXT | {"llama": LLAMA, "modernbert": SMALL | {"max_position_embeddings": 24, "pad_token_id": 0}}


def sharing(folder, *, kind="text"):
    recipe = recipe_from(tiny.recipe(folder, kind=kind))
    model, encoder = assemble(Path(recipe.base_model), recipe, labels=3)
    table = tiny.text_table() if kind == "text" else tiny.image_table()
    return find_sharing(model.base, encoder.collate(encoder.encode(ingest(table, recipe).rows)[:1]))


@pytest.mark.parametrize("kind", KINDS)
def test_members_share_passes_and_head_as_far_as_the_architecture_lets_them(kind, text_model, tmp_path):
    folder = model_of_kind(kind, text_model, tmp_path / "model", **KINDS[kind])
    assert sharing(folder) == Sharing(rows=kind != "deberta-v2", head=True)


def test_members_of_bert_and_of_a_vision_transformer_share_all(text_model, image_model):
    assert sharing(text_model) == sharing(image_model, kind="image") == Sharing(rows=True, head=True)
