"""Runs whose slices and artifacts are in a bucket of a server by one and by other people, behind a proxy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import unquote

import psutil
import pytest

import s3t
from s3t.ledger import Clone
from s3t.store.buckets import BucketBlobs
from testing import buckets, tiny
from testing.roles import roles
from tests.deletion.scanner import spellings

TABLE = tiny.text_table()
SMALL = {"partition": {"shards": 1}, "sequences": {"budget": 2}, "training": {"epochs": 1}}


@pytest.fixture(scope="module", params=["moto", pytest.param("ministack", marks=pytest.mark.integration)])
def server(request) -> Iterator[str]:
    with getattr(buckets, request.param)() as address:
        yield address


@pytest.fixture
def bucket(server, tmp_path, monkeypatch) -> Iterator[buckets.Bucket]:
    with buckets.bucket_at(server, f"of-{abs(hash(tmp_path))}", monkeypatch.setenv) as made:
        yield made


def created(folder, model, *, bucket=None, **changes):
    store = {} if bucket is None else {"store": bucket.url}
    return s3t.Run.create(folder, recipe=tiny.recipe(model, **SMALL, **store, **changes), data=TABLE)


def stored(run):
    """Slices and artifacts in a run's folder, by name as in a bucket."""
    files = tiny.all_files(run)
    return {name: content for name, content in files.items() if name.startswith(("slices/", "artifacts/"))}


def test_the_bytes_are_those_of_a_folder_and_nothing_of_a_deleted_record_stays(bucket, text_model, tmp_path):
    texts, answers, before = list(TABLE.text), [], {}
    for name, where in (("folder", None), ("bucket", bucket)):
        with created(tmp_path / name, text_model, bucket=where) as run:
            run.train()
            before = bucket.objects()
            run.delete(records=["r3"])
            run.repair()
            answers.append(run.predict(texts).to_json())
            assert run.audit(replay=1).ok
    assert answers[0]["predictions"] == answers[1]["predictions"]
    assert bucket.objects() == stored(tmp_path / "folder")
    assert not stored(tmp_path / "bucket")
    held = [word for word in spellings(texts[3]) if any(word in each for each in before.values())]
    assert held
    assert not [word for word in held if any(word in each for each in bucket.objects().values())]


@pytest.mark.parametrize(
    ("fault", "method", "said"),
    [
        ("overwrite", "PUT", "did not refuse to overwrite an object"),
        ("403", "PUT", "the credentials may not (AccessDenied)"),
        ("403", "POST", "could not delete an object: "),
        ("versions", "", "keeps versions of what is deleted"),
        ("profile", "", "could not take a new object: no credentials were found"),
        ("http", "", "is not encrypted; if that is meant, set AWS_ALLOW_HTTP=true"),
        ("no bucket", "", "is not there: make the bucket first"),
    ],
)
def test_a_bucket_that_cannot_hold_a_run_is_refused(fault, method, said, bucket, text_model, tmp_path, monkeypatch):
    if fault == "versions":
        switch_versions_on(bucket)
    elif fault == "profile":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setenv("AWS_PROFILE", "nobody")
    elif fault == "http":
        monkeypatch.delenv("AWS_ALLOW_HTTP")
    elif fault == "no bucket":
        bucket.client.delete_bucket(Bucket=bucket.name)
    else:
        bucket.fault = lambda what, path: fault if what == method else None
    with pytest.raises(s3t.InputError) as refused:
        created(tmp_path / "run", text_model, bucket=bucket)
    assert said in str(refused.value)
    assert buckets.CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in str(refused.value)
    assert not (tmp_path / "run").exists()
    if fault != "no bucket":
        assert all("probe" in name for name in bucket.objects())


def switch_versions_on(bucket):
    bucket.client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})


def test_nothing_is_removed_where_versions_were_switched_on_since(bucket, text_model, tmp_path):
    with created(tmp_path / "run", text_model, bucket=bucket) as run:
        run.train()
        before = bucket.objects()
        switch_versions_on(bucket)
        with pytest.raises(s3t.StorageError, match=r"keeps versions of what is deleted.*out of use already"):
            run.delete(records=["r3"])
        assert before == bucket.objects()
        versions = bucket.client.list_object_versions(Bucket=bucket.name)["Versions"]
        assert {each["VersionId"] for each in versions} == {"null"}  # of before: what was put since went by its version
        (deletion,) = run.status().unfinished
        assert (deletion.effective_at is not None, deletion.erased_at) == (True, None)


