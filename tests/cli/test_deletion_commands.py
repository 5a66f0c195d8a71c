"""The operator's commands: delete with a key, locate, log, erase, reconcile, destroy-key, status."""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import typer

import s3t
from s3t.cli import app, delete
from s3t.cli.display import remedy
from s3t.cli.options import TOKEN
from s3t.deletion import protocol
from s3t.ledger.presence import Uses
from s3t.program import set_up_streams
from s3t.records.requests import other_forms
from s3t.results.log import LogEntry
from s3t.run import deleting
from s3t_server import program as server_program
from s3t_server.tokens import Access
from testing import tiny
from testing.roles import roles
from testing.served import serving
from tests.cli.typed import document, in_slices, invoke, problems

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def patient(run):
    """The run, whose slices are rewritten within an hour."""
    tiny.change_recipe(run, deletion={"erase_within": 3600})
    return run


def text(*arguments, status=0):
    """What people read on stdout, on one line: tables and terminals break it anywhere."""
    result = invoke(*arguments)
    assert result.exit_code == status, result.stderr
    return " ".join((result.stdout if status == 0 else result.stderr).split())


# delete


def test_a_deletion_repairs_as_the_recipe_says(run):
    tiny.change_recipe(run, deletion={"repair": "eager"})
    assert document("delete", run, "--record", "r3", "--dry-run")["repair"] is None
    gone = document("delete", run, "--record", "r3")
    assert gone["repair"]["trained"] == gone["stages_lost"] > 0
    assert (gone["repair_failed"], document("status", run)["missing"]) == (None, 0)
    assert "repaired in" in text("delete", run, "--record", "r4")


def test_unknown_names_are_warned_of_on_the_last_line_however_many(run):
    names = [f"nobody-{number}" for number in range(30)]
    asked = [word for name in ("r3", *names) for word in ("--record", name)]
    last = invoke("delete", run, *asked).stdout.splitlines()[-1]
    assert last.startswith("WARNING: 30 names UNKNOWN, NOTHING WAS deleted for them: nobody-0, nobody-1, ")
    assert "nobody-9, and 20 more" in last
    assert "WARNING" not in invoke("delete", run, "--record", "r3").stdout  # gone already, which is as it should be


def test_of_an_unknown_name_it_is_told_what_the_run_holds_in_another_form(run):
    asked = ("--record", "R3", "--subject", "r4", "--record", "c9", "--dry-run")
    hints = ["R3: the run holds record r3", "r4: the run holds record r4"]
    assert document("delete", run, *asked)["hints"] == hints
    assert invoke("delete", run, *asked).stdout.splitlines()[-2:] == [f"  {hint}" for hint in hints]
    assert other_forms("0007") == ["0007", *("7".zfill(width) for width in range(1, 13) if width != 4)]


def test_a_strict_deletion_with_an_unknown_name_exits_with_1_and_deletes_nothing(run):
    asked = ("delete", run, "--record", "r3", "--record", "c9", "--key", "ticket", "--strict")
    error = document(*asked, status=1)["error"]
    assert (error["kind"], error["unknown"]) == ("UnknownNamesError", ["c9"])
    assert "1 of 2 names are unknown to the run (c9), so nothing was changed" in error["problems"][0]
    assert text("locate", run, "--record", "r3").startswith("record r3: present")
    assert document("delete", run, "--record", "r3", "--key", "ticket", "--strict")["deleted"] == 1


def test_a_dry_run_says_the_same_in_the_conditional(run):
    assert "and erased before the command returns" in text("delete", run, "--record", "r3", "--dry-run")
    assert "effective at once" not in text("delete", run, "--record", "nobody", "--dry-run")
    tiny.change_recipe(run, deletion={"erase_within": 3600})
    told = text("delete", run, "--record", "r3", "--dry-run")
    assert told.startswith("1 record would be deleted 6 stages would be lost, which s3t repair would have to train")
    assert "depth would fall: shard" in told
    assert "it would be accepted and effective at once, and erased within 1 h" in told


