"""A deletion that hits an export says so, and is not erased before the export is withdrawn."""

import json
import shutil
import sys

import pytest
from sqlalchemy import delete

import s3t
from s3t.deletion import protocol
from s3t.ledger import schema
from s3t.run import exporting
from s3t_server.page.board import Board
from testing import tiny
from testing.roles import roles


def records_in(run, shard):
    """Records of a shard, of its first slice first."""
    located = run.locate(records=tiny.text_table().id.tolist())
    found = [(place, each.name) for each in located if each.present for place in each.places if place.shard == shard]
    return [name for _, name in sorted(found)]


def exported(run, folder, **options):
    return run.export(folder, **options).exports


def names_of(exports):
    return [export.name for export in exports]


@pytest.fixture
def impatient(monkeypatch):
    """A deletion does not wait for the exporter that it has overtaken: that runs in the thread that deletes."""
    monkeypatch.setattr(protocol, "PATIENCE_SECONDS", 0.2)


def waits(run):
    """Generations that are not erased."""
    return [entry.generation for entry in run.log() if entry.state != "erased"]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "adapters"


def test_a_deletion_lists_the_exports_that_it_hits_and_waits_for_them(trained, out):
    """Files that s3t wrote are removed at once. Neither an opening nor `erase` ends the waiting."""
    hit, spared = exported(trained, out)
    asked = records_in(trained, 0)[:1]
    assert names_of(trained.delete(records=asked, dry_run=True).to_withdraw) == [hit.name]
    assert trained.status().to_withdraw == ()
    assert hit.path.is_dir()
    report = trained.delete(records=asked)
    assert names_of(report.to_withdraw) == [hit.name]
    assert report.state == "effective"
    assert report.to_json()["to_withdraw"][0]["path"] == str(hit.path)
    assert "1 export to withdraw" in repr(report)
    (entry,) = report.log
    assert entry.to_withdraw == (hit.name,)
    assert [path.name for path in out.iterdir()] == [spared.name]
    with s3t.Run.open(trained.path) as again:
        assert names_of(again.status().to_withdraw) == names_of(again.erase().to_withdraw) == [hit.name]
        assert waits(again) == [1]
    status = trained.withdraw(hit.name)
    assert status.unfinished == status.to_withdraw == ()
    assert trained.log()[-1].state == "erased"
    assert names_of(status.exports) == [spared.name]


def test_a_copy_that_was_left_and_a_file_that_was_changed_keep_the_export_from_being_withdrawn(trained, out):
    (hit,) = exported(trained, out, shard=0)
    tensors, copy = hit.path / "adapter_model.safetensors", out / "other" / "folder" / "copy"
    copy.parent.mkdir(parents=True)
    shutil.copy(tensors, copy)  # is found by its hash
    tensors.write_bytes(tensors.read_bytes() + b"more")
    trained.delete(records=records_in(trained, 0)[:1])
    assert [path.name for path in hit.path.iterdir()] == [tensors.name]
    assert any(f"{tensors} was changed, and stays" in warning for warning in trained.status().warnings)
    for left, remove in ((hit.path, lambda: shutil.rmtree(hit.path)), (copy, copy.unlink)):
        with pytest.raises(s3t.InputError, match=f"{left} is still there"):
            trained.withdraw(hit.name)
        assert waits(trained) == [1]
        remove()
    trained.withdraw(hit.name)
    assert waits(trained) == []


def test_an_export_is_hit_whether_or_not_its_stages_are_alive_still(trained, out):
    """The artifact was lost, and the ledger has no stage of it any more; the export was trained on it all the same."""
    (hit,) = exported(trained, out, shard=0)
    ledger = roles(trained).ledger
    with ledger.writing() as transaction:
        stages = transaction.snapshot().stages
        transaction.forget_stages({stage: key for stage, key in stages.items() if stage.shard == 0})
    report = trained.delete(records=records_in(trained, 0)[:1])
    assert names_of(report.to_withdraw) == [hit.name]


