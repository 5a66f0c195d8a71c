"""The command line: the whole loop with its JSON documents, deletions in every form, help for everything."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import typer
import yaml
from typer.testing import CliRunner

import s3t
from s3t.cli.app import app_of
from s3t_server.program import COMMANDS as PROGRAM
from testing import tiny
from tests.cli.typed import document, invoke

COMMANDS = {
    "init",
    "train",
    "add",
    "sync",
    "expire",
    "predict",
    "generate",
    "score",
    "harness",
    "evaluate",
    "delete",
    "locate",
    "log",
    "status",
    "repair",
    "extend",
    "audit",
    "serve",
    "token create",
    "token list",
    "token revoke",
    "clone",
    "export",
    "erase",
    "reconcile",
    "destroy-key",
    "ids",
    "sequences",
    "simulate",
    "plan",
    "tune",
    "compare",
    "deletions held",
    "deletions approve",
    "deletions refuse",
}


def check_status(status):
    """The shape that the issue gives."""
    assert set(status) >= {"generation", "records", "shards"}
    assert isinstance(status["generation"], int)
    assert len(status["shards"]) == 2
    for number, shard in enumerate(status["shards"]):
        assert set(shard) == {"shard", "slices", "sequences", "serving", "prototypes", "score"}
        assert shard["shard"] == number
        assert len(shard["slices"]) == 3
        assert len(shard["sequences"]) == 3
        for sequence in shard["sequences"]:
            assert set(sequence) == {"order", "depth", "name", "seen"}
            assert sorted(sequence["order"]) == [0, 1, 2]
            assert 0 <= sequence["depth"] <= 3
        if shard["serving"] is not None:
            assert shard["serving"] in shard["sequences"]
    assert status["records"] == sum(sum(shard["slices"]) for shard in status["shards"])


@pytest.mark.integration
def test_the_whole_loop_prints_the_documents_of_the_issue(made, tmp_path):
    run, data = tmp_path / "run", made / "records.csv"
    status = document("init", run, "--data", data, "--recipe", made / "recipe.yaml")
    check_status(status)
    assert (status["generation"], status["records"], status["missing"]) == (0, 24, 18)
    assert status["gaps"] == []
    assert all(shard["serving"] is None for shard in status["shards"])

    trained = document("train", run)
    assert (trained["trained"], trained["missing"], trained["depths"]) == (18, 0, [3, 3])
    assert document("train", run)["trained"] == 0
    assert [shard["serving"]["depth"] for shard in document("status", run)["shards"]] == [3, 3]

    answers = document("predict", run, "--input", data)
    assert answers["generation"] == 0
    assert [answer["id"] for answer in answers["predictions"]] == [f"r{number}" for number in range(24)]
    for answer in answers["predictions"]:
        assert set(answer) == {"id", "label", "probabilities", "generation"}
        assert list(answer["probabilities"]) == ["a", "b", "c"]
        assert sum(answer["probabilities"].values()) == pytest.approx(1)
        assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get)

    measured = document("evaluate", run, "--data", data)
    right = pd.read_csv(data).label.tolist()
    share = sum(answer["label"] == label for answer, label in zip(answers["predictions"], right, strict=True)) / 24
    assert measured["accuracy"] == pytest.approx(share)
    assert measured["n"] == 24
    assert -1 <= measured["matthews"] <= 1
    assert [entry["shard"] for entry in measured["per_shard"]] == [0, 1]
    assert [entry["depth"] for entry in measured["per_depth"]] == [1, 2, 3]
    assert measured["per_depth"][-1]["accuracy"] == measured["accuracy"]
    assert document("evaluate", run, "--data", data, "--no-depths")["per_depth"] == []

    gone = document("delete", run, "--record", "r3")
    assert set(gone) >= {"generation", "deleted", "already", "unknown", "slices", "stages_lost"}
    assert (gone["generation"], gone["deleted"], gone["already"], gone["unknown"]) == (1, 1, [], [])
    status = document("status", run)
    check_status(status)
    assert gone["shards"] == [status["shards"][gone["slices"][0][0]]]
    [[shard, lost]] = gone["slices"]
    assert gone["stages_lost"] == sum(
        3 - sequence["order"].index(lost) for sequence in status["shards"][shard]["sequences"]
    )
    assert gone["stages_lost"] == gone["missing"] == status["missing"]
    assert document("predict", run, "--input", data)["generation"] == 1

    repaired = document("repair", run)
    assert repaired["trained"] == gone["stages_lost"]
    assert repaired["missing"] == 0
    audited = document("audit", run, "--replay", 2)
    assert set(audited) >= {"ok", "checked", "replayed", "mismatches"}
    assert (audited["ok"], audited["checked"], len(audited["replayed"]), audited["mismatches"]) == (True, 18, 2, [])


def test_records_are_deleted_by_repeated_options(run):
    gone = document("delete", run, "--record", "r1", "--record", "r2")
    assert (gone["deleted"], gone["generation"]) == (2, 1)


def test_subjects_are_deleted_with_all_their_records(run):
    gone = document("delete", run, "--subject", "p1", "--subject", "p2")
    assert gone["deleted"] == 4
    assert document("delete", run, "--record", "r1", "--record", "r13")["already"] == ["r1", "r13"]


def write(frame, path):
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("columns", "deleted"),
    [
        ({"record": ["r1", "r2", "r1"]}, 2),
        ({"subject": ["p1", "p2"]}, 4),
        ({"record": ["r0", None], "subject": [None, "p1"], "reason": ["x", "y"]}, 3),
    ],
    ids=["records", "subjects", "both"],
)
def test_deletions_are_read_from_files(run, tmp_path, suffix, columns, deleted):
    path = write(pd.DataFrame(columns), tmp_path / f"gone{suffix}")
    gone = document("delete", run, "--file", path)
    assert (gone["deleted"], gone["generation"], gone["unknown"]) == (deleted, 1, [])


def test_options_and_a_file_are_one_deletion(run, tmp_path):
    path = write(pd.DataFrame({"record": ["r1"]}), tmp_path / "gone.csv")
    gone = document("delete", run, "--file", path, "--record", "r2", "--subject", "p4")
    assert (gone["deleted"], gone["generation"]) == (4, 1)


def test_a_dry_run_tells_what_would_happen_and_changes_nothing(run):
    before, status = tiny.artifacts(run), document("status", run)
    slices = {path: path.read_bytes() for path in run.glob("slices/**/*.parquet")}
    would = document("delete", run, "--record", "r3", "--dry-run")
    assert (would["dry_run"], would["deleted"], would["generation"]) == (True, 1, 1)
    assert document("status", run) == status
    assert tiny.artifacts(run) == before
    assert {path: path.read_bytes() for path in run.glob("slices/**/*.parquet")} == slices
    done = document("delete", run, "--record", "r3")
    assert (would.pop("state"), would.pop("log"), would.pop("id")) == (None, [], None)
    assert (done.pop("state"), len(done.pop("log")), done.pop("id")) == ("erased", 1, 1)
    assert done == would | {"dry_run": False}


def test_ids_that_are_gone_or_unknown_are_reported_with_status_0_and_change_nothing(run):
    document("delete", run, "--record", "r3", "--subject", "p1")
    status = document("status", run)
    again = document(
        "delete", run, "--record", "r3", "--record", "nobody", "--subject", "p1", "--subject", "x", "--record", "r1"
    )
    assert again["already"] == ["r3", "r1", "p1"]
    assert again["unknown"] == ["nobody", "x"]
    assert (again["deleted"], again["slices"], again["stages_lost"]) == (0, [], 0)
    assert document("status", run) == status


def test_a_mixed_request_deletes_what_is_there_and_reports_the_rest(run):
    document("delete", run, "--record", "r3")
    gone = document("delete", run, "--record", "r3", "--record", "r4", "--record", "nobody")
    assert (gone["deleted"], gone["already"], gone["unknown"], gone["generation"]) == (1, ["r3"], ["nobody"], 2)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_answers_are_written_to_a_file(made, tmp_path, suffix):
    output = tmp_path / f"answers{suffix}"
    printed = document("predict", made / "run", "--input", made / "records.csv")["predictions"]
    summary = document("predict", made / "run", "--input", made / "records.csv", "--output", output)
    assert (summary["output"], summary["count"]) == (str(output), 24)
    if suffix == ".jsonl":
        assert [json.loads(line) for line in output.read_text().splitlines()] == printed
    else:
        frame = pd.read_csv(output) if suffix == ".csv" else pd.read_parquet(output)
        assert list(frame.columns) == ["id", "label", "generation", "probability:a", "probability:b", "probability:c"]
        assert frame.label.tolist() == [answer["label"] for answer in printed]
        assert frame["probability:b"].tolist() == pytest.approx([answer["probabilities"]["b"] for answer in printed])
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


def test_an_audit_finds_a_flipped_byte_and_ends_with_status_1(run):
    path = sorted(run.glob("artifacts/**/*.safetensors"))[4]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    found = document("audit", run, status=1)
    assert found["ok"] is False
    assert any(path.stem in mismatch["problem"] for mismatch in found["mismatches"])
    text = invoke("audit", run)
    assert text.exit_code == 1
    assert path.stem in text.stdout.replace("\n", "")


def test_a_byte_flipped_in_a_slice_is_found_too(run):
    path = next(path for path in sorted(run.glob("slices/**/*.parquet")) if b"w1" in path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"w1", b"w2", 1))
    assert document("audit", run, status=1)["mismatches"]


def test_ids_are_printed_as_init_gives_them(made, tmp_path):
    recipe = yaml.safe_load((made / "recipe.yaml").read_text())
    del recipe["columns"]["id"]
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    ids = document("ids", made / "records.csv", "--recipe", tmp_path / "recipe.yaml")["ids"]
    assert len(set(ids)) == 24
    run = tmp_path / "run"
    document("init", run, "--data", made / "records.csv", "--recipe", tmp_path / "recipe.yaml")
    assert document("delete", run, "--record", ids[5])["deleted"] == 1


def test_inferred_labels_are_named_under_gaps(made, tmp_path):
    recipe = yaml.safe_load((made / "recipe.yaml").read_text()) | {"labels": "infer"}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    data = made / "records.csv"
    status = document("init", tmp_path / "run", "--data", data, "--recipe", tmp_path / "recipe.yaml")
    assert "labels: infer" in status["gaps"][0]
    assert "labels: infer" in invoke("status", tmp_path / "run").stdout


def test_a_run_is_extended_and_then_trains_only_what_is_missing(run):
    before = document("status", run)["shards"]
    extended = document("extend", run, "--budget", 4, "--anyway")
    assert extended["budget"] == 4
    # Without sharing, a new order would cost a shard 3 stages: it shares its first with an old one.
    assert extended["trained"] == 2 * 2
    assert all(len(stage["prefix"]) > 1 for stage in extended["summaries"])
    status = document("status", run)
    assert extended["missing"] == status["missing"] == 0
    for old, new in zip(before, status["shards"], strict=True):
        assert new["sequences"][:3] == old["sequences"]
        assert (len(new["sequences"]), new["sequences"][3]["depth"]) == (4, 3)
    assert document("audit", run, "--replay", 2)["ok"]


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        (2, "2 is below the present budget of 3"),
        (0, "0 is below the present budget of 3"),
        (7, "budget 7 is not between 1 and 3! = 6, the number of orders of 3 slices; choose one in between"),
    ],
)
def test_a_budget_that_cannot_be_is_refused_with_status_2_and_changes_nothing(run, budget, problem):
    before = tiny.all_files(run)["run.json"]
    error = document("extend", run, "--budget", budget, status=2)["error"]
    assert (error["kind"], error["where"], len(error["problems"])) == ("InputError", "the budget", 1)
    assert problem in error["problems"][0]
    assert tiny.all_files(run)["run.json"] == before


def test_an_extension_is_told_in_a_sentence_and_in_lines(run):
    result = invoke("extend", run, "--budget", 6, "--anyway")
    assert result.exit_code == 0
    assert "6 orders a shard now" in result.stdout
    assert "12 stages trained in" in result.stdout
    assert "training 12 stages on 24 records, 1 epoch each" in result.stderr
    assert "; 12 of 12 stages" in result.stderr


def test_orders_that_buy_no_survival_are_told_and_refused_before_anything_is_trained(run):
    before = tiny.all_files(run)["run.json"]
    told = document("extend", run, "--budget", 6, "--dry-run")
    assert (told["stages"], told["lost_stages"], told["buys_nothing"]) == (12, 0, True)
    assert told["gain"]["expected_depth_before"] == told["gain"]["expected_depth_after"]
    said = invoke("extend", run, "--budget", 6, "--dry-run").stdout
    assert "12 stages to train for 6 orders a shard, about " in said
    assert re.search(r"2\.00 -> 2\.00 after 1, (1\.3\d) -> \1 after 2", said)
    (problem,) = document("extend", run, "--budget", 6, status=2)["error"]["problems"]
    assert "these orders add no survival; give --anyway" in problem
    assert tiny.all_files(run)["run.json"] == before


def test_train_and_repair_say_the_same_whichever_is_typed(run):
    nothing = "nothing to train: no stage is missing, 18 stages alive"
    assert invoke("train", run).stdout.startswith(nothing)
    assert invoke("repair", run).stdout.startswith(nothing)
    document("delete", run, "--record", "r3")
    again = tiny.copy_run(run, run.with_name("again"))
    missing = document("status", run)["missing"]
    assert f"train with: s3t repair {run}" in "".join(invoke("status", run).stdout.splitlines())
    for command, folder in (("train", run), ("repair", again)):
        said = invoke(command, folder).stdout
        assert said.startswith(f"{missing} stages trained in ")
        assert "; 18 stages alive\n" in said


def test_what_is_not_trained_yet_is_trained_by_train_wherever_it_is_named(made, tmp_path):
    new = tmp_path / "new"
    document("init", new, "--data", made / "records.csv", "--recipe", made / "recipe.yaml")
    assert f"train with: s3t train {new}" in "".join(invoke("status", new).stdout.splitlines())
    assert f"run `s3t train {new}`" in invoke("predict", new, "--input", made / "records.csv").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "RUN"),
        ("train", "RUN"),
        ("predict", "RUN", "--input", "DATA"),
        ("evaluate", "RUN", "--data", "DATA"),
        ("delete", "RUN", "--record", "r3", "--dry-run"),
        ("repair", "RUN"),
        ("audit", "RUN", "--replay", "1"),
        ("ids", "DATA", "--recipe", "RECIPE"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_without_json_people_read_tables_and_sentences(made, arguments):
    names = {"RUN": made / "run", "DATA": made / "records.csv", "RECIPE": made / "recipe.yaml"}
    result = invoke(*(names.get(argument, argument) for argument in arguments))
    assert result.exit_code == 0
    assert len(result.stdout) > 20
    assert not result.stdout.startswith("{")


def test_progress_goes_to_stderr(made, tmp_path):
    run = tmp_path / "run"
    document("init", run, "--data", made / "records.csv", "--recipe", made / "recipe.yaml")
    result = invoke("train", run, "--json")
    told = json.loads(result.stdout)["summaries"]
    assert len(told) == 18
    assert {len(stage["losses"]) for stage in told} <= {0, 1}  # 0 where a slice is empty
    lines = result.stderr.splitlines()
    assert lines[0] == "training 18 stages on 24 records, 1 epoch each"
    assert "; 18 of 18 stages" in lines[-1]
    assert f"loss {told[-1]['losses'][0]:.4g} in" in lines[-1]


def commands():
    """Every command, also of groups, by its words."""
    for name, command in typer.main.get_command(app_of(PROGRAM)).commands.items():
        inner = getattr(command, "commands", None)
        yield from [(name, command)] if inner is None else ((f"{name} {own}", each) for own, each in inner.items())


def parameters():
    group = typer.main.get_command(app_of(PROGRAM))
    assert {name for name, _ in commands()} == COMMANDS
    yield from ((group.name, parameter) for parameter in group.params)
    for name, command in commands():
        yield from ((name, parameter) for parameter in command.params)


def test_every_command_and_every_option_has_help():
    group = typer.main.get_command(app_of(PROGRAM))
    assert all(
        len(command.help.split()) > 3 for command in (group, *group.commands.values(), *dict(commands()).values())
    )
    found = list(parameters())
    assert len(found) > 20
    missing = [f"{command} {parameter.name}" for command, parameter in found if not getattr(parameter, "help", None)]
    assert missing == []


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_shows_every_option_and_the_exit_status(command):
    result = invoke(*command.split(), "--help")
    assert result.exit_code == 0
    shown = " ".join(result.stdout.split())
    options = [name for held, parameter in parameters() if held == command for name in parameter.opts]
    assert all(name in shown for name in options if name.startswith("--"))
    assert "Exit status: 0 done, 2 wrong input" in shown


@pytest.mark.parametrize("command", sorted(COMMANDS - {"ids"}))
def test_every_command_offers_json(command):
    assert any("--json" in parameter.opts for held, parameter in parameters() if held == command)


def test_the_program_is_installed_under_its_name():
    program = shutil.which("s3t", path=str(Path(sys.executable).parent))
    assert program is not None
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert version == f"s3t {s3t.__version__}\n"
    module = subprocess.run([sys.executable, "-m", "s3t", "--version"], capture_output=True, text=True, check=True)
    assert module.stdout == version


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("init", "x"), ("train",), ("audit", "x", "--replay", "-1"), ("train", "x", "--no")]
)
def test_a_command_that_is_spelt_wrong_ends_with_status_2(arguments):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert re.search("Usage|Error", result.stderr)
    assert result.stdout == ""


@pytest.mark.integration
def test_labels_and_ids_that_look_like_markup_are_printed_as_they_are(tmp_path, text_model):
    labels = {"a": "[/x]", "b": "[b]", "c": ":car:"}
    table = tiny.text_table()
    table["label"] = table.label.map(labels)
    table.loc[0, "id"] = ":car:" + "x" * 120
    table.to_csv(tmp_path / "records.csv", index=False)
    recipe = tiny.recipe(text_model, labels=list(labels.values()), training={"epochs": 0})
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        run.train()
    runner = CliRunner()
    asked = runner.invoke(app_of(), ["predict", str(tmp_path / "run"), "--input", str(tmp_path / "records.csv")])
    assert asked.exit_code == 0, asked.output
    assert any(label in asked.stdout for label in labels.values())
    ids = runner.invoke(app_of(), ["ids", str(tmp_path / "records.csv"), "--recipe", str(tmp_path / "recipe.yaml")])
    assert ids.stdout.splitlines() == list(table.id)
