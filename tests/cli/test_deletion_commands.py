"""The operator's commands: delete with a key, locate, log, erase, reconcile, destroy-key, status."""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import s3t
from s3t.cli import app, delete
from s3t.cli.app import app_of
from s3t.cli.display import remedy
from s3t.cli.options import TOKEN
from s3t.deletion import protocol
from s3t.ledger.presence import Uses
from s3t.program import set_up_streams
from s3t.records.requests import other_forms
from s3t.results.log import LogEntry
from s3t.run import training
from s3t.run.parts import LazyWorkshop
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


@pytest.mark.integration
def test_a_deletion_tells_its_state_its_times_and_what_it_cost(run):
    gone = document("delete", run, "--record", "r3")
    assert (gone["state"], gone["repeated"], gone["erased_by"]) == ("erased", False, None)
    [entry] = gone["log"]
    names = ("received_at", "accepted_at", "effective_at", "erased_at")
    times = [datetime.fromisoformat(entry[name]) for name in names]
    assert times == sorted(times)
    assert all(time.utcoffset().total_seconds() == 0 for time in times)
    [[shard, _]] = gone["slices"]
    assert gone["depths_before"][shard] == 3
    assert gone["depths_after"] == [shown["serving"]["depth"] for shown in document("status", run)["shards"]]


@pytest.mark.parametrize(("policy", "repairs"), [("manual", False), ("on-exhaustion", False), ("eager", True)])
def test_a_deletion_repairs_as_the_recipe_says(run, policy, repairs):
    tiny.change_recipe(run, deletion={"repair": policy})
    assert document("delete", run, "--record", "r3", "--dry-run")["repair"] is None
    gone = document("delete", run, "--record", "r3")
    assert gone["stages_lost"] > 0
    assert (gone["repair"] is not None) is repairs
    assert gone["repair_failed"] is None
    missing = document("status", run)["missing"]
    assert missing == (0 if repairs else gone["stages_lost"])
    if repairs:
        assert gone["repair"]["trained"] == gone["stages_lost"]
        assert "repaired in" in text("delete", run, "--record", "r4")


def test_a_repair_that_fails_does_not_hide_the_deletion(run, monkeypatch):
    tiny.change_recipe(run, deletion={"repair": "eager"})

    def diverge(*_, **__):
        raise s3t.TrainingError("training diverged")

    monkeypatch.setattr(LazyWorkshop, "train", diverge)
    result = invoke("delete", run, "--record", "r3", "--json")
    assert result.exit_code == 1
    gone = json.loads(result.stdout)
    assert (gone["deleted"], gone["repair"]) == (1, None)
    assert gone["repair_failed"].startswith("training diverged; every stage that was trained is stored")
    assert "the deletion is done; the repair failed: training diverged" in result.stderr


def test_people_read_the_depths_that_changed_the_stages_to_repair_and_the_times(run):
    told = text("delete", run, "--record", "r3", "--record", "nobody", "--key", "ticket 1")
    status = document("status", run)
    fallen = [f"shard {shard['shard']} from 3 slices to {shard['serving']['depth']}" for shard in status["shards"]]
    [changed] = [words for words in fallen if "to 3" not in words]
    lost = f"{status['missing']} stages lost, which s3t repair has to train again"
    assert told.startswith(f"1 record deleted {lost} depth falls: {changed} erased: received ")
    assert re.search(f"erased: received {TIME} UTC, accepted {TIME}, effective {TIME}, erased {TIME}", told)


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


def test_a_dry_run_says_the_same_in_the_conditional(patient):
    told = text("delete", patient, "--record", "r3", "--dry-run")
    assert told.startswith("1 record would be deleted 6 stages would be lost, which s3t repair would have to train")
    assert "depth would fall: shard" in told
    assert "it would be accepted and effective at once, and erased within 1 h" in told
    assert document("log", patient)["log"][1:] == []


def test_without_waiting_a_dry_run_says_that_erasure_comes_before_the_return(run):
    assert "and erased before the command returns" in text("delete", run, "--record", "r3", "--dry-run")
    assert "effective at once" not in text("delete", run, "--record", "nobody", "--dry-run")


