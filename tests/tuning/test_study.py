"""`s3t tune` on tiny models: real trials, real Optuna, and private data refused."""

import warnings
from itertools import product

import pytest
import yaml

import s3t
from s3t.errors import DataError, InputError
from s3t.tuning import read_space, tune
from testing import tiny
from tests.cli.typed import document, invoke

pytestmark = pytest.mark.integration


class World:
    """Files of public and private records, and a recipe."""

    def __init__(self, model, folder):
        self.folder, self.private = folder, folder / "private.csv"
        self.data, self.validation = folder / "public.csv", folder / "validation.csv"
        tiny.text_table().to_csv(self.private, index=False)
        public = tiny.text_table(60, seed=9)
        public = public[~public.text.isin(tiny.text_table().text)].drop_duplicates("text")
        public = public.assign(id=["q" + name for name in public.id])
        public.iloc[:36].to_csv(self.data, index=False)
        public.iloc[36:].to_csv(self.validation, index=False)
        self.recipe = tiny.recipe(
            model, partition={"shards": 1, "slices": 2}, sequences={"budget": 1}, training={"epochs": 8}
        )

    def tune(self, space, **options):
        asked = {"private": [self.private], "trials": 4, "folder": self.folder / "study"} | options
        return tune(self.recipe, read_space(space), data=self.data, validation=self.validation, **asked)


@pytest.fixture
def world(text_model, tmp_path):
    return World(text_model, tmp_path)


GRID = {"training.learning_rate": [1e-6, 0.05], "adapter.rank": [2, 4]}


def test_a_grid_tries_every_combination_once_and_the_best_recipe_makes_a_run(world, tmp_path):
    found = world.tune(GRID, sampler="grid", trials=50)
    tried = sorted(tuple(trial.values[name] for name in GRID) for trial in found.trials)
    assert tried == sorted(product(*GRID.values()))
    assert found.best.score == max(trial.score for trial in found.trials)
    assert len({trial.score for trial in found.trials}) > 1
    fields = yaml.safe_load(found.to_yaml())
    assert "salt" not in fields["partition"]
    with s3t.Run.create(tmp_path / "run", recipe=fields, data=world.private) as run:
        assert run.recipe.adapter.rank == found.best.values["adapter.rank"]
        assert run.recipe.training.learning_rate == found.best.values["training.learning_rate"]
    assert not [*(tmp_path / "study").glob("trial*")]


def test_trials_that_are_there_are_not_made_again_and_the_same_seed_tries_the_same(world, tmp_path, monkeypatch):
    space = {"training.learning_rate": {"log": [1e-4, 1e-1]}, "training.epochs": {"between": [1, 2]}}
    first = world.tune(space, trials=2).trials
    made, create = [], s3t.Run.create
    monkeypatch.setattr(s3t.Run, "create", lambda *args, **options: made.append(1) or create(*args, **options))
    assert world.tune(space, trials=3).trials[:2] == first
    assert len(made) == 1
    again = world.tune(space, trials=2, folder=tmp_path / "other").trials
    assert [(trial.values, trial.score) for trial in again] == [(trial.values, trial.score) for trial in first]


def test_a_trial_that_was_stopped_is_made_again(world, monkeypatch):
    stops, evaluate = [KeyboardInterrupt], s3t.Run.evaluate

    def stopped(self, *args, **options):
        if stops:
            raise stops.pop()
        return evaluate(self, *args, **options)

    monkeypatch.setattr(s3t.Run, "evaluate", stopped)
    with pytest.raises(KeyboardInterrupt):
        world.tune(GRID, sampler="grid")
    found = world.tune(GRID, sampler="grid")
    assert all(trial.score is not None for trial in found.trials)
    assert len({tuple(trial.values.values()) for trial in found.trials}) == len(found.trials) == 4


def test_a_recipe_that_cannot_be_trained_is_a_trial_without_a_score(world):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # Optuna's, of values that are mappings
        found = world.tune({"adapter": [{"layers_per_slice": 1}, {"layers_per_slice": 9}]}, sampler="grid")
    scores = {trial.values["adapter"]["layers_per_slice"]: trial for trial in found.trials}
    assert scores[9].score is None
    assert "layers_per_slice" in scores[9].problem
    assert found.best.values == {"adapter": {"layers_per_slice": 1}}
    with pytest.raises(InputError, match="no trial could be trained"):
        world.tune({"adapter.layers_per_slice": [8, 9]}, sampler="grid", folder=world.folder / "none")


def test_private_records_are_refused_by_content_from_a_file_and_by_id_from_a_run(world, tmp_path):
    with s3t.Run.create(tmp_path / "run", recipe=world.recipe, data=world.private) as run:
        run.delete(records=["r5"])  # what it has forgotten it must not see again, either
    lines = world.private.read_text().splitlines()
    with world.data.open("a") as file:
        file.write(f"{lines[6]}\n")
    with pytest.raises(DataError, match=r"1 records of .*public.csv are in .*private.csv \(line 38\)"):
        world.tune(GRID)
    with pytest.raises(DataError, match=r"are or were in the run .* \(line 38\)"):
        world.tune(GRID, private=[tmp_path / "run"])
    assert not (tmp_path / "study").exists()


def test_somebody_has_to_say_what_is_private_and_a_study_of_another_space_is_refused(world):
    with pytest.raises(InputError, match="nothing says that no private record"):
        world.tune(GRID, private=[])
    assert world.tune(GRID, private=[], declared_public=True, trials=1).trials
    with pytest.raises(InputError, match="holds a study of another recipe"):
        world.tune({"adapter.rank": [2]})


def test_a_field_that_there_is_not_and_a_grid_of_a_range_are_refused(world):
    with pytest.raises(InputError, match=r"training\.speed: no such field"):
        world.tune({"training.speed": [1]})
    with pytest.raises(InputError, match="a grid needs a list"):
        world.tune({"adapter.rank": {"between": [1, 2]}}, sampler="grid")


def test_the_command_writes_the_best_recipe(world):
    recipe, space, out = (world.folder / name for name in ("recipe.yaml", "space.yaml", "best.yaml"))
    recipe.write_text(yaml.safe_dump(world.recipe))
    space.write_text(yaml.safe_dump(GRID))
    given = {"space": space, "data": world.data, "validation": world.validation, "private": world.private, "out": out}
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    options += ["--study", world.folder / "study", "--sampler", "grid"]
    done = invoke("tune", recipe, *options)
    assert (done.exit_code, "best: trial" in done.output) == (0, True), done.output
    found = document("tune", recipe, *options)
    assert len(found["trials"]) == 4
    assert yaml.safe_load(out.read_text()) == found["recipe"]