@pytest.mark.integration
def test_every_deletion_of_an_export_waits_for_it_and_no_other_does(trained, out):
    hit, _ = exported(trained, out)
    mine, others = records_in(trained, 0), records_in(trained, 1)
    trained.delete(records=mine[:1])
    (second,) = exported(trained, out, shard=0)
    trained.repair()
    report = trained.delete(records=mine[-1:])
    assert names_of(report.to_withdraw) == [hit.name, second.name]
    assert set(waits(trained)) == {1, 2}
    before = Board(trained).look().changes
    trained.withdraw(second.name)
    assert set(waits(trained)) == {1, 2}
    assert Board(trained).look().changes > before  # the page shows one export less
    trained.withdraw(hit.name)
    assert waits(trained) == []
    assert trained.delete(records=others[:1]).state == "effective"  # its own export
    assert waits(trained) == [3]


def test_an_export_of_after_a_deletion_is_not_hit_by_it(trained, out):
    (old,) = exported(trained, out, shard=0)
    trained.delete(records=records_in(trained, 0)[:1])
    (new,) = exported(trained, out, shard=0)
    assert new.name != old.name
    assert names_of(trained.status().to_withdraw) == [old.name]
    trained.withdraw(old.name)
    assert names_of(trained.status().exports) == [new.name]


def test_an_export_that_no_deletion_has_hit_may_be_withdrawn_too(trained, out):
    """Also twice; but no export of a name that there is not."""
    (export,) = exported(trained, out, shard=0)
    report = trained.delete(records=records_in(trained, 1)[:1])
    assert (report.state, report.to_withdraw) == ("erased", ())
    with pytest.raises(s3t.InputError, match="is still there"):
        trained.withdraw(export.name)
    shutil.rmtree(export.path)
    trained.withdraw(export.name)
    trained.withdraw(export.name)
    with pytest.raises(s3t.InputError, match="has made no export 'shard-000'"):
        trained.withdraw("shard-000")
    assert trained.delete(records=records_in(trained, 0)[:1]).state == "erased"


def test_the_same_content_is_one_export_and_withdrawn_at_all_its_places(trained, out, tmp_path):
    (one,) = exported(trained, out, shard=0)
    before = {path.name: path.stat().st_mtime_ns for path in one.path.iterdir()}
    (two,) = exported(trained, out, shard=0)
    assert (one.name, one.new, two.new) == (two.name, True, False)
    assert {path.name: path.stat().st_mtime_ns for path in two.path.iterdir()} == before
    assert [path.name for path in out.iterdir()] == names_of(trained.status().exports) == [one.name]
    (second,) = exported(trained, tmp_path / "second", shard=0)
    assert second.name == one.name
    shutil.copy(second.path / "adapter_model.safetensors", tmp_path / "second" / "left")
    trained.delete(records=records_in(trained, 0)[:1])
    with pytest.raises(s3t.InputError, match="left is still there"):
        trained.withdraw(one.name)
    (tmp_path / "second" / "left").unlink()
    assert trained.withdraw(one.name).to_withdraw == ()


def test_something_else_of_that_name_is_refused_and_left_alone(trained, out, tmp_path):
    """An export with a changed file, or of another run."""
    (export,) = exported(trained, out, shard=0)
    config = export.path / "adapter_config.json"
    config.write_text("{}")
    with pytest.raises(s3t.InputError, match="holds something else than the export of that name"):
        exported(trained, out, shard=0)
    assert config.read_text() == "{}"
    assert [path.name for path in out.iterdir()] == [export.name]
    with s3t.Run.clone(trained.path, tmp_path / "clone") as clone:
        with pytest.raises(s3t.InputError, match="holds something else than the export of that name"):
            exported(clone, out, shard=0)
        assert clone.status().exports == ()
    assert config.read_text() == "{}"


