"""select: validation. The live order of a shard that is best on public records serves."""

import pandas as pd
import pytest

import s3t
from s3t.core import Stage
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest
from s3t.records.public import Public
from s3t.store.artifacts import Artifacts, blobs_of
from testing import tiny
from testing.roles import roles
from tests.run.worlds import make_worlds, trained_run

pytestmark = pytest.mark.integration


def write_public(folder):
    """A file of records that are none of the run's, without ids."""
    table = tiny.text_table(60, seed=7)
    table[~table.text.isin(tiny.text_table().text)].drop(columns="id").to_csv(folder / "public.csv", index=False)
    return folder / "public.csv"


@pytest.fixture
def public(tmp_path):
    return write_public(tmp_path)


def recipe_with(model, public, **changes):
    return tiny.recipe(model, prediction={"select": "validation", "validation": str(public)}, **changes)


@pytest.fixture(scope="module")
def made(text_model, state_of_all, tmp_path_factory):
    """A folder, and what training told."""
    folder = tmp_path_factory.mktemp("made")
    recipe = recipe_with(text_model, write_public(folder))
    with s3t.Run.create(folder / "run", recipe=recipe, data=tiny.text_table()) as run:
        return folder / "run", run.train()


@pytest.fixture
def run(made, tmp_path):
    with s3t.Run.open(tiny.copy_run(made[0], tmp_path / "run")) as opened:
        yield opened


def scores_of(run):
    inventory = run.inventory()
    return {stage: roles(run).store.manifest(stage.shard, key).validation for stage, key in inventory.alive.items()}


def test_a_stage_is_tried_on_the_public_records_and_the_best_order_serves(run, made, public):
    table, scores = pd.read_csv(public), scores_of(run)
    assert {end.stage: end.validation for end in made[1].summaries} == scores
    for stage, score in scores.items():
        answer = run.predict(table.drop(columns="label"), prefixes=[(stage.shard, stage.prefix)])
        right = sum(a == b for a, b in zip(answer.predicted, table.label, strict=True))
        assert score == pytest.approx(right / len(table))
    assert len(set(scores.values())) > 1
    inventory = run.inventory()
    for shard in (0, 1):
        assert scores[inventory.serving(shard)] == max(scores[Stage(shard, order)] for order in inventory.orders[shard])


def test_a_deletion_leaves_the_best_of_what_is_alive_at_once(run):
    run.delete(records=["r3"])
    scores, inventory = scores_of(run), run.inventory()
    for shard in (0, 1):
        assert scores[inventory.serving(shard)] == max(scores[end] for end in inventory.serving_all[shard])
    assert {(member.shard, member.prefix) for member in run.predict(["w1"]).members} == {
        (stage.shard, stage.prefix) for stage in inventory.members().values()
    }


def test_who_serves_is_who_serves_in_a_run_that_never_knew(text_model, public, tmp_path):
    worlds = make_worlds(tmp_path, recipe_with(text_model, public), tiny.text_table(), [["r1"], ["r4", "r6"]])
    worlds.assert_exact()
    assert worlds.forgot.inventory().members() == worlds.never_knew.inventory().members()
    assert worlds.forgot.audit(replay=3).ok
    worlds.close()


def test_a_choice_by_private_records_is_caught(text_model, public, tmp_path, monkeypatch):
    table = tiny.text_table()

    def private(self):
        present = table[~table.id.isin(["r1", "r4"])] if "never-knew" in str(self.path) else table
        return ingest(present, recipe_from(recipe_with(text_model, public))).rows.select(["text", "label"])

    monkeypatch.setattr(Public, "rows", property(private))
    worlds = make_worlds(tmp_path, recipe_with(text_model, public), table, [["r1"], ["r4"]])
    assert worlds.differing_artifacts()
    worlds.close()


def test_a_store_that_refuses_a_score_chooses_no_other_order(run, monkeypatch):
    """Scores are read once: a refusal must not count for good."""
    expected, read = run.predict(["w1 w2"]), Artifacts._read

    def refuse(_store, name):
        raise s3t.StorageError(f"{name}: 503")

    with s3t.Run.open(run.path) as other:
        monkeypatch.setattr(Artifacts, "_read", refuse)
        with pytest.raises(s3t.StorageError, match="503"):
            other.predict(["w1 w2"])
        monkeypatch.setattr(Artifacts, "_read", read)
        assert other.predict(["w1 w2"]).members == expected.members


def test_a_store_that_refuses_a_score_refuses_no_deletion(run, monkeypatch):
    with s3t.Run.open(run.path) as other:
        with monkeypatch.context() as patch:
            patch.setattr(Artifacts, "manifest", lambda *_: (_ for _ in ()).throw(s3t.StorageError("503")))
            assert other.delete(records=["r0"], repair=False).state == "erased"
        assert other.predict(["w1 w2"]).predicted


def test_a_score_that_the_public_records_do_not_bear_out_is_found_by_a_replay(run):
    stage, key = next(iter(sorted(run.inventory().alive.items())))
    manifest = roles(run).store.manifest(stage.shard, key)
    path = run.path / "artifacts" / blobs_of(stage.shard, key)[1]
    path.write_bytes(manifest.model_copy(update={"validation": 2.0}).to_bytes())
    found = run.audit(replay=len(run.inventory().alive)).mismatches
    assert [row["prefix"] for row in found if "not as good" in row["problem"]] == [list(stage.prefix)]


def test_public_records_that_are_the_runs_are_refused_and_no_folder_is_left(text_model, public, tmp_path):
    tiny.text_table().drop(columns="id").head(2).to_csv(public, mode="a", header=False, index=False)
    with pytest.raises(s3t.DataError, match=r"lines 61, 62: 2 records are in the run's data"):
        s3t.Run.create(tmp_path / "run", recipe=recipe_with(text_model, public), data=tiny.text_table())
    assert not (tmp_path / "run").exists()


def test_another_public_file_in_its_place_is_noticed(run):
    run.delete(records=["r3"])
    (run.path / "public.parquet").write_bytes(b"")
    with s3t.Run.open(run.path) as again, pytest.raises(s3t.IntegrityError, match="public records"):
        again.repair()


@pytest.mark.parametrize(
    ("prediction", "changes", "message"),
    [
        ({"select": "validation"}, {}, "needs a file of public records"),
        ({"validation": "a.csv"}, {}, "it has no effect"),
        ({"select": "validation", "validation": "a.csv"}, {"labels": "infer"}, "labels: declare them"),
        ({"select": "validation", "validation": "a.csv", "ensemble": "sequences"}, {}, "nothing to choose from"),
    ],
)
def test_what_does_not_go_together_is_refused(prediction, changes, message, text_model):
    with pytest.raises(s3t.RecipeError, match=message):
        recipe_from(tiny.recipe(text_model, prediction=prediction) | changes)


def test_answers_may_keep_their_probabilities_to_themselves(text_model, tmp_path):
    recipe = tiny.recipe(text_model, prediction={"answers": "labels"}, training={"epochs": 0})
    with trained_run(tmp_path / "run", recipe, tiny.text_table()) as run:
        answer = run.predict(["w1 w30"])
        assert answer.probabilities is None
        assert set(answer.rows()[0]) == {"row", "label", "generation"}
        assert "probabilities" not in str(answer.to_json())
