"""`s3t export`: adapters for other programs, and their withdrawal."""

import json
import shutil

import pytest

from testing import tiny
from tests.cli.typed import document, invoke, problems


def test_what_is_printed_of_exports_that_are_made_hit_and_withdrawn(run, tmp_path):
    out = tmp_path / "adapters"
    made = document("export", run, "--output", out)
    assert [(each["shard"], each["new"]) for each in made["exports"]] == [(0, True), (1, True)]
    assert document("export", run, "--output", out, "--shard", 1)["exports"] == [made["exports"][1] | {"new": False}]
    assert "was there already" in invoke("export", run, "--output", out, "--shard", 0).stdout
    names = [each["name"] for each in made["exports"]]
    assert [each["name"] for each in document("status", run)["exports"]] == names
    would = invoke("delete", run, "--record", "r3", "--dry-run").stdout
    deleted = document("delete", run, "--record", "r3", "--key", "ticket")
    (hit,) = deleted["to_withdraw"]
    assert (deleted["state"], deleted["log"][0]["to_withdraw"]) == ("effective", [hit["name"]])
    assert f"would have to be withdrawn: export {hit['name']}" in would
    again = invoke("delete", run, "--record", "r3", "--key", "ticket").stdout
    assert f"to be withdrawn: export {hit['name']} of shard {hit['shard']}" in again
    shown = invoke("status", run).stdout.replace("\n", " ")
    assert f"it waits until these exports are withdrawn: {hit['name']}" in shown
    assert f"s3t export {run} --withdrawn {hit['name']}" in shown
    assert f"it waits until these exports are withdrawn: {hit['name']}" in invoke("log", run).stdout
    assert hit["name"] in invoke("erase", run).stdout
    status = document("export", run, "--withdrawn", hit["name"])
    assert status["unfinished"] == []
    (left,) = status["exports"]
    (problem,) = problems("export", run, "--withdrawn", left["name"][:-1])
    assert f"did you mean {left['name']}?" in problem
    assert f"{left['path']} is still there" in problems("export", run, "--withdrawn", left["name"])[0]
    shutil.rmtree(left["path"])
    withdrawn = invoke("export", run, "--withdrawn", left["name"])
    assert (withdrawn.exit_code, withdrawn.stdout) == (0, f"export {left['name']} is withdrawn\n")


def test_wrong_arguments(run, tmp_path):
    a_file = tmp_path / "file"
    a_file.write_text("")
    assert problems("export", run) == problems("export", run, "--output", "x", "--withdrawn", "y")
    assert problems("export", run, "--withdrawn", "y", "--merge") == problems("export", run)
    assert "is no folder" in problems("export", run, "--output", a_file)[0]
    assert "cannot be made" in problems("export", run, "--output", a_file / "below")[0]
    assert "is in the folder of the run" in problems("export", run, "--output", run / "adapters")[0]
    found = problems("export", run, "--output", a_file, "--shard", 9, "--for", "tgi")
    assert len(found) == 3
    assert "shard 9 is none of the run's; they are 0 to 1" in found[2]
    assert "has made no export 'shard-000'; none stands" in problems("export", run, "--withdrawn", "shard-000")[0]
    assert document("status", run)["exports"] == []


def test_a_shard_without_a_live_chain(run, tmp_path):
    names = tiny.text_table().id.tolist()
    located = document("locate", run, *(part for name in names for part in ("--record", name)))["located"]
    whole = [each["name"] for each in located if each["places"][0][0] == 0]
    document("delete", run, *(part for name in whole for part in ("--record", name)))
    result = invoke("export", run, "--output", tmp_path / "out", "--shard", 0)
    assert result.exit_code == 1
    assert "shard 0" in result.stderr
    assert "has no live chain that holds a record" in result.stderr
    made = document("export", run, "--output", tmp_path / "out")
    assert [each["shard"] for each in made["exports"]] == [1]
    assert made["notices"] == ["without a live chain, and not exported: shards 0"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_an_engine_refuses_is_refused_with_all_reasons_and_nothing_is_written(run, tmp_path, engine):
    found = problems("export", run, "--output", tmp_path / "out", "--for", engine)
    assert any("bert.pooler" in problem for problem in found)  # a part of the head that is no score and no classifier
    assert found[-1] == "export it merged (--merge), or for PEFT"
    assert not (tmp_path / "out").exists()
    assert document("status", run)["exports"] == []
    assert document("export", run, "--output", tmp_path / "out", "--for", engine, "--merge", "--shard", 0)["merged"]


def test_the_readme_of_an_export_loads_it(run, tmp_path):
    """Its lines are run as they stand."""
    from tests.export.loaded import described, quietly

    for merge in ([], ["--merge"]):
        (export,) = document("export", run, "--output", tmp_path / "out", "--shard", 0, *merge)["exports"]
        readme = (tmp_path / "out" / export["name"] / "README.md").read_text()
        lines = readme.partition("```python\n")[2].partition("```")[0].replace("THIS FOLDER", export["path"])
        names = {}
        with quietly():
            exec(lines, names)
        assert names["model"].config.num_labels == len(described(tmp_path / "out" / export["name"])["labels"])
    assert json.loads((tmp_path / "out" / export["name"] / "s3t.json").read_text())["merged"]