def test_a_clone_and_an_adopted_copy_have_no_exports_and_remove_no_files(trained, out, tmp_path):
    (export,) = exported(trained, out, shard=0)
    names = records_in(trained, 0)
    trained.close()
    shutil.copytree(trained.path, tmp_path / "copy")
    with s3t.Run.clone(trained.path, tmp_path / "clone") as clone, s3t.Run.adopt(tmp_path / "copy") as copy:
        for other in (clone, copy):
            assert other.delete(records=names[:1]).state == "erased"
    assert export.path.is_dir()
    with s3t.Run.open(trained.path) as run:
        assert names_of(run.delete(records=names[:1]).to_withdraw) == [export.name]


def with_deletion(function, run, *, after=False):
    """The function, with a deletion by another process just before or after its first call, of which it is told."""
    reports = []

    def delete():
        with s3t.Run.open(run.path) as other:
            reports.append(other.delete(records=records_in(other, 0)[:1]))

    def call(*arguments, **options):
        if not after and not reports:
            delete()
        result = function(*arguments, **options)
        if not reports:
            delete()
        return result

    return call, reports


MOMENTS = {
    "while it is read": ("peft_adapter", False),
    "while it is written": ("folder_name", False),
    "before it gets its place": ("publish", False),
    "after it got its place": ("publish", True),
}


@pytest.mark.parametrize(("function", "after"), MOMENTS.values(), ids=MOMENTS)
def test_an_export_that_a_deletion_overtakes_is_made_again_and_nothing_is_left_of_the_first(
    trained, out, monkeypatch, impatient, function, after
):
    (before,) = exported(trained, out.with_name("before"), shard=0)
    call, reports = with_deletion(getattr(exporting, function), trained, after=after)
    monkeypatch.setattr(exporting, function, call)
    (made,) = exported(trained, out, shard=0)
    assert len(reports) == 1
    assert made.name != before.name
    assert [path.name for path in out.iterdir()] == [made.name]
    assert names_of(trained.status().to_withdraw) == [before.name]
    trained.withdraw(before.name)
    assert waits(trained) == []
    assert names_of(trained.status().exports) == [made.name]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("function", ["files_in", "publish", "_committed"])
def test_what_a_killed_process_left_is_known(trained, out, monkeypatch, function):
    """It ends before its export has a name, before it has its place, or after that."""

    def kill(*_arguments, **_options):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(exporting.Exporter, "_discard", lambda *_arguments: None)
        where = exporting.Exporter if function == "_committed" else exporting
        patch.setattr(where, function, kill)
        with pytest.raises(Killed):
            exported(trained, out, shard=0)
    (left,) = out.iterdir()
    assert left.name.startswith("shard-000" if function == "_committed" else ".s3t-export-")
    record = records_in(trained, 0)[0]
    with s3t.Run.open(trained.path) as run:  # it sweeps
        assert [path.name for path in out.iterdir()] == ([left.name] if function == "_committed" else [])
        report = run.delete(records=[record])
        if function == "_committed":  # a server may have found it
            assert names_of(report.to_withdraw) == [left.name]
            assert not left.exists()
            run.withdraw(left.name)
        assert waits(run) == []
        assert run.status().exports == ()


def test_a_process_that_still_writes_is_waited_for(trained, out, monkeypatch, impatient):
    """A deletion leaves its files alone, and is erased when it has ended."""
    files = []
    write, reports = with_deletion(exporting.Exporter._write, trained, after=True)

    def looking(self, part, *arguments):
        write(self, part, *arguments)
        if not files:
            files.extend(part.iterdir())
            with pytest.raises(s3t.InputError, match="is being written by another process"):
                trained.withdraw(reports[0].to_withdraw[0].name)

    monkeypatch.setattr(exporting.Exporter, "_write", looking)
    (made,) = exported(trained, out, shard=0)
    assert len(files) == 4
    assert reports[0].state == "accepted"
    assert waits(trained) == []
    assert [path.name for path in out.iterdir()] == [made.name]


