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

import s3t
from s3t.cli.app import app_of
from s3t_server.program import COMMANDS
from testing import tiny
from tests.cli.typed import document, invoke


@pytest.mark.integration
def test_the_whole_loop_prints_the_documents_of_the_issue(made, tmp_path):
    run, data = tmp_path / "run", made / "records.csv"
    status = document("init", run, "--data", data, "--recipe", made / "recipe.yaml")
    assert (status["generation"], status["records"], status["missing"]) == (0, 24, 18)
    assert status["gaps"] == []
    assert all(shard["serving"] is None for shard in status["shards"])

    trained = document("train", run)
    assert (trained["trained"], trained["missing"], trained["depths"]) == (18, 0, [3, 3])
    assert document("train", run)["trained"] == 0
    assert [shard["serving"]["depth"] for shard in document("status", run)["shards"]] == [3, 3]

    answers = document("predict", run, "--input", data)
    assert (answers["generation"], len(answers["predictions"])) == (0, 24)
    for answer in answers["predictions"]:
        assert set(answer) == {"id", "label", "probabilities", "generation"}
        assert sum(answer["probabilities"].values()) == pytest.approx(1)
        assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get)

    measured = document("evaluate", run, "--data", data)
    right = pd.read_csv(data).label.tolist()
    share = sum(answer["label"] == label for answer, label in zip(answers["predictions"], right, strict=True)) / 24
    assert (measured["accuracy"], measured["n"]) == (pytest.approx(share), 24)
    assert [entry["shard"] for entry in measured["per_shard"]] == [0, 1]
    assert [entry["depth"] for entry in measured["per_depth"]] == [1, 2, 3]
    assert document("evaluate", run, "--data", data, "--no-depths")["per_depth"] == []

    gone = document("delete", run, "--record", "r3")
    assert (gone["generation"], gone["deleted"], gone["already"], gone["unknown"]) == (1, 1, [], [])
    status = document("status", run)
    [[shard, lost]] = gone["slices"]
    assert gone["shards"] == [status["shards"][shard]]
    orders = [sequence["order"] for sequence in status["shards"][shard]["sequences"]]
    assert gone["stages_lost"] == gone["missing"] == status["missing"] == sum(3 - order.index(lost) for order in orders)
    assert document("predict", run, "--input", data)["generation"] == 1

    repaired = document("repair", run)
    assert (repaired["trained"], repaired["missing"]) == (gone["stages_lost"], 0)
    audited = document("audit", run, "--replay", 2)
    assert (audited["ok"], audited["checked"], len(audited["replayed"]), audited["mismatches"]) == (True, 18, 2, [])


def test_names_of_options_and_of_a_file_are_one_deletion_and_only_told_of_when_asked_again(run, tmp_path):
    path = tmp_path / "gone.csv"
    pd.DataFrame({"record": ["r0", None, "nobody"], "subject": [None, "p1", None]}).to_csv(path, index=False)
    asked = ("delete", run, "--file", path, "--record", "r2", "--record", "r2", "--record", "r3", "--subject", "p4")
    gone = document(*asked)
    assert (gone["deleted"], gone["generation"], gone["unknown"]) == (7, 1, ["nobody"])
    status = document("status", run)
    again = document(*asked, "--record", "r13")
    assert sorted(again["already"]) == ["p1", "p4", "r0", "r13", "r2", "r3"]
    assert (again["deleted"], again["slices"], again["stages_lost"]) == (0, [], 0)
    assert document("status", run) == status


def test_a_dry_run_has_the_document_of_the_deletion_and_changes_nothing(run):
    files = tiny.artifacts(run)
    would = document("delete", run, "--record", "r3", "--dry-run")
    assert tiny.artifacts(run) == files
    assert document("status", run)["generation"] == 0
    done = document("delete", run, "--record", "r3")
    assert (would.pop("state"), would.pop("log"), would.pop("id")) == (None, [], None)
    assert (done.pop("state"), len(done.pop("log")), done.pop("id")) == ("erased", 1, 1)
    assert done == would | {"dry_run": False}


def test_answers_are_written_to_files_of_every_form(made, tmp_path):
    asked = ("predict", made / "run", "--input", made / "records.csv")
    printed = document(*asked)["predictions"]
    for suffix in ("csv", "jsonl", "parquet"):
        output = tmp_path / f"answers.{suffix}"
        summary = document(*asked, "--output", output)
        assert (summary["output"], summary["count"]) == (str(output), 24)
    assert len(list(tmp_path.iterdir())) == 3
    assert [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()] == printed
    for frame in (pd.read_csv(tmp_path / "answers.csv"), pd.read_parquet(tmp_path / "answers.parquet")):
        assert list(frame.columns) == ["id", "label", "generation", "probability:a", "probability:b", "probability:c"]
        assert frame.label.tolist() == [answer["label"] for answer in printed]
        assert frame["probability:b"].tolist() == pytest.approx([answer["probabilities"]["b"] for answer in printed])


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


