"""The front door: train, predict, evaluate, delete, status, repair."""

import unicodedata
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq
import pytest

import s3t
from s3t.core import Stage
from testing import tiny
from testing.roles import roles
from tests.run.worlds import SMALL, records_by_slice, trained_run
from tests.slice_files import slice_path


def test_learning_is_real(text_model, tmp_path):
    """The tiny model tells its two kinds of words apart; a loop that trains nothing would not."""
    training = {"epochs": 12, "batch_size": 24, "learning_rate": 0.05}
    changes = {"labels": ["a", "b"], "partition": {"shards": 1}, "sequences": {"budget": 1}, "training": training}
    run = trained_run(tmp_path / "run", tiny.recipe(text_model, **changes), tiny.text_table(120)[:-1])
    evaluation = run.evaluate(tiny.text_table(61, seed=1)[:-1])
    assert evaluation.accuracy > 0.7
    assert evaluation.metrics["matthews"] > 0.4
    assert [entry["depth"] for entry in evaluation.per_depth] == [1, 2, 3]


def test_predictions_have_labels_probabilities_members_and_generation(trained):
    table = tiny.text_table()
    answer = trained.predict(table)
    assert answer.ids == tuple(table.id)
    assert answer.generation == 0
    assert answer.classes == trained.labels == ("a", "b", "c")
    assert not {"label", "labels"} & set(dir(answer))  # names that somebody would confuse
    assert [(member.shard, member.prefix) for member in answer.members] == [(0, (0, 1, 2)), (1, (0, 1, 2))]
    assert answer.probabilities.shape == (24, 3)
    np.testing.assert_allclose(answer.probabilities.sum(axis=1), 1.0)
    assert set(answer.predicted) <= {"a", "b", "c"}
    row = answer.to_json()["predictions"][0]
    assert row["label"] == max(row["probabilities"], key=row["probabilities"].get)


def test_prediction_after_deletion_uses_the_deepest_surviving_prefix_and_its_own_head(trained):
    place = trained.delete(records=["r3"]).slices[0]
    serving = trained.inventory().serving(place.shard)
    assert place.slice not in serving.prefix
    assert serving.depth == 2
    answer = trained.predict(["w1 w30"])
    assert answer.generation == 1
    assert answer.members[place.shard].prefix == serving.prefix
    shallow = trained.predict(["w1 w30"], prefixes={place.shard: serving.prefix[:1]})
    assert not np.array_equal(shallow.logits[0], answer.logits[place.shard])
    for prefixes in ({place.shard: (place.slice,)}, {0: ()}, {}):
        with pytest.raises(s3t.InputError):
            trained.predict(["w1"], prefixes=prefixes)


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
    with s3t.Run.open(trained.path) as reopened:
        assert reopened.status().to_json() == trained.status().to_json() != before


def test_deletions_from_many_threads_all_count(trained):
    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(lambda number: trained.delete(records=[f"r{number}"]), range(8)))
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
    s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()).close()
    assert len((tmp_path / "run" / "secret").read_text()) == 64


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
    assert run.delete(records=[7, "7"]).deleted == 1  # names may be numbers


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_name_is_found_in_whatever_form_of_unicode_it_is_asked_for(form, text_model, tmp_path):
    table, asked = tiny.text_table(subjects=6), unicodedata.normalize(form, "Zoë")
    table.loc[table.person == "p1", "person"] = "Zoë"
    table.loc[table.person == "p2", "person"] = table.loc[3, "id"] = unicodedata.normalize("NFD", "Zoë")
    recipe = tiny.recipe(text_model, columns={"subject": "person"})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        assert [found.records for found in run.locate(records=[asked], subjects=[asked])] == [1, 8]
        assert run.delete(subjects=[asked], key="Zoë").deleted == 8
        assert run.delete(subjects=["Zoë"], key=unicodedata.normalize("NFD", "Zoë")).repeated
        assert run.delete(records=[asked]).deleted == 1


def test_one_text_alone_is_answered_with_a_hint(trained):
    with pytest.raises(s3t.DataError, match="in a list"):
        trained.predict("hello there")


def test_a_slice_file_changed_by_hand_is_not_blessed_by_the_next_erasure(trained):
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