def test_a_ledger_that_is_put_back_learns_of_later_exports(trained, out, tmp_path):
    """No deletion lies between, so nothing else tells that it is older."""
    trained.close()
    shutil.copytree(trained.path, tmp_path / "backup")
    with s3t.Run.open(trained.path) as run:
        gone, kept = exported(run, out)
        shutil.rmtree(gone.path)
        run.withdraw(gone.name)
    for path in trained.path.glob("ledger.sqlite*"):
        path.unlink()
    shutil.copy2(tmp_path / "backup" / "ledger.sqlite", trained.path)
    with s3t.Run.open(trained.path) as run:
        assert names_of(run.status().exports) == [kept.name]
        assert names_of(run.delete(records=records_in(run, 1)[:1]).to_withdraw) == [kept.name]


def test_what_is_about_to_get_its_place_is_remembered_outside_of_the_run(trained, out, state, monkeypatch):
    publish, seen = exporting.publish, []

    def look(part, final, files):
        seen.append(final.name in "".join(path.read_text() for path in state.glob("*.exports")))
        return publish(part, final, files)

    monkeypatch.setattr(exporting, "publish", look)
    exported(trained, out, shard=0)
    assert seen == [True]


def test_a_reconciled_run_asks_for_exports_of_what_was_deleted_since_and_for_no_others(trained, out, tmp_path):
    record = records_in(trained, 0)[0]
    trained.close()
    shutil.copytree(trained.path, tmp_path / "backup")
    with s3t.Run.open(trained.path) as run:
        hit, spared = exported(run, out)
        run.delete(records=[record])
        run.repair()
        (after,) = exported(run, out, shard=0)
    shutil.rmtree(trained.path)
    tiny.copy_run(tmp_path / "backup", trained.path)
    s3t.Run.reconcile(trained.path)
    with s3t.Run.open(trained.path) as run:
        status = run.status()
        assert sorted(names_of(status.exports)) == sorted([hit.name, spared.name, after.name])
        assert names_of(status.to_withdraw) == [hit.name]
        assert len(status.unfinished) == 1
        run.withdraw(hit.name)
        assert waits(run) == []


def test_the_state_folder_learns_of_exports_that_only_the_ledger_knows(trained, out, state):
    (export,) = exported(trained, out, shard=0)
    (memory,) = state.glob("*.exports")
    memory.write_bytes(memory.read_bytes()[:40])  # torn
    with s3t.Run.open(trained.path):
        pass
    assert export.name in memory.read_text()


def test_an_export_whose_row_of_the_deletion_is_lost_is_asked_for_all_the_same(trained, out):
    """A row that is gone has no check; but the export was made of an older version of its slice."""
    hit, _ = exported(trained, out)
    trained.delete(records=records_in(trained, 0)[:1])
    with roles(trained).ledger.writing() as transaction:
        transaction.rows.connection.execute(delete(schema.withdrawals))
    with s3t.Run.open(trained.path) as run:
        assert names_of(run.status().to_withdraw) == [hit.name]


def test_a_run_whose_secret_is_destroyed_makes_no_export_and_withdraws_old_ones(trained, out):
    (hit,) = exported(trained, out, shard=0)
    trained.delete(records=records_in(trained, 0)[:1])
    trained.destroy_key()
    with s3t.Run.open(trained.path) as run:
        with pytest.raises(s3t.KeyDestroyedError):
            exported(run, out, shard=1)
        assert run.withdraw(hit.name).to_withdraw == ()
        assert waits(run) == []


def test_a_copy_of_a_run_s_folder_exports_nothing(trained, out, tmp_path):
    trained.close()
    shutil.copytree(trained.path, tmp_path / "copy")
    with s3t.Run.open(tmp_path / "copy") as copy, pytest.raises(s3t.MovedError):
        exported(copy, out, shard=0)
    assert not out.exists()


