"""Training on images that vary is exact, and a run that varies none keeps its keys."""

import itertools

import pytest

import s3t
from s3t.run import material
from testing import tiny
from tests.run.worlds import SMALL, assert_deletions_are_exact, make_worlds, trained_run


@pytest.fixture
def recipe(image_model):
    return tiny.recipe(image_model, kind="image", **SMALL) | {"image": {"crop": 1, "flip": True}}


@pytest.mark.integration
def test_images_that_vary_are_forgotten_exactly(recipe, tmp_path):
    assert_deletions_are_exact(tmp_path, recipe, tiny.image_table(), [["r0"], ["r3", "r4"]])


def test_every_epoch_and_stage_sees_other_images(recipe, tmp_path, monkeypatch):
    seen = []
    made = material.augmented

    def noted(pixels, *, record, seed, **options):
        found = made(pixels, record=record, seed=seed, **options)
        seen.append((record, seed, found.numpy().tobytes()))
        return found

    monkeypatch.setattr(material, "augmented", noted)
    with trained_run(tmp_path / "run", recipe, tiny.image_table()) as run:
        stages = len(run.inventory().alive)
        assert run.recipe.training.trunk_cache is False
        assert run.audit(replay=1).ok
    assert len({seed for _, seed, _ in seen}) == stages * 2  # epochs
    by_record = {}
    for record, _, image in seen:
        by_record.setdefault(record, set()).add(image)
    assert len(by_record) == 24
    assert sum(len(images) > 3 for images in by_record.values()) == 22  # two are of one colour


@pytest.mark.integration
def test_what_would_be_drawn_from_the_process_is_caught(recipe, tmp_path, monkeypatch):
    """The leak: images vary by how many were seen before."""
    made, count = material.augmented, itertools.count()
    monkeypatch.setattr(
        material, "augmented", lambda pixels, **options: made(pixels, **options | {"seed": next(count)})
    )
    worlds = make_worlds(tmp_path, recipe, tiny.image_table(), [["r0"]])
    worlds.forgot.repair()
    assert not worlds.identical()
    worlds.close()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"image": {"crop": 4}}, r"image\.crop: 4 pixels of an image of 4"),
        ({"image": {"flip": True}, "training": {"trunk_cache": True}}, "augmented images cannot be computed once"),
    ],
)
def test_what_cannot_be_is_refused_at_init(changes, problem, image_model, tmp_path):
    recipe = tiny.recipe(image_model, kind="image")
    recipe |= {name: recipe.get(name, {}) | change for name, change in changes.items()}
    with pytest.raises(s3t.RecipeError, match=problem):
        s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.image_table())