def test_a_run_is_extended_and_trains_only_what_is_missing(run):
    before = document("status", run)["shards"]
    error = document("extend", run, "--budget", 2, status=2)["error"]
    assert (error["kind"], error["where"], len(error["problems"])) == ("InputError", "the budget", 1)
    assert "2 is below the present budget of 3" in error["problems"][0]
    extended = document("extend", run, "--budget", 4, "--anyway")
    # Without sharing, a new order would cost a shard 3 stages: it shares its first with an old one.
    assert (extended["budget"], extended["trained"]) == (4, 2 * 2)
    assert all(len(stage["prefix"]) > 1 for stage in extended["summaries"])
    status = document("status", run)
    assert extended["missing"] == status["missing"] == 0
    for old, new in zip(before, status["shards"], strict=True):
        assert new["sequences"][:3] == old["sequences"]
        assert (len(new["sequences"]), new["sequences"][3]["depth"]) == (4, 3)
    result = invoke("extend", run, "--budget", 5, "--anyway")
    assert "5 orders a shard now" in result.stdout
    assert "4 stages trained in" in result.stdout


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


def test_train_and_repair_do_the_same_whichever_is_typed(run):
    for command in ("train", "repair"):
        assert invoke(command, run).stdout.startswith("nothing to train: no stage is missing, 18 stages alive")
    document("delete", run, "--record", "r3")
    again = tiny.copy_run(run, run.with_name("again"))
    missing = document("status", run)["missing"]
    assert f"train with: s3t repair {run}" in "".join(invoke("status", run).stdout.splitlines())
    said = invoke("train", run).stdout
    assert said.startswith(f"{missing} stages trained in ")
    assert "; 18 stages alive\n" in said
    result = invoke("repair", again, "--json")  # its progress goes to stderr
    summaries, lines = json.loads(result.stdout)["summaries"], result.stderr.splitlines()
    assert len(summaries) == missing
    assert {len(stage["losses"]) for stage in summaries} <= {0, 1}  # 0 where a slice is empty
    assert lines[0] == f"training {missing} stages on 23 records, 1 epoch each"
    assert f"; {missing} of {missing} stages" in lines[-1]
    assert f"loss {summaries[-1]['losses'][0]:.4g} in" in lines[-1]


def test_what_is_not_trained_yet_is_trained_by_train_wherever_it_is_named(made, tmp_path):
    new = tmp_path / "new"
    document("init", new, "--data", made / "records.csv", "--recipe", made / "recipe.yaml")
    assert f"train with: s3t train {new}" in "".join(invoke("status", new).stdout.splitlines())
    assert f"run `s3t train {new}`" in invoke("predict", new, "--input", made / "records.csv").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "RUN", "--input", "DATA"),
        ("evaluate", "RUN", "--data", "DATA"),
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


def commands():
    """Every command, also of groups, by its words."""
    for name, command in typer.main.get_command(app_of(COMMANDS)).commands.items():
        inner = getattr(command, "commands", None)
        yield from [(name, command)] if inner is None else ((f"{name} {own}", each) for own, each in inner.items())


def test_every_command_has_help_with_its_options_and_exit_status_and_offers_json():
    group = typer.main.get_command(app_of(COMMANDS))
    parts = {group.name: group, **group.commands, **dict(commands())}
    assert all(len(command.help.split()) > 3 for command in parts.values())
    assert all(parameter.help for command in parts.values() for parameter in command.params)
    for name, command in commands():
        result = invoke(*name.split(), "--help")
        assert result.exit_code == 0
        shown = " ".join(result.stdout.split())
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        assert all(option in shown for option in options), name
        assert "--json" in options, name
        assert "Exit status: 0 done, 2 wrong input" in shown, name


def test_the_program_is_installed_under_its_name():
    program = shutil.which("s3t", path=str(Path(sys.executable).parent))
    assert program is not None
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"s3t {s3t.__version__}\n"


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
    asked = invoke("predict", tmp_path / "run", "--input", tmp_path / "records.csv")
    assert asked.exit_code == 0, asked.output
    assert any(label in asked.stdout for label in labels.values())
    ids = invoke("ids", tmp_path / "records.csv", "--recipe", tmp_path / "recipe.yaml")
    assert ids.stdout.splitlines() == list(table.id)
