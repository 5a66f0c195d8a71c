"""The comparison of checkouts, on a base with packed weights: this tree is like itself, and a change is seen."""

import shutil
from pathlib import Path

import pytest

from tests.same_bytes.__main__ import compare

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]


def test_two_processes_give_the_same_bytes_with_a_quantised_base_and_other_scales_give_others(tmp_path, capsys):
    pytest.importorskip("bitsandbytes")
    names = ["prompts and completions, 4bit", "prompts and completions, 8bit"]
    assert compare(ROOT, ROOT, names), capsys.readouterr().out
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "src" / "s3t" / "models" / "quantized.py"
    planted = source.read_text().replace("_BLOCK, _NESTED_BLOCK = 64, 256", "_BLOCK, _NESTED_BLOCK = 128, 256")
    assert planted != source.read_text()
    source.write_text(planted)
    capsys.readouterr()
    assert not compare(ROOT, tmp_path, names[:1])
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith(names[0]))
    assert int(row.split()[-1]) > 0  # tensors that differ
