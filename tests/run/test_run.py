"""The front door: train, predict, evaluate, delete, status, repair."""

import threading

import numpy as np
import pandas as pd
import pytest

import s3t
from s3t.core import Stage
from testing import tiny
from testing.roles import roles
from tests.run.worlds import SMALL, records_by_slice, trained_run


def test_learning_is_real(text_model, tmp_path):
    """The tiny model tells its two kinds of words apart; a loop that trains nothing would not."""
    table = tiny.text_table(120)[:-1]
    recipe = tiny.recipe(
        text_model, labels=["a", "b"], partition={"shards": 1}, training={"epochs": 12}, sequences={"budget": 1}
    )
    run = trained_run(tmp_path / "run", recipe, table)
    evaluation = run.evaluate(tiny.text_table(60, seed=1)[:-1])
    assert evaluation.accuracy > 0.7
    assert evaluation.metrics["matthews"] > 0.4
    assert [entry["depth"] for entry in evaluation.per_depth] == [1, 2, 3]


def test_a_second_training_has_nothing_to_do(trained):
    assert trained.train().stages == ()


def test_predictions_have_labels_probabilities_members_and_generation(trained):
    table = tiny.text_table()
    answer = trained.predict(table)
    assert answer.ids == tuple(table.id)
    assert answer.generation == 0
    assert [(member.shard, member.prefix) for member in answer.members] == [(0, (0, 1, 2)), (1, (0, 1, 2))]
    assert answer.probabilities.shape == (24, 3)
    np.testing.assert_allclose(answer.probabilities.sum(axis=1), 1.0)
    assert set(answer.predicted) <= {"a", "b", "c"}
    row = answer.to_json()["predictions"][0]
    assert row["label"] == max(row["probabilities"], key=row["probabilities"].get)


def test_a_list_of_texts_a_list_of_rows_and_a_frame_are_answered_alike(trained):
    texts = list(tiny.text_table().text)
    as_rows = trained.predict([{"text": text} for text in texts])
    as_frame = trained.predict(pd.DataFrame({"text": texts}))
    assert np.array_equal(trained.predict(texts).logits, as_rows.logits)
    assert np.array_equal(as_frame.logits, as_rows.logits)


def test_no_inputs_get_no_answers(trained):
    answer = trained.predict(pd.DataFrame({"text": pd.Series([], dtype=str)}))
    assert answer.predicted == ()
    assert answer.to_json()["predictions"] == []


def test_answers_and_label_set_have_names_that_nobody_confuses(trained: s3t.Run) -> None:
    answer = trained.predict(["w1", "w30"])
    assert len(answer.predicted) == 2
    assert answer.classes == trained.labels == ("a", "b", "c")
    assert not {"label", "labels"} & set(dir(answer))


def test_prediction_after_deletion_uses_the_deepest_surviving_prefix_and_its_own_head(trained):
    report = trained.delete(records=["r3"])
    place = report.slices[0]
    serving = trained.inventory().serving(place.shard)
    assert place.slice not in serving.prefix
    assert serving.depth == 2
    answer = trained.predict(["w1 w30"])
    assert answer.generation == 1
    assert answer.members[place.shard].prefix == serving.prefix
    shallow = trained.predict(["w1 w30"], prefixes={place.shard: serving.prefix[:1]})
    assert not np.array_equal(shallow.logits[0], answer.logits[place.shard])


def test_a_prefix_that_is_not_alive_is_refused(trained):
    place = trained.delete(records=["r3"]).slices[0]
    with pytest.raises(s3t.InputError, match="not alive"):
        trained.predict(["w1"], prefixes={place.shard: (place.slice,)})


