"""A run on a file system that is mounted read-only: it answers, says what it cannot do, and never from the past."""

import pytest

import s3t
from s3t.run import answerer
from testing import tiny
from testing.roles import roles
from tests.cli.typed import document
from tests.mounts import mounted_read_only
from tests.run.meanwhile import until

TEXTS = ["w1 w2", "w30"]


def test_it_answers_and_changes_nothing(deferring, tmp_path):
    with s3t.Run.open(deferring) as writable:
        expected = writable.predict(TEXTS).to_json()
    before = tiny.all_files(deferring)
    with mounted_read_only(deferring, tmp_path / "mounted") as mounted, s3t.Run.open(mounted) as opened:
        assert opened.predict(TEXTS).to_json() == expected
        assert opened.evaluate(tiny.text_table()).n == 24
        assert opened.locate(records=["r3"])[0].present
        assert len(opened.log()) == 1
        assert any("mounted read-only" in warning for warning in opened.status().warnings)
        for change in (
            lambda: opened.delete(records=["r3"]),
            opened.train,
            opened.erase,
            opened.destroy_key,
            lambda: opened.extend(budget=4),
            lambda: s3t.Run.reconcile(mounted),
            lambda: s3t.Run.clone(mounted, tmp_path / "clone"),
        ):
            with pytest.raises(s3t.StorageError, match=r"mounted read-only; nothing was changed\. Mount it writable"):
                change()
    assert tiny.all_files(deferring) == before


def test_the_command_line_answers_and_never_says_to_free_space(deferring, tmp_path):
    tiny.text_table(4).to_csv(tmp_path / "inputs.csv", index=False)
    with mounted_read_only(deferring, tmp_path / "mounted") as mounted:
        assert len(document("predict", mounted, "--input", tmp_path / "inputs.csv")["predictions"]) == 4
        assert document("log", mounted)["log"]
        error = document("delete", mounted, "--record", "r3", status=1)["error"]
    assert error["changed"] is False
    assert "space" not in error["problems"][0]


def test_a_deletion_by_a_writer_is_honoured_by_one_that_can_only_read(deferring, tmp_path):
    """Before the writer has let go of its log, and after."""
    with mounted_read_only(deferring, tmp_path / "mounted") as mounted, s3t.Run.open(mounted) as reader:
        before = reader.predict(TEXTS)
        with s3t.Run.open(deferring) as writer:
            assert writer.delete(records=["r3"]).state == "effective"  # which waits for no reader
            expected = writer.predict(TEXTS).to_json()
            assert reader.predict(TEXTS).to_json() == expected
        assert reader.predict(TEXTS).to_json() == expected
        assert not reader.locate(records=["r3"])[0].present
        assert expected["generation"] == before.generation + 1
        alive = set(roles(reader).ledger.snapshot().stages.values())
        until(lambda: not roles(reader).loaded.get().resident.keys - alive)  # it goes, though nobody waits for it


def test_an_answer_that_a_deletion_overtakes_is_made_again(deferring, tmp_path, monkeypatch):
    predict, calls = answerer.Answerer._answer, []

    def overtaken(*arguments, **options):
        answer = predict(*arguments, **options)
        if not calls:
            calls.append(answer)
            with s3t.Run.open(deferring) as writer:
                writer.delete(records=["r3", "r4", "r5", "r6"])
        return answer

    monkeypatch.setattr("s3t.run.answerer.Answerer._answer", overtaken)
    with mounted_read_only(deferring, tmp_path / "mounted") as mounted, s3t.Run.open(mounted) as reader:
        assert reader.predict(TEXTS).generation == 1
    assert calls[0].generation == 0


def test_a_backup_on_a_read_only_mount_is_recognised(deferring, tmp_path):
    tiny.copy_run(deferring, tmp_path / "backup")
    with s3t.Run.open(deferring) as writer:
        writer.delete(records=["r3"])
    with mounted_read_only(tmp_path / "backup", tmp_path / "mounted") as mounted, pytest.raises(s3t.RestoredError):
        s3t.Run.open(mounted)