def test_a_request_that_is_made_again_with_its_key_does_nothing_and_is_told_what_it_did(run):
    first = document("delete", run, "--record", "r3", "--subject", "p1", "--key", "ticket 1")
    again = document("delete", run, "--subject", "p1", "--record", "r3", "--key", "ticket 1")
    assert (first["deleted"], first["repeated"]) == (3, False)
    assert (again["deleted"], again["repeated"], again["stages_lost"]) == (3, True, 0)
    assert (again["generation"], again["log"], again["already"]) == (1, first["log"], [])
    told = text("delete", run, "--record", "r3", "--subject", "p1", "--key", "ticket 1")
    assert told.startswith("key already used; nothing repeated. The original result: 3 records deleted erased:")
    assert len(document("log", run)["log"]) == 2


def test_a_key_that_was_used_for_other_names_is_refused_with_the_remedy(run):
    document("delete", run, "--record", "r3", "--key", "ticket 1")
    [problem] = problems("delete", run, "--record", "r4", "--key", "ticket 1")
    assert "other names" in problem
    assert "use a new key" in problem
    assert document("locate", run, "--record", "r4")["located"][0]["state"] == "present"


def test_an_empty_key_is_refused_as_an_unset_variable_in_a_script_gives_one(run):
    assert problems("delete", run, "--record", "r3", "--key", "") == ["the name is empty; leave it out"]
    assert document("status", run)["generation"] == 0


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


def test_every_name_is_present_deleted_or_unknown(run, tmp_path):
    document("delete", run, "--record", "r3", "--subject", "p1")
    pd.DataFrame({"record": ["r0", "nobody"], "subject": ["p2", None]}).to_csv(tmp_path / "who.csv", index=False)
    found = document(
        "locate", run, "--record", "r3", "--subject", "p1", "--subject", "p3", "--file", tmp_path / "who.csv"
    )
    by_name = {entry["name"]: entry for entry in found["located"]}
    assert {name: (entry["state"], entry["records"]) for name, entry in by_name.items()} == {
        "r3": ("erased", 0),
        "r0": ("present", 1),
        "nobody": ("unknown", 0),
        "p1": ("erased", 0),
        "p3": ("present", 1),  # r3 was one of its two
        "p2": ("present", 2),
    }
    assert by_name["r3"]["deleted"] == document("log", run)["log"][1]
    [[shard, index]] = by_name["r0"]["places"]
    (path,) = run.glob(f"slices/shard-{shard:03}/slice-{index:03}-*.parquet")
    assert pd.read_parquet(path)["record"].isin(["r0"]).any()
    told = text("locate", run, "--record", "r3", "--record", "r0", "--record", "nobody", "--subject", "p2")
    assert f"record r0: present, 1 row in slice {index} of shard {shard} " in told
    assert "record nobody: unknown: the run has never held it" in told
    times = f"received {TIME} UTC, accepted {TIME}, effective {TIME}, erased {TIME}"
    assert re.search(f"record r3: deleted by generation 1: {times}", told)
    assert "subject p2: present, 2 rows in slice" in told


def test_the_log_has_every_deletion_and_no_name(run):
    document("delete", run, "--record", "r3")
    document("delete", run, "--subject", "p1")
    log = document("log", run)["log"]
    assert [(entry["generation"], entry["records"], entry["state"]) for entry in log] == [
        (0, 0, "erased"),
        (1, 1, "erased"),
        (2, 2, "erased"),
    ]
    told = text("log", run)
    assert "2 deletions since" in told
    assert len(re.findall(TIME, told)) == 1 + 2 * 4
    assert not {"r3", "p1"} & set(re.findall(r"\w+", told))


# erase