@pytest.fixture
def hooked(trained_once, tmp_path):
    """Opens a run with a command to be run for each export that is hit."""

    def hook(*command):
        path = tiny.copy_run(trained_once, tmp_path / "run")
        tiny.change_recipe(path, deletion={"repair": "manual", "export_hook": [sys.executable, "-c", *command]})
        return s3t.Run.open(path)

    return hook


UNLOAD = (
    "import os, sys; open(sys.argv[1], 'a').write(' '.join(sys.argv[2:]) + str('S3T_SECRET' in os.environ) + '\\n')"
)


def test_a_command_that_unloads_an_export_withdraws_it(hooked, tmp_path, out, monkeypatch):
    monkeypatch.setenv("S3T_SECRET", tiny.SALT)
    with hooked(UNLOAD, str(tmp_path / "calls"), "{name}", "at {path}") as run:
        (export,) = exported(run, out, shard=0)
        report = run.delete(records=records_in(run, 0)[:1])
        assert (report.state, report.to_withdraw) == ("erased", ())
        assert run.status().exports == ()
    assert (tmp_path / "calls").read_text() == f"{export.name} at {export.path}False\n"


def test_a_command_that_fails_leaves_the_deletion_waiting_and_is_run_again_by_erase_alone(hooked, tmp_path, out):
    program = (
        "import pathlib, sys; calls = pathlib.Path(sys.argv[1]); "
        "calls.write_text(calls.read_text() + 'x' if calls.exists() else 'x'); "
        "sys.exit(0 if len(calls.read_text()) > 1 else 3)"
    )
    calls = tmp_path / "calls"
    with hooked(program, str(calls), "{name}") as run:
        (export,) = exported(run, out, shard=0)
        report = run.delete(records=records_in(run, 0)[:1])
        assert report.state == "effective"
        assert names_of(report.to_withdraw) == [export.name]
        told = f"{export.name} is still to be withdrawn: {sys.executable} ended with 3"
        assert told in " ".join(run.status().warnings)
        run.repair()
        run.predict(["w1"])
        assert calls.read_text() == "x"
        status = run.erase()
        assert calls.read_text() == "xx"
        assert status.to_withdraw == ()
        assert status.warnings == run.status().warnings
        assert waits(run) == []


@pytest.mark.integration
def test_a_command_that_says_done_while_a_copy_is_there_is_not_believed(hooked, out):
    with hooked("pass", "{path}") as run:
        (export,) = exported(run, out, shard=0)
        shutil.copy(export.path / "adapter_model.safetensors", out / "kept.safetensors")
        report = run.delete(records=records_in(run, 0)[:1])
        assert names_of(report.to_withdraw) == [export.name]
        assert any("the command ended well, but" in warning for warning in run.status().warnings)
        (out / "kept.safetensors").unlink()
        assert run.erase().to_withdraw == ()


@pytest.mark.integration
def test_the_same_on_postgres(text_model, tmp_path, out, postgres):
    recipe = tiny.recipe(text_model, training={"epochs": 1}, ledger=postgres.create_database("exports"))
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
        test_a_deletion_lists_the_exports_that_it_hits_and_waits_for_them(run, out)
        shutil.rmtree(next(out.iterdir()))
        with s3t.Run.clone(run.path, tmp_path / "clone") as clone:
            assert clone.status().exports == ()


def test_nothing_of_a_record_is_beside_the_tensors(trained, out):
    (export,) = exported(trained, out, shard=0)
    said = json.loads((export.path / "s3t.json").read_text())
    names = "format run shard prefix merged_with keys merged task base_model base_digest revision labels outputs "
    assert set(said) == {*(names + "pad_token_id quantization auto_class").split()}
    assert all(len(key) == 64 for key in said["keys"])
    text = "".join(path.read_text() for path in export.path.iterdir() if path.suffix != ".safetensors")
    table = tiny.text_table()
    assert not any(value in text for value in table.text if len(value.split()) > 1)
    assert not any(f'"{name}"' in text for name in table.id)
