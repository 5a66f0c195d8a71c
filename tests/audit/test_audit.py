"""The audit finds what is wrong and says where."""

import json
import sqlite3
import threading
import time
from contextlib import closing
from types import SimpleNamespace
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

import s3t
from s3t.core import Stage
from s3t.ledger import schema
from s3t.run import auditing, workshop
from testing import tiny
from testing.roles import roles
from tests.deletion.runs import patient_copy
from tests.run.worlds import trained_run
from tests.slice_files import slice_path


def problems(run, **options):
    return " | ".join(mismatch["problem"] for mismatch in run.audit(**options).mismatches)


def test_a_healthy_run_passes_and_says_what_was_looked_at(trained):
    report = trained.audit(replay=2)
    assert report.ok
    assert report.checked == 18
    assert len(set(report.replayed)) == 2
    assert report.to_json()["mismatches"] == []


def test_an_untrained_run_has_nothing_to_check(text_model, tmp_path):
    with s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=tiny.text_table()) as run:
        found = run.audit(replay=3).to_json()
    warnings = ["no stage is alive, so none was checked"]
    assert found == {"ok": True, "generation": 0, "checked": 0, "replayed": [], "mismatches": [], "warnings": warnings}


def test_all_that_is_damaged_is_told_at_once(trained):
    """Slices in shard 0, a row of a record and what stages have stored in shard 1."""
    one, other, third = sorted(trained.path.glob("slices/shard-000/*.parquet"))
    one.write_bytes(other.read_bytes())
    other.unlink()
    third.write_bytes(third.read_bytes().replace(b"subject", b"rubject"))
    with roles(trained).ledger.writing() as transaction:
        of_shard = schema.records.select().where(schema.records.c.shard == 1)
        row = transaction.rows.connection.execute(of_shard).first()
        transaction.rows.connection.execute(schema.records.delete().where(schema.records.c.token == row.token))
    alive = trained.inventory().alive
    deepest = [stage for stage in alive if stage.shard == 1 and stage.depth == 3]
    tensors, *manifests = (trained.path / "artifacts" / f"shard-001/{alive[stage]}" for stage in deepest)
    tensors = tensors.with_suffix(".safetensors")
    tensors.write_bytes(tensors.read_bytes()[:-3])
    others, spaced = (manifest.with_suffix(".json") for manifest in manifests)
    content = json.loads(others.read_text())
    others.write_text(json.dumps(content | {"slice_digests": ["0" * 64, *content["slice_digests"][1:]]}))
    spaced.write_text(spaced.read_text().replace('"environment"', ' "environment"', 1))  # what decides no key
    expected = [
        ((0, 0), "not the one that the ledger knows"),
        ((0, 1), "cannot be read"),
        ((0, 2), "not the one that the ledger knows"),
        ((1, row.slice), "holds 1 records that the ledger does not know"),
        (deepest[0].prefix, "its bytes are not those"),
        (deepest[1].prefix, "its manifest is not the one"),
        (deepest[1].prefix, "trained on slices that have changed"),
        (deepest[2].prefix, "its manifest is not the one"),
    ]
    for found, (where, problem) in zip(trained.audit().mismatches, expected, strict=True):
        assert (tuple(found["prefix"]) if "prefix" in found else (found["shard"], found["slice"])) == where
        assert problem in found["problem"]
    assert trained.locate(records=["no such record"])[0].state == "unknown"


def of_nobody(path):
    """A copy of an artifact that no stage has."""
    path.with_name("0" * 64 + ".safetensors").write_bytes(path.read_bytes())


def test_what_nobody_names_is_found_and_swept_at_the_next_opening(trained):
    of_nobody(next(trained.path.glob("artifacts/**/*.safetensors")))
    path = next(trained.path.glob("slices/shard-000/*.parquet"))
    path.with_stem(f"{path.stem[:-1]}{'0' if path.stem[-1] != '0' else '1'}").write_bytes(path.read_bytes())
    stray, version = (mismatch["problem"] for mismatch in trained.audit().mismatches)
    assert "no live stage names it" in stray
    assert "and is not current" in version
    with s3t.Run.open(trained.path) as run:
        assert run.audit().ok


def test_a_missing_or_damaged_artifact_is_found_and_repaired_once_removed(trained):
    path = next(trained.path.glob("artifacts/**/*.safetensors"))
    whole = tiny.artifacts(trained.path)
    path.write_bytes(path.read_bytes()[:-3])
    assert "its bytes are not those" in problems(trained)
    path.unlink()
    path.with_suffix(".json").unlink()
    (lost,) = (stage for stage, key in trained.inventory().alive.items() if key == path.stem)
    with pytest.raises(s3t.IntegrityError, match="s3t repair"):
        trained.predict(["w1"], prefixes={lost.shard: lost.prefix})
    assert trained.repair().stages
    assert tiny.artifacts(trained.path) == whole
    assert trained.audit().ok


def test_a_ledger_that_names_another_key_is_found(trained):
    with roles(trained).ledger.writing() as transaction:
        transaction.rows.amend(schema.stages, to={"key": "0" * 64})
        transaction.rows.note_change()
    assert "its key is not the one" in problems(trained)