def test_opening_answering_and_deleting_list_nothing(bucket, text_model, tmp_path):
    with created(tmp_path / "run", text_model, bucket=bucket) as run:
        run.train()
    bucket.requests.clear()
    with s3t.Run.open(tmp_path / "run") as run:
        assert bucket.requests == []
        run.predict(["w1 w2"])
        run.delete(records=["r3"])
        run.erase()
    listings = [unquote(path.partition("prefix=")[2]) for method, path in bucket.requests if "list-type" in path]
    id = run.parts.description.run
    once_effective = [f"models/{id}/artifacts/shard-000/", f"models/{id}/slices/shard-000/"]
    by_the_operator = [f"models/{id}/artifacts/", f"models/{id}/slices/"]
    assert listings == once_effective + by_the_operator


@pytest.mark.integration
def test_requests_whose_answers_are_lost_change_no_byte(bucket, text_model, tmp_path):
    met = set()

    def once(method, path):
        return None if method != "PUT" or path in met or met.add(path) else "told as failed"

    with created(tmp_path / "folder", text_model) as run:
        run.train()
    with created(tmp_path / "run", text_model, bucket=bucket) as run:
        bucket.fault = once
        run.train()
    assert met
    assert bucket.objects() == stored(tmp_path / "folder")


@pytest.mark.integration
def test_a_lost_stage_is_trained_again_and_strays_are_told(bucket, text_model, tmp_path):
    with created(tmp_path / "run", text_model, bucket=bucket) as run:
        run.train()
        whole = bucket.objects()
        lost = next(name for name in whole if name.endswith(".safetensors"))
        key = f"models/{run.parts.description.run}/{lost}"
        bucket.client.delete_object(Bucket=bucket.name, Key=key)
        bucket.client.put_object(Bucket=bucket.name, Key=key.replace(".safetensors", "0.safetensors"), Body=b"1")
        assert not run.audit().ok
        run.repair()
        run.erase()
        assert run.audit().ok
    assert bucket.objects() == whole


def test_a_clone_takes_a_run_into_a_bucket_and_is_a_run_of_its_own(bucket, text_model, tmp_path):
    with created(tmp_path / "run", text_model) as run:
        run.train()
        expected = run.predict(["w1 w2"]).to_json()["predictions"]
    with s3t.Run.clone(tmp_path / "run", tmp_path / "copy", store=f"{bucket.url}/") as copy:
        assert bucket.objects() == stored(tmp_path / "run")
        assert copy.predict(["w1 w2"]).to_json()["predictions"] == expected
        assert copy.status().store == bucket.url
        with s3t.Run.clone(tmp_path / "copy", tmp_path / "third") as third:  # where the run's are
            third.delete(records=["r3"])
        assert copy.audit().ok


def as_if_killed(left):
    """Rename a folder that this process could not remove, as that of a process that is gone."""
    *name, _, number = left.name.split("-")
    dead = next(each for each in range(2**22 - 1, 2, -1) if not psutil.pid_exists(each))
    return left.rename(left.with_name("-".join([*name, str(dead), number])))


def test_a_killed_clone_into_a_bucket_that_does_not_answer_holds_up_deletions_alone(bucket, text_model, tmp_path):
    created(tmp_path / "run", text_model).close()
    asked = []

    def after_the_trial(method, path):
        asked.append(path)
        return "403" if len(asked) > 9 else None

    bucket.fault = after_the_trial
    with pytest.raises(s3t.StorageError, match="the credentials may not"):
        s3t.Run.clone(tmp_path / "run", tmp_path / "copy", store=bucket.url)
    (left,) = tmp_path.glob(".copy.init-*")
    with s3t.Run.open(tmp_path / "run") as run, roles(run).ledger.writing() as transaction:
        (note,) = transaction.rows.all(Clone)
        transaction.rows.discard([note])
        transaction.rows.add(replace(note, path=as_if_killed(left)))
    with s3t.Run.open(tmp_path / "run") as run:
        with pytest.raises(s3t.StorageError, match="AccessDenied"):
            run.delete(records=["r3"])
        assert run.status().unfinished[0].effective_at is not None
    bucket.fault = lambda method, path: None
    with s3t.Run.open(tmp_path / "run") as run:
        assert not run.status().unfinished
    assert not [*tmp_path.glob(".copy.init-*")]
    assert not [name for name in bucket.objects() if name.endswith(".parquet")]