def test_people_read_what_a_request_did_and_again_when_it_is_repeated_with_its_key(run):
    asked = ("delete", run, "--record", "r3", "--record", "nobody", "--key", "ticket 1")
    told, status = text(*asked), document("status", run)
    fallen = [f"shard {shard['shard']} from 3 slices to {shard['serving']['depth']}" for shard in status["shards"]]
    [changed] = [words for words in fallen if "to 3" not in words]
    lost = f"{status['missing']} stages lost, which s3t repair has to train again"
    assert told.startswith(f"1 record deleted {lost} depth falls: {changed} erased: received ")
    assert re.search(f"erased: received {TIME} UTC, accepted {TIME}, effective {TIME}, erased {TIME}", told)
    again, (_, entry) = document(*asked), document("log", run)["log"]
    assert (again["deleted"], again["repeated"], again["stages_lost"], again["already"]) == (1, True, 0, [])
    assert (again["generation"], again["log"]) == (1, [entry])
    times = [datetime.fromisoformat(entry[f"{step}_at"]) for step in ("received", "accepted", "effective", "erased")]
    assert times == sorted(times)
    repeated = "key already used; nothing repeated. The original result: 1 record deleted erased:"
    assert text(*asked).startswith(repeated)


def test_a_key_that_is_empty_or_was_used_for_other_names_is_refused_with_the_remedy(run):
    """A script gives an empty one for a variable that is not set."""
    assert problems("delete", run, "--record", "r3", "--key", "") == ["the name is empty; leave it out"]
    document("delete", run, "--record", "r3", "--key", "ticket 1")
    [problem] = problems("delete", run, "--record", "r4", "--key", "ticket 1")
    assert "other names" in problem
    assert "use a new key" in problem
    assert document("status", run)["records"] == 23


@pytest.mark.parametrize("command", ["delete", "locate"])
def test_wrong_input_is_refused_with_status_2(run, tmp_path, command):
    assert "--record ID, --subject ID or --file FILE" in problems(command, run)[0]
    pd.DataFrame({"name": ["r1"]}).to_csv(tmp_path / "names.csv", index=False)
    assert "needs a column 'record' or 'subject'" in problems(command, run, "--file", tmp_path / "names.csv")[0]
    assert "is empty" in problems(command, run, "--record", "")[0]
    assert "is not a run" in problems(command, tmp_path, "--record", "r1")[0]


def test_a_bar_is_drawn_for_a_file_of_many_names_alone(run, tmp_path, monkeypatch):
    pd.DataFrame({"record": ["r1", "r2", "r3"]}).to_csv(tmp_path / "gone.csv", index=False)
    assert invoke("delete", run, "--file", tmp_path / "gone.csv", "--dry-run").stderr == ""
    monkeypatch.setattr(protocol, "BATCH_NAMES", 2)
    drawn = invoke("delete", run, "--file", tmp_path / "gone.csv", "--json")
    assert "deleting by 3 names" in drawn.stderr
    assert json.loads(drawn.stdout)["deleted"] == 3
    assert invoke("delete", run, "--record", "r4", "--json").stderr == ""


def test_what_an_effective_deletion_waits_for_is_said_in_words():
    entry = LogEntry(generation=1, records=1, received_at=1.0, accepted_at=2.0, effective_at=3.0, erased_at=None)
    assert (
        remedy(entry, None, "RUN")
        == "to be erased now, or when no open run computes or trains with the record any more: s3t erase RUN"
    )


def test_a_deletion_that_an_open_run_has_not_let_go_of_is_accepted_and_says_why(run, monkeypatch):
    monkeypatch.setattr(protocol, "PATIENCE_SECONDS", 0.05)
    with s3t.Run.open(run) as other:
        before = roles(other).ledger.snapshot()
        with roles(other).presence.working(before, Uses(slices=before.slices)):
            told = text("delete", run, "--record", "r3")
            assert "accepted: received" in told
            assert "effective not yet, erased not yet another open run may have an answer on its way" in told
            assert "another open run may have an answer on its way that uses the record" in text("erase", run)
            assert document("locate", run, "--record", "r3")["located"][0]["state"] == "accepted"
        roles(other).presence.look()
        assert document("locate", run, "--record", "r3")["located"][0]["state"] == "erased"


# locate and log