def test_what_was_changed_in_the_ledger_past_s3t_is_found_by_a_process_that_knows_it_otherwise(trained):
    """A bit that flipped on the disk: nothing tells that anything has changed."""
    trained.predict(["w1"])
    with closing(sqlite3.connect(trained.path / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE slices SET digest = ? WHERE shard = 0 AND slice = 0", ["0" * 64])
    assert "table `slices` has a row that changed outside of s3t" in problems(trained)


def test_which_stages_are_trained_again_cannot_be_foreseen():
    stages = {Stage(shard, order): "key" for shard in range(20) for order in [(0,), (0, 1), (1,)]}
    snapshot = SimpleNamespace(stages=stages)
    drawn = {tuple(auditing.sample(snapshot, 5, None)) for _ in range(20)}
    assert len(drawn) > 15  # of 5 million
    assert auditing.sample(snapshot, 5, 7) == auditing.sample(snapshot, 5, 7) != auditing.sample(snapshot, 5, 8)
    assert auditing.sample(snapshot, 1000, 7) == sorted(stages)  # each once


def test_a_deletion_that_is_accepted_meanwhile_is_no_mismatch(trained, monkeypatch):
    """What it leaves in the store waits for the audit; what nobody has named is found all the same."""
    of_nobody(next(trained.path.glob("artifacts/**/*.safetensors")))
    check, looks = auditing.check, []
    deleting = threading.Thread(target=trained.delete, kwargs={"records": ["r3"]})

    def delete_at_the_second(parts, snapshot, contents):
        looks.append(check(parts, snapshot, contents))
        if len(looks) == 2:
            deleting.start()
            while roles(trained).ledger.snapshot().generation == snapshot.generation:
                time.sleep(0.01)
        return looks[-1]

    monkeypatch.setattr(auditing, "check", delete_at_the_second)
    report = trained.audit()
    deleting.join()
    assert [mismatch["key"] for mismatch in report.mismatches] == ["0" * 64]
    assert len(looks) == 2
    with s3t.Run.open(trained.path) as run:
        assert run.audit().ok  # the opening has swept it away


def test_other_bytes_on_replay_name_what_differs_in_the_environment(trained, monkeypatch):
    found = workshop.environment
    monkeypatch.setattr(workshop, "stage_seed", lambda *about: 1)
    monkeypatch.setattr(workshop, "environment", lambda device, **more: found(device, **more) | {"torch": "0.0"})
    text = problems(trained, replay=1)
    assert "other bytes" in text
    assert "torch" in text


def test_a_changed_base_model_is_refused(tmp_path):
    model = tiny.make_text_model(tmp_path / "model")
    recipe = tiny.recipe(model, partition={"shards": 1, "slices": 1}, sequences={"budget": 1})
    trained_run(tmp_path / "run", recipe, tiny.text_table()).close()
    (model / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-4] + b"\0\0\0\1")
    with s3t.Run.open(tmp_path / "run") as reopened:
        with pytest.raises(s3t.IntegrityError, match="base model"):
            reopened.predict(["w1"])
        told = problems(reopened, replay=1)
        assert "base model has changed" in told
        assert "replay: the base model" in told


@pytest.fixture
def waiting(trained_once, tmp_path):
    """A trained run whose record r3 is deleted and waits in its slice's file."""
    with s3t.Run.open(patient_copy(trained_once, tmp_path / "run")) as run:
        run.delete(records=["r3"])
        yield run


def test_a_record_that_waits_to_be_erased_is_no_mismatch_nor_is_a_crash_amid_erasure(waiting):
    assert waiting.audit(replay=1).ok
    full = s3t.StorageError("No space left on device")  # when the next version is put, and not current yet
    with patch("s3t.ledger.Transaction.supersede", side_effect=full), pytest.raises(s3t.StorageError):
        waiting.erase()
    assert waiting.status().unfinished
    assert waiting.audit().ok
    assert waiting.erase().unfinished == ()
    assert waiting.audit().ok


def test_a_file_that_lacks_more_than_what_was_deleted_is_found_while_it_waits(waiting):
    [place] = waiting.locate(records=["r4"])[0].places
    waiting.delete(records=["r4"])
    path = slice_path(waiting.path / "slices", place)
    rows = pq.read_table(path)
    pq.write_table(rows.slice(2), path, use_dictionary=False, compression="none", write_statistics=False)
    assert "not the one that the ledger knows" in problems(waiting)


def test_a_run_without_its_secret_gets_no_orders_that_nobody_could_train(trained):
    trained.destroy_key()
    described = (trained.path / "run.json").read_bytes()
    with s3t.Run.open(trained.path) as run, pytest.raises(s3t.KeyDestroyedError):
        run.extend(budget=4)
    assert (trained.path / "run.json").read_bytes() == described


def test_a_line_of_the_memory_of_deletions_that_is_damaged_is_found_and_noted_again(trained, state):
    for record in ("r3", "r4", "r5"):
        trained.delete(records=[record])
    (witness,) = state.iterdir()
    first, *lines = witness.read_text().splitlines()
    witness.write_text("\n".join((first.replace("tokens", "tokenz"), *lines)) + "\n")
    assert "the memory of deletions lacks 1 names" in problems(trained)
    s3t.Run.reconcile(trained.path)
    assert "memory of deletions" not in problems(trained)


def test_a_line_of_the_memory_of_deletions_that_is_no_json_is_noted_again(trained, state):
    trained.delete(records=["r3", "r4"])
    (witness,) = state.iterdir()
    witness.write_text(witness.read_text().replace('", "', '"  "'))
    with s3t.Run.open(trained.path) as run:
        assert run.audit().ok