def test_a_record_whose_slice_is_rewritten_later_is_out_of_use_and_then_erased(made, patient):
    words = pd.read_csv(made / "records.csv").text[3]
    gone = document("delete", patient, "--record", "r3")
    assert gone["state"] == "effective"
    received = datetime.fromisoformat(gone["log"][0]["received_at"])
    assert (datetime.fromisoformat(gone["erased_by"]) - received).total_seconds() == 3600
    assert in_slices(patient, words)
    [waiting] = document("status", patient)["unfinished"]
    assert waiting == gone["log"][0]
    assert document("locate", patient, "--record", "r3")["located"][0]["state"] == "effective"
    assert document("audit", patient)["ok"]
    told = text("status", patient)
    assert "not erased yet: generation 1, 1 record, received" in told
    assert f"to be erased by {gone['erased_by'][:19].replace('T', ' ')} UTC: s3t erase" in told

    assert document("erase", patient)["unfinished"] == []
    assert not in_slices(patient, words)
    assert document("locate", patient, "--record", "r3")["located"][0]["state"] == "erased"
    assert text("erase", patient) == "every deletion is erased; nothing is left"
    assert "not erased" not in text("status", patient)


def test_a_deletion_that_waits_says_by_when_it_has_to_be_erased(patient):
    told = text("delete", patient, "--record", "r3")
    assert re.search(f"effective: received {TIME} UTC, accepted {TIME}, effective {TIME}, erased not yet", told)
    assert re.search(f"to be erased by {TIME} UTC: s3t erase", told)


def test_what_is_overdue_is_erased_by_whatever_opens_the_run(made, patient):
    document("delete", patient, "--record", "r3")
    tiny.change_recipe(patient, deletion={"erase_within": 0})
    assert document("status", patient)["unfinished"] == []
    assert not in_slices(patient, pd.read_csv(made / "records.csv").text[3])


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
    backup = shutil.copytree(run, tmp_path / "backup")
    document("delete", run, "--record", "r3")
    shutil.rmtree(run)
    backup.rename(run)
    for command in (
        ("status",),
        ("predict", "--input", made / "records.csv"),
        ("delete", "--record", "r4"),
        ("train",),
        ("locate", "--record", "r3"),
        ("erase",),
    ):
        error = document(command[0], run, *command[1:], status=1)["error"]
        assert error["kind"] == "RestoredError"
        assert f"s3t reconcile {run}" in error["problems"][0]
    done = document("reconcile", run)
    assert (done["records"], len(done["slices"]), done["stages_lost"]) == (1, 1, 6)
    assert not in_slices(run, pd.read_csv(made / "records.csv").text[3])
    assert document("locate", run, "--record", "r3")["located"][0]["state"] == "erased"
    assert document("repair", run)["trained"] == done["stages_lost"]
    assert document("audit", run)["ok"]


def test_reconciling_is_told_in_a_sentence_and_does_no_harm_to_a_run_that_is_well(run):
    before = document("status", run)
    assert "0 records deleted again, 0 slices brought up to date, 0 stages lost" in text("reconcile", run)
    assert document("status", run) == before


# destroy-key


def test_without_yes_the_key_is_kept_and_the_command_says_what_it_would_do(run):
    [problem] = problems("destroy-key", run)
    assert "cannot be undone" in problem
    assert problem.endswith("add --yes")
    assert document("delete", run, "--record", "r3")["deleted"] == 1


def test_without_its_key_a_run_answers_and_does_nothing_else(made, run, monkeypatch):
    before = document("predict", run, "--input", made / "records.csv")
    assert document("destroy-key", run, "--yes") == {"destroyed": True}
    assert not (run / "secret").exists()
    assert document("predict", run, "--input", made / "records.csv") == before
    assert document("status", run)["records"] == 24
    for command in (("delete", "--record", "r3"), ("locate", "--record", "r3"), ("audit",), ("extend", "--budget", 4)):
        error = document(command[0], run, *command[1:], status=1)["error"]
        assert error["kind"] == "KeyDestroyedError"
        assert "removing the whole run" in error["problems"][0]
    assert "goes on answering, and does nothing else" in text("destroy-key", run, "--yes")
    monkeypatch.setenv("S3T_SECRET", "a secret of another run")
    assert "S3T_SECRET or S3T_SECRET_FILE still holds a secret" in text("destroy-key", run, "--yes")


