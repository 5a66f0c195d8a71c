"""README's commands run, in its order, from records to an audit."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
SHELL = f'set -e\npython() {{ {sys.executable} "$@"; }}\ns3t() {{ python -m s3t "$@"; }}\n'


def blocks(language):
    return re.findall(rf"(?s)```{language}\n(.*?)```", README)


@pytest.mark.integration
def test_the_commands_and_the_python_of_the_readme_run(tmp_path):
    environment = os.environ | {"S3T_STATE": str(tmp_path / "state")}
    commands = "\n".join(blocks("sh")).replace("epochs: 8", "epochs: 1")
    programs = (["bash", "-c", SHELL + commands], [sys.executable, "-c", "\n".join(blocks("python"))])
    for program in programs:
        ended = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("True\n")
