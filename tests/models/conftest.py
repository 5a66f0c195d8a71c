"""What tests of models share."""

from functools import cache

import pytest

from testing.language import make_language_model
from tests.models.kinds import KINDS, model_of_kind


@pytest.fixture(scope="session")
def of_kind(text_model, image_model, tmp_path_factory):
    """Folder of a model of each kind, made once."""
    own = {"bert": text_model, "vit": image_model}

    @cache
    def made(kind):
        folder = tmp_path_factory.mktemp("kind") / "model"
        return own.get(kind) or model_of_kind(kind.partition(",")[0], text_model, folder, **KINDS[kind])

    return made


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    """Folder of a language model."""
    return make_language_model(tmp_path_factory.mktemp("llama") / "model")
