"""README's commands run, in its order, from records to an audit, and answer what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import s3t

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
SHELL = f'set -e\npython() {{ {sys.executable} "$@"; }}\ns3t() {{ python -m s3t "$@"; }}\n'


def blocks(language):
    return re.findall(rf"(?s)```{language}\n(.*?)```", README)


def without_scores(text):
    return re.sub(r"[01]\.[0-9]{4} ", "s ", text)


@pytest.mark.integration
def test_the_commands_and_the_python_of_the_readme_run(tmp_path):
    environment = os.environ | {"S3T_STATE": str(tmp_path / "state")}

    def run(*program):
        ended = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    printed = run("bash", "-c", SHELL + "\n".join(blocks("sh")))
    answers, depths, _ = blocks("text")
    assert answers.splitlines()[-1] in printed.splitlines()
    for shown in (answers, depths):
        assert without_scores(shown) in without_scores(printed)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("epochs: 8", "epochs: 1"))
    assert run(sys.executable, "-c", "\n".join(blocks("python"))).endswith("True\n")


@pytest.mark.slow
def test_the_example_answers_right_however_its_records_fall_into_slices(tmp_path, monkeypatch):
    """Some 25 CPU seconds each. One order a shard: that of greatest depth, which comes first, answers."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["bash", "-c", SHELL + "\n".join(blocks("sh")[:2])], check=True)
    recipe = yaml.safe_load(Path("recipe.yaml").read_text())
    questions = re.findall(r'--text "(.*?)"', README)
    for number in range(50):
        partition = recipe["partition"] | {"salt": f"the example's salt number {number}"}
        fields = recipe | {"partition": partition, "sequences": {"budget": 1}}
        with s3t.Run.create(f"run-{number}", recipe=fields, data="records.csv", public_data=True) as run:
            run.train()
            assert run.predict(questions).predicted == ("card_arrival", "lost_card")
            assert run.evaluate("new.csv", per_depth=False).accuracy == 1