def test_every_name_is_present_deleted_or_unknown_and_the_log_has_no_name(run, tmp_path):
    document("delete", run, "--record", "r3")
    document("delete", run, "--subject", "p1")
    log = document("log", run)["log"]
    assert [(entry["records"], entry["state"]) for entry in log] == [(0, "erased"), (1, "erased"), (2, "erased")]
    told = text("log", run)
    assert "2 deletions since" in told
    assert len(re.findall(TIME, told)) == 1 + 2 * 4
    assert not {"r3", "p1"} & set(re.findall(r"\w+", told))

    pd.DataFrame({"record": ["r0", "nobody"], "subject": ["p2", None]}).to_csv(tmp_path / "who.csv", index=False)
    asked = ("--record", "r3", "--subject", "p1", "--subject", "p3", "--file", tmp_path / "who.csv")
    by_name = {entry["name"]: entry for entry in document("locate", run, *asked)["located"]}
    assert {name: (entry["state"], entry["records"]) for name, entry in by_name.items()} == {
        "r3": ("erased", 0),
        "r0": ("present", 1),
        "nobody": ("unknown", 0),
        "p1": ("erased", 0),
        "p3": ("present", 1),  # r3 was one of its two
        "p2": ("present", 2),
    }
    assert by_name["r3"]["deleted"] == log[1]
    [[shard, index]] = by_name["r0"]["places"]
    (path,) = run.glob(f"slices/shard-{shard:03}/slice-{index:03}-*.parquet")
    assert "r0" in pd.read_parquet(path)["record"].tolist()
    told = text("locate", run, *asked)
    assert f"record r0: present, 1 row in slice {index} of shard {shard} " in told
    assert "record nobody: unknown: the run has never held it" in told
    times = f"received {TIME} UTC, accepted {TIME}, effective {TIME}, erased {TIME}"
    assert re.search(f"record r3: deleted by generation 1: {times}", told)
    assert "subject p2: present, 2 rows in slice" in told


# erase


def test_a_record_whose_slice_is_rewritten_later_is_out_of_use_and_then_erased(made, patient):
    words = pd.read_csv(made / "records.csv").text[3]
    gone = document("delete", patient, "--record", "r3", "--key", "ticket")
    assert gone["state"] == "effective"
    told = text("delete", patient, "--record", "r3", "--key", "ticket")
    assert re.search(f"effective: received {TIME} UTC, accepted {TIME}, effective {TIME}, erased not yet", told)
    assert re.search(f"to be erased by {TIME} UTC: s3t erase", told)
    received = datetime.fromisoformat(gone["log"][0]["received_at"])
    assert (datetime.fromisoformat(gone["erased_by"]) - received).total_seconds() == 3600
    assert in_slices(patient, words)
    [waiting] = document("status", patient)["unfinished"]
    assert waiting == gone["log"][0]
    assert document("locate", patient, "--record", "r3")["located"][0]["state"] == "effective"
    told = text("status", patient)
    assert "not erased yet: generation 1, 1 record, received" in told
    assert f"to be erased by {gone['erased_by'][:19].replace('T', ' ')} UTC: s3t erase" in told

    assert document("erase", patient)["unfinished"] == []
    assert not in_slices(patient, words)
    assert document("locate", patient, "--record", "r3")["located"][0]["state"] == "erased"
    assert text("erase", patient) == "every deletion is erased; nothing is left"
    assert "not erased" not in text("status", patient)