def test_a_ledger_that_is_put_back_finds_what_it_does_not_know_of_the_shards_that_lose_records(
    bucket, text_model, tmp_path
):
    created(tmp_path / "run", text_model, bucket=bucket).close()
    before = (tmp_path / "run" / "ledger.sqlite").read_bytes()
    with s3t.Run.open(tmp_path / "run") as run:
        run.train()
    for file in tmp_path.glob("run/ledger.sqlite*"):
        file.unlink()
    (tmp_path / "run" / "ledger.sqlite").write_bytes(before)
    with s3t.Run.open(tmp_path / "run") as run:
        assert any("artifacts" in name for name in bucket.objects())
        run.delete(records=["r3"])
        assert run.log()[-1].erased_at is not None
        assert not [name for name in bucket.objects() if name.startswith("artifacts/shard")]


@pytest.mark.parametrize(("conflicts", "refused"), [(2, False), (9, True)])
def test_a_put_beside_another_request_for_the_object_is_tried_again(conflicts, refused, bucket):
    blobs, left = BucketBlobs(bucket.url), ["409"] * conflicts
    bucket.fault = lambda method, path: left.pop() if left and method == "PUT" else None
    if refused:
        with pytest.raises(s3t.StorageError, match="other requests for it are under way"):
            blobs.put("name", b"1")
    else:
        blobs.put("name", b"1")
        assert blobs.open("name").read() == b"1"


def test_a_forked_process_is_told_so(bucket, text_model, tmp_path, monkeypatch):
    created(tmp_path / "run", text_model, bucket=bucket).close()
    monkeypatch.setattr("s3t.store.buckets._used_by", {1})
    with pytest.raises(s3t.errors.ForkedError, match="forked off after its parent had used a bucket"):
        s3t.Run.open(tmp_path / "run")


def test_the_objects_of_a_killed_init_go_with_the_next(bucket, text_model, tmp_path):
    met = []

    def from_the_second_slice(method, path):
        if "slices" in path:
            met.append(path)
        return "403" if len(met) > 1 else None  # nothing can be removed any more, as where the process was killed

    bucket.fault = from_the_second_slice
    with pytest.raises(s3t.StorageError, match=r"the credentials may not .*no run was made"):
        created(tmp_path / "run", text_model, bucket=bucket)
    (left,) = tmp_path.glob(".run.init-*")
    assert len(bucket.objects()) == 1
    as_if_killed(left)
    bucket.fault = lambda method, path: None
    with created(tmp_path / "run", text_model, bucket=bucket) as run:
        pages = bucket.client.list_objects_v2(Bucket=bucket.name, Prefix="models/")
        assert {each["Key"].split("/")[1] for each in pages["Contents"]} == {run.parts.description.run}
    assert not [*tmp_path.glob(".run.init-*")]


def test_a_copied_folder_is_told_that_its_slices_are_no_copy(bucket, text_model, tmp_path):
    with created(tmp_path / "run", text_model, bucket=bucket):
        pass
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with pytest.raises(s3t.InputError, match=r"its slices are in s3://.*clone the run itself"):
        s3t.Run.adopt(tmp_path / "copy")


@pytest.mark.integration
def test_two_workers_and_a_ledger_in_postgresql_make_the_same_bytes(bucket, postgres, text_model, tmp_path):
    with created(tmp_path / "folder", text_model) as run:
        run.train()
        run.delete(records=["r3"])
        run.repair()
    url = postgres.create_database(bucket.name.replace("-", "_"))
    with created(tmp_path / "run", text_model, bucket=bucket, ledger=url) as run:
        run.train(workers=2)
        with s3t.Run.open(tmp_path / "run") as other:  # as on another host
            other.predict(["w1 w2"])
            run.delete(records=["r3"])
            assert all(entry.erased_at for entry in run.log())
            assert other.predict(["w1 w2"]).generation == 1
        run.repair(workers=2)
        assert run.audit().ok
    assert bucket.objects() == stored(tmp_path / "folder")
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {
        *("artifacts", "home", "lock", "recipe.yaml", "run.json", "secret", "tmp")
    }