@pytest.mark.integration
def test_a_dead_shard_leaves_the_ensemble_and_a_dead_system_says_so(trained, text_model):
    places = records_by_slice(tiny.recipe(text_model), tiny.text_table())
    trained.delete(records=[records[0] for (shard, _), records in places.items() if shard == 0])
    assert trained.status().depths == (0, 3)
    assert [member.shard for member in trained.predict(["w1"]).members] == [1]
    trained.delete(records=[records[0] for (shard, _), records in places.items() if shard == 1])
    assert trained.status().to_json()["shards"][0]["serving"] is None
    for use in (lambda: trained.predict(["w1"]), lambda: trained.evaluate(tiny.text_table())):
        with pytest.raises(s3t.NoLiveShardError, match="s3t repair"):
            use()
    trained.repair()
    assert trained.status().depths == (3, 3)


@pytest.mark.integration
def test_a_live_prefix_without_a_record_does_not_answer(text_model, tmp_path):
    recipe = tiny.recipe(text_model, sequences={"budget": 1})
    table = tiny.text_table()
    places = records_by_slice(recipe, table)
    run = s3t.Run.create(tmp_path / "run", recipe=recipe, data=table)
    gone = [record for (shard, _), records in places.items() if shard == 0 for record in records]
    run.delete(records=gone)
    run.train()
    assert run.inventory().depth(0, (0, 1, 2)) == 3
    assert run.inventory().serving(0) is None
    assert run.inventory().serving(1) == Stage(1, (0, 1, 2))
    assert [member.shard for member in run.predict(["w1"]).members] == [1]
    run.delete(records=[record for record in table.id if record not in gone])
    run.repair()
    with pytest.raises(s3t.NoLiveShardError, match="holds no records"):
        run.predict(["w1"])


@pytest.mark.integration
def test_an_empty_slice_is_a_warning_and_its_stage_is_stored_like_any_other(text_model, tmp_path):
    recipe = tiny.recipe(text_model, partition={"shards": 1, "slices": 3})
    table = tiny.text_table(4)
    places = records_by_slice(recipe, table)
    keep = [record for place, records in places.items() if place != (0, 1) for record in records]
    run = s3t.Run.create(tmp_path / "run", recipe=recipe, data=table[table.id.isin(keep)])
    assert any("hold no record" in warning for warning in run.status().advice)
    run.train()
    assert run.status().missing == 0
    assert run.audit(replay=9).ok


def test_deleting_again_or_an_unknown_id_changes_nothing(trained):
    trained.delete(records=["r3"])
    before, files = trained.status().to_json(), tiny.artifacts(trained.path)
    report = trained.delete(records=["r3", "nobody"], subjects=["no person"])
    assert (report.deleted, report.already, report.unknown) == (0, ("r3",), ("nobody", "no person"))
    assert report.stages_lost == 0
    assert trained.status().to_json() == before
    assert tiny.artifacts(trained.path) == files


def test_a_dry_run_says_what_would_be_lost_and_changes_nothing(trained):
    before, files = trained.status().to_json(), tiny.artifacts(trained.path)
    planned = trained.delete(records=["r3"], dry_run=True)
    assert trained.status().to_json() == before
    assert tiny.artifacts(trained.path) == files
    done = trained.delete(records=["r3"])
    assert planned.stages_lost == done.stages_lost > 0
    assert (planned.shards, planned.depths_after, planned.missing) == (done.shards, done.depths_after, done.missing)


def test_the_status_is_what_a_fresh_handle_sees(trained):
    trained.delete(records=["r3", "r4"])
    with s3t.Run.open(trained.path) as reopened:
        assert reopened.status().to_json() == trained.status().to_json()


def test_ids_may_be_given_as_numbers(text_model, tmp_path):
    table = tiny.text_table().assign(id=range(24))
    run = s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=table)
    assert run.delete(records=[3]).deleted == 1
    assert run.delete(records=["3"]).already == ("3",)


@pytest.mark.integration
@pytest.mark.parametrize("aggregation", ["logits", "probabilities", "vote"])
def test_every_aggregation_answers(aggregation, text_model, tmp_path):
    changes = {"sequences": {"budget": 1}, "training": {"epochs": 0}}
    recipe = tiny.recipe(text_model, prediction={"aggregation": aggregation}, **changes)
    run = trained_run(tmp_path / "run", recipe, tiny.text_table())
    probabilities = run.predict(["w1", "w2"]).probabilities
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)