def test_erasure_that_the_disk_refuses_ends_with_status_1_and_goes_on_later(patient, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    document("delete", patient, "--record", "r3")
    with monkeypatch.context() as patch:
        patch.setattr("s3t.store.slices.Slices.put", full)
        error = document("erase", patient, status=1)["error"]
    assert error["kind"] == "StorageError"
    assert "No space left on device" in error["problems"][0]
    assert document("erase", patient)["unfinished"] == []


# reconcile


def test_a_backup_that_is_put_back_is_refused_until_it_is_reconciled(made, run, tmp_path):
    before = document("status", run)
    assert "0 records deleted again, 0 slices brought up to date, 0 stages lost" in text("reconcile", run)
    assert document("status", run) == before
    backup = shutil.copytree(run, tmp_path / "backup")
    document("delete", run, "--record", "r3")
    shutil.rmtree(run)
    backup.rename(run)
    for command in (("status",), ("predict", "--text", "w1"), ("delete", "--record", "r4"), ("train",), ("erase",)):
        error = document(command[0], run, *command[1:], status=1)["error"]
        assert error["kind"] == "RestoredError"
        assert f"s3t reconcile {run}" in error["problems"][0]
    done = document("reconcile", run)
    assert (done["records"], len(done["slices"]), done["stages_lost"]) == (1, 1, 6)
    assert not in_slices(run, pd.read_csv(made / "records.csv").text[3])
    assert document("locate", run, "--record", "r3")["located"][0]["state"] == "erased"


# destroy-key


def test_the_key_is_destroyed_with_yes_alone_and_then_the_run_answers_and_does_nothing_else(run, monkeypatch):
    [problem] = problems("destroy-key", run)
    assert "cannot be undone" in problem
    assert problem.endswith("add --yes")
    assert document("delete", run, "--record", "r3")["deleted"] == 1
    before = document("predict", run, "--text", "w1")
    assert document("destroy-key", run, "--yes") == {"destroyed": True}
    assert not (run / "secret").exists()
    assert document("predict", run, "--text", "w1") == before
    assert document("status", run)["records"] == 23
    for command in (("delete", "--record", "r4"), ("locate", "--record", "r3"), ("audit",), ("extend", "--budget", 4)):
        error = document(command[0], run, *command[1:], status=1)["error"]
        assert error["kind"] == "KeyDestroyedError"
        assert "removing the whole run" in error["problems"][0]
    assert "goes on answering, and does nothing else" in text("destroy-key", run, "--yes")
    monkeypatch.setenv("S3T_SECRET", "a secret of another run")
    assert "S3T_SECRET or S3T_SECRET_FILE still holds a secret" in text("destroy-key", run, "--yes")


# the program


def test_the_program_forbids_core_dumps_before_anything_else(monkeypatch):
    called = []
    for name in ("s3t.program.set_up_streams", "s3t.program.set_up_process", "s3t.program.exit_on_sigterm"):
        monkeypatch.setattr(name, partial(called.append, name))
    monkeypatch.setattr(app, "run", lambda *_: called.append("run"))
    monkeypatch.setattr(app.gc, "freeze", lambda: None)
    monkeypatch.setattr(app.threading, "excepthook", None)
    server_program.main()
    assert called.index("s3t.program.set_up_process") < called.index("run")


def test_names_are_read_from_stdin_one_a_line_and_so_are_in_no_list_of_processes(run):
    found = invoke("locate", run, "--record", "-", "--record", "r6", "--json", stdin="r3\r\n\nr4\nr5")
    assert [place["name"] for place in json.loads(found.stdout)["located"]] == ["r6", "r3", "r4", "r5"]
    gone = json.loads(invoke("delete", run, "--subject", "-", "--record", "r0", "--json", stdin="\ufeffp1\n").stdout)
    assert (gone["deleted"], gone["unknown"]) == (3, [])


@pytest.mark.parametrize(
    ("content", "names", "problem"),
    [
        ("r1\n", ("--record", "-", "--subject", "-"), "--record - and --subject - both read stdin"),
        ("\n\n", ("--subject", "-"), "holds no names"),
        (b"r1\n\xff\n", ("--record", "-"), "is not UTF-8 text at byte 3"),
    ],
)
def test_stdin_without_names_is_refused_and_nothing_is_deleted(content, names, problem, run):
    result = invoke("delete", run, *names, stdin=content)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert document("status", run)["generation"] == 0


# what answers nothing


ALL_BUT_ONE = list(tiny.text_table().id[:-1])
"""Names after whose deletion no shard answers."""
ASKED = [word for record in ALL_BUT_ONE for word in ("--record", record)]


def test_before_and_after_nothing_answers_any_more_everything_says_so(run):
    asked = ("delete", run, *ASKED)
    planned = document(*asked, "--dry-run")
    assert planned["depths_after"] == [0, 0]
    (warning,) = planned["warnings"]
    assert "NO SHARD WOULD ANSWER" in warning
    assert "NO SHARD WOULD ANSWER: every prediction would fail until `s3t repair`" in text(*asked, "--dry-run")
    result = invoke(*asked, "--json")
    assert (result.exit_code, "NO SHARD ANSWERS" in result.stderr) == (0, True)
    (warning,) = json.loads(result.stdout)["warnings"]
    assert warning.startswith("NO SHARD ANSWERS: every prediction fails until `s3t repair`")
    assert warning in document("status", run)["warnings"]
    assert warning in text("status", run)
    assert warning in text(*asked)  # nothing more is deleted; still nothing answers
    audited = document("audit", run)
    assert (audited["ok"], audited["warnings"][-1]) == (True, warning)
    told = text("audit", run)
    assert "nothing is wrong" not in told
    assert warning in told
    assert "s3t repair" in text("predict", run, "--text", "a text", status=1)


def test_a_shard_that_does_not_answer_is_a_warning_without_its_number(run):
    with s3t.Run.open(run) as opened:
        places = opened.locate(records=tiny.text_table().id)
    shard = [found.name for found in places if found.places[0].shard == 1][:-1]
    warning = "1 of 2 shards does not answer, until `s3t repair` has trained their stages again"
    gone = document("delete", run, *(word for record in shard for word in ("--record", record)))
    assert (gone["warnings"], gone["depths_after"][1]) == ([warning], 0)
    assert warning in document("status", run)["warnings"]
    assert warning in invoke("predict", run, "--text", "a text", "--json").stderr


def test_by_default_what_answers_nothing_is_repaired_once_the_deletion_is_done_and_a_failure_is_told(run, monkeypatch):
    tiny.change_recipe(run, deletion={})
    accepted = []

    def train(*_, **__):
        accepted.append(invoke("log", run, "--json").stdout.count('"state": "erased"'))
        raise s3t.TrainingError("diverged")

    monkeypatch.setattr(deleting, "train_missing", train)
    assert document("delete", run, "--record", "nobody")["repair"] is None
    result = invoke("delete", run, *ASKED, "--json")
    assert accepted == [2]  # init, and the deletion, before the repair
    gone = json.loads(result.stdout)
    assert (result.exit_code, gone["deleted"], gone["repair"]) == (1, 23, None)
    assert gone["repair_failed"] == "diverged"
    assert "the deletion is done; the repair failed: diverged" in result.stderr
    assert "NO SHARD ANSWERS" in result.stderr


def test_a_run_that_was_never_trained_is_not_trained_by_a_deletion_nor_warned_of(made, tmp_path):
    fresh = tmp_path / "fresh"
    document("init", fresh, "--data", made / "records.csv", "--recipe", made / "recipe.yaml")
    tiny.change_recipe(fresh, deletion={})
    gone = document("delete", fresh, "--record", "r3")
    assert (gone["repair"], gone["warnings"]) == (None, [])
    assert document("audit", fresh)["warnings"] == ["no stage is alive, so none was checked"]


def at_a_terminal(monkeypatch, answer):
    """Somebody types an answer."""
    asked = []
    monkeypatch.setattr(delete.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(delete.sys, "stderr", SimpleNamespace(isatty=lambda: True, write=len, flush=lambda: None))
    monkeypatch.setattr(delete.typer, "confirm", lambda question, err: asked.append(question) or answer)
    return asked


@pytest.mark.parametrize(
    ("records", "answer", "yes", "questions", "left"),
    [
        (ALL_BUT_ONE, False, False, 1, 24),
        (ALL_BUT_ONE, True, False, 1, 1),
        (ALL_BUT_ONE, False, True, 0, 1),
        (["r3"], False, False, 0, 23),  # a shard answers still
    ],
)
def test_at_a_terminal_the_last_answer_goes_only_after_a_question(
    run, monkeypatch, records, answer, yes, questions, left
):
    with monkeypatch.context() as patch:
        asked = at_a_terminal(patch, answer)
        with contextlib.suppress(typer.Exit):
            next(delete.delete(run, record=records, yes=yes))
    assert len(asked) == questions
    assert document("status", run)["records"] == left


@pytest.mark.parametrize(("scopes", "questions", "left"), [(["delete", "operate"], 1, 24), (["delete"], 0, 1)])
def test_at_a_terminal_the_last_answer_of_a_server_goes_only_after_a_question_if_the_token_may_know(
    run, monkeypatch, scopes, questions, left
):
    with s3t.Run.open(run) as opened:
        monkeypatch.setenv(TOKEN, Access(opened).create("app", scopes=scopes)[1])
    with serving(run, hold_records=None, hold_share=None) as client, monkeypatch.context() as patch:
        asked = at_a_terminal(patch, False)
        with contextlib.suppress(typer.Exit):
            next(delete.delete(record=ALL_BUT_ONE, url=str(client.base_url)))
    assert len(asked) == questions
    assert document("status", run)["records"] == left


# standard streams


@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", "2>/dev/full", "| true"])
def test_a_closed_or_full_stream_fails_no_deletion_that_is_done(run, streams):
    command = f"{sys.executable} -m s3t delete {run} --record r3 {'' if '|' in streams else '--json'} {streams}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert document("locate", run, "--record", "r3")["located"][0]["state"] == "erased"


def test_a_deletion_that_cannot_be_printed_is_repaired_as_the_recipe_says(run, tmp_path, monkeypatch):
    tiny.change_recipe(run, deletion={"repair": "eager"})
    told = tmp_path / "told"
    with monkeypatch.context() as patch, Path("/dev/full").open("wb") as out, told.open("wb") as err:
        patch.setattr(sys, "stdout", io.TextIOWrapper(out))
        patch.setattr(sys, "stderr", io.TextIOWrapper(err))
        set_up_streams()
        with pytest.raises(SystemExit) as ended:
            app.run(["delete", str(run), "--record", "r3"])
    assert (ended.value.code, "No space left" in told.read_text()) == (1, True)
    found = document("status", run)
    assert (found["records"], found["missing"]) == (23, 0)


def test_names_from_a_closed_stdin_are_no_names(run):
    command = f"{sys.executable} -m s3t locate {run} --record - <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, "holds no names" in done.stderr) == (2, True)