def test_what_waits_is_erased_before_the_key_is_destroyed(made, patient):
    document("delete", patient, "--record", "r3")
    document("destroy-key", patient, "--yes")
    assert not in_slices(patient, pd.read_csv(made / "records.csv").text[3])
    assert document("log", patient)["log"][1]["state"] == "erased"


# the program


def test_a_reader_that_has_enough_is_no_failure_to_tell_of(run):
    started = subprocess.Popen(
        [sys.executable, "-m", "s3t", "locate", str(run), "--record", "r3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    started.stdout.close()
    assert started.stderr.read() == b""
    assert started.wait() == 0
    started.stderr.close()


def test_the_program_forbids_core_dumps_before_anything_else():
    lines = (
        "import resource, sys",
        "asked = []",
        "resource.setrlimit = lambda what, limits: asked.append((what, limits[0]))",
        "from s3t_server.program import main",
        "sys.argv = ['s3t', '--version']",
        "try: main()",
        "finally: assert asked == [(resource.RLIMIT_CORE, 0)], asked",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, capture_output=True)


def piped(content, *arguments):
    return CliRunner().invoke(app_of(), [*map(str, arguments), "--json"], input=content)


def test_names_are_read_from_stdin_one_a_line_and_so_are_in_no_list_of_processes(run):
    found = piped("r3\r\n\nr4\nr5", "locate", run, "--record", "-", "--record", "r6")
    assert [place["name"] for place in json.loads(found.stdout)["located"]] == ["r6", "r3", "r4", "r5"]
    gone = json.loads(piped("\ufeffp1\n", "delete", run, "--subject", "-", "--record", "r0").stdout)
    assert (gone["deleted"], gone["unknown"]) == (3, [])


@pytest.mark.parametrize(
    ("content", "names", "problem"),
    [
        ("r1\n", ("--record", "-", "--subject", "-"), "--record - and --subject - both read stdin"),
        ("", ("--record", "-"), "holds no names"),
        ("\n\n", ("--subject", "-"), "holds no names"),
        (b"r1\n\xff\n", ("--record", "-"), "is not UTF-8 text at byte 3"),
    ],
)
def test_stdin_without_names_is_refused_and_nothing_is_deleted(content, names, problem, run):
    result = piped(content, "delete", run, *names)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert document("status", run)["generation"] == 0


# what answers nothing


@pytest.fixture
def last(run):
    """The run, and names after whose deletion no shard answers."""
    with s3t.Run.open(run) as opened:
        return [record for record in tiny.text_table().id if opened.locate(records=[record])]


def test_before_and_after_nothing_answers_any_more_everything_says_so(run, last):
    asked = ("delete", run, *(word for record in last[:-1] for word in ("--record", record)))
    planned = document(*asked, "--dry-run")
    assert planned["depths_after"] == [0, 0]
    assert len(planned["warnings"]) == 1
    assert "NO SHARD WOULD ANSWER" in planned["warnings"][0]
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


def test_a_shard_that_does_not_answer_is_a_warning_without_its_number(run, last):
    with s3t.Run.open(run) as opened:
        shard = [record for record in last if opened.locate(records=[record])[0].places[0].shard == 1][:-1]
    warning = "1 of 2 shards does not answer, until `s3t repair` has trained their stages again"
    gone = document("delete", run, *(word for record in shard for word in ("--record", record)))
    assert (gone["warnings"], gone["depths_after"][1]) == ([warning], 0)
    assert warning in document("status", run)["warnings"]
    assert warning in invoke("predict", run, "--text", "a text", "--json").stderr
    document("repair", run)
    assert warning not in document("status", run)["warnings"]


def test_by_default_what_answers_nothing_is_repaired_once_the_deletion_is_done(run, last, monkeypatch):
    tiny.change_recipe(run, deletion={})
    asked = ("delete", run, *(word for record in last[:-1] for word in ("--record", record)))
    accepted = []

    def train(*_, **__):
        accepted.append(invoke("log", run, "--json").stdout.count('"state": "erased"'))
        raise s3t.TrainingError("diverged")

    with monkeypatch.context() as patch:
        patch.setattr(training, "train_missing", train)
        result = invoke(*asked)
    assert accepted == [2]  # init, and the deletion, before the repair
    assert "NO SHARD ANSWERS" in result.stdout
    assert "the deletion is done; the repair failed" in result.stderr
    document("repair", run)
    (left,) = last[-1:]
    tiny.change_recipe(run, deletion={})
    assert document("delete", run, "--record", "nobody")["repair"] is None
    assert document("status", run)["records"] == 1
    assert document("locate", run, "--record", left)["located"][0]["state"] == "present"


def test_a_run_that_was_never_trained_is_not_trained_by_a_deletion_nor_warned_of(run, made, tmp_path):
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
    ("answer", "options", "questions", "left"), [(False, (), 1, 24), (True, (), 1, 1), (False, ("--yes",), 0, 1)]
)
def test_at_a_terminal_the_last_answer_goes_only_after_a_question(
    run, last, monkeypatch, answer, options, questions, left
):
    with monkeypatch.context() as patch:
        asked = at_a_terminal(patch, answer)
        with contextlib.suppress(typer.Exit):
            next(delete.delete(run, record=last[:-1], yes="--yes" in options))
    assert len(asked) == questions
    assert document("status", run)["records"] == left


@pytest.mark.parametrize(("scopes", "questions", "left"), [(["delete", "operate"], 1, 24), (["delete"], 0, 1)])
def test_at_a_terminal_the_last_answer_of_a_server_goes_only_after_a_question_if_the_token_may_know(
    run, last, monkeypatch, scopes, questions, left
):
    with s3t.Run.open(run) as opened:
        monkeypatch.setenv(TOKEN, Access(opened).create("app", scopes=scopes)[1])
    with serving(run, hold_records=None, hold_share=None) as client, monkeypatch.context() as patch:
        asked = at_a_terminal(patch, False)
        with contextlib.suppress(typer.Exit):
            next(delete.delete(record=last[:-1], url=str(client.base_url)))
    assert len(asked) == questions
    assert document("status", run)["records"] == left


def test_at_a_terminal_nothing_is_asked_while_a_shard_answers(run, monkeypatch):
    with monkeypatch.context() as patch:
        asked = at_a_terminal(patch, False)
        next(delete.delete(run, record=["r3"]))
    assert asked == []
    assert document("status", run)["records"] == 23


# standard streams


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full", "| true"])
def test_a_closed_or_full_stream_fails_no_deletion_that_is_done(run, streams):
    command = f"{sys.executable} -m s3t delete {run} --record r3 {'' if '|' in streams else '--json'} {streams}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert document("locate", run, "--record", "r3")["located"][0]["state"] == "erased"


@pytest.mark.parametrize(("stdout", "status"), [("/dev/full", 1), ("/dev/null", 0)])
def test_a_deletion_that_cannot_be_printed_is_repaired_as_the_recipe_says(run, stdout, status, tmp_path, monkeypatch):
    """A closed stdout leads to the null device."""
    tiny.change_recipe(run, deletion={"repair": "eager"})
    told = tmp_path / "told"
    with monkeypatch.context() as patch, Path(stdout).open("wb") as out, told.open("wb") as err:
        patch.setattr(sys, "stdout", io.TextIOWrapper(out))
        patch.setattr(sys, "stderr", io.TextIOWrapper(err))
        set_up_streams()
        with pytest.raises(SystemExit) as ended:
            app.run(["delete", str(run), "--record", "r3"])
    assert (ended.value.code, "No space left" in told.read_text()) == (status, status == 1)
    found = document("status", run)
    assert (found["records"], found["missing"]) == (23, 0)


def test_names_from_a_closed_stdin_are_no_names(run):
    command = f"{sys.executable} -m s3t locate {run} --record - <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, "holds no names" in done.stderr) == (2, True)


@pytest.mark.integration
def test_lines_that_find_no_room_are_no_bug(run):
    command = f"{sys.executable} -m s3t predict {run} --text hello --jsonl >/dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "s3t: the result could not be written to stdout: No space left on device\n"