@pytest.mark.integration
def test_a_regression_answers_with_numbers_and_is_measured_by_correlation(text_model, tmp_path):
    table = tiny.text_table(60)
    table["label"] = [text.count("w2") / 4 for text in table.text]
    recipe = tiny.recipe(text_model, task="text-regression", labels=None, **SMALL)
    run = trained_run(tmp_path / "run", recipe, table)
    answer = run.predict(["w1", "w2 w3"])
    assert all(isinstance(value, float) for value in answer.predicted)
    assert answer.probabilities is None
    assert {"pearson", "rmse", "n"} <= run.evaluate(table).to_json().keys()


def test_deletions_from_many_threads_all_count(trained):
    def delete(record):
        reports.append(trained.delete(records=[record]))

    reports: list[s3t.Deletion] = []
    threads = [threading.Thread(target=delete, args=[f"r{number}"]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(report.generation for report in reports) == list(range(1, 9))
    assert trained.status().records == 16
    assert trained.audit().ok


def test_the_salt_is_kept_apart_and_private(trained):
    assert (trained.path / "secret").read_text() == tiny.SALT
    assert (trained.path / "secret").stat().st_mode & 0o777 == 0o600
    assert trained.path.stat().st_mode & 0o777 == 0o700
    for name, content in tiny.all_files(trained.path).items():
        assert name == "secret" or tiny.SALT.encode() not in content, name
    assert tiny.SALT not in repr(trained.recipe)


def test_a_salt_that_is_not_given_is_drawn(text_model, tmp_path):
    recipe = tiny.recipe(text_model)
    del recipe["partition"]["salt"]
    salts = set()
    for name in ("one", "two"):
        s3t.Run.create(tmp_path / name, recipe=recipe, data=tiny.text_table()).close()
        salts.add((tmp_path / name / "secret").read_text())
    assert len(salts) == 2
    assert all(len(salt) == 64 for salt in salts)


def test_a_relative_model_folder_is_found_again_from_anywhere(tmp_path, monkeypatch):
    tiny.make_text_model(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    trained_run("run", tiny.recipe("model", training={"epochs": 0}, **SMALL), tiny.text_table()).close()
    monkeypatch.chdir("/")
    with s3t.Run.open(tmp_path / "run") as reopened:
        assert len(reopened.predict(["w1"]).predicted) == 1


def test_a_string_is_not_taken_for_a_list_of_letters(text_model, tmp_path):
    """delete(records="42") would otherwise delete the records 4 and 2."""
    run = s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=tiny.text_table().assign(id=range(24)))
    for request in ({"records": "12"}, {"subjects": "12"}, {"records": [""]}):
        with pytest.raises(s3t.InputError):
            run.delete(**request)
    assert run.status().generation == 0
    assert run.delete(records=[7, "7"]).deleted == 1


def test_one_text_alone_is_answered_with_a_hint(trained):
    with pytest.raises(s3t.DataError, match="in a list"):
        trained.predict("hello there")


def test_a_slice_file_changed_by_hand_is_not_blessed_by_the_next_erasure(trained):
    import pyarrow.parquet as pq

    from tests.slice_files import slice_path

    path = slice_path(trained.path / "slices", trained.delete(records=["r3"], dry_run=True).slices[0])
    rows = pq.read_table(path)
    texts = rows.set_column(rows.column_names.index("text"), "text", [["w7"] * rows.num_rows])
    pq.write_table(texts, path, store_schema=False)
    with pytest.raises(s3t.IntegrityError, match="not the one that the ledger knows"):
        trained.delete(records=["r3"])


def test_another_handle_forgets_what_it_had_in_memory(trained):
    trained.delete(records=["r5"])
    trained.repair()
    with s3t.Run.open(trained.path) as other:
        place = other.delete(records=["r3"]).slices[0]
    assert roles(trained).loaded.get().material.held  # it trained
    trained.predict(["w1"])
    assert place not in roles(trained).loaded.get().material.held
