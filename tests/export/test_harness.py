"""The committed task of the harness, offline: a run and its export, by the harness's own command, score the same."""

import json
import lzma
from pathlib import Path

import pandas as pd
import pytest

from testing.language import language_recipe
from testing.stories260k import convert
from tests.cli.typed import document
from tests.run.worlds import trained_run

TASKS = Path(__file__).resolve().parents[2] / "examples" / "harness"


def test_every_sentence_has_three_ends_of_which_one_is_right():
    rows = [json.loads(line) for line in (TASKS / "stories.jsonl").read_text().splitlines()]
    assert len(rows) == 36
    assert {row["right"] for row in rows} == {0, 1, 2}
    assert all(len(set(row["ends"])) == 3 for row in rows)


def measured_of_export(base, adapter):
    """As `lm_eval run --model hf --model_args pretrained=BASE,peft=EXPORT --tasks stories --include_path ...`."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    found = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(base), "peft": str(adapter), "dtype": "float32", "device": "cpu"},
        tasks=["stories"],
        task_manager=TaskManager(include_path=str(TASKS), include_defaults=False),
        bootstrap_iters=0,
        log_samples=True,
    )
    return found["results"]["stories"], found["samples"]["stories"]


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # the harness's, and those of what it imports
def test_a_run_and_its_export_have_the_same_score_on_the_committed_task(real_data, tmp_path, monkeypatch):
    """Also after a deletion, with another chain."""
    monkeypatch.chdir(tmp_path)  # the task finds its sentences from any folder
    files = real_data / "weights"
    base = convert(files / "stories260K.bin", files / "tok512.bin", tmp_path / "stories")
    table = pd.DataFrame(json.loads(lzma.decompress((real_data / "alpaca" / "alpaca_data.json.xz").read_bytes())))
    table = table[table.output.str.strip() != ""].head(60)
    table["id"] = [f"r{number}" for number in range(len(table))]
    recipe = language_recipe(
        base,
        columns={"prompt": "instruction", "completion": "output"},
        partition={"shards": 1, "slices": 2},
        sequences={"budget": 2},
        adapter={"rank": 8, "alpha": 16, "layers_per_slice": 2},
        language={"max_length": 64},
    )
    scores = []
    with trained_run(tmp_path / "run", recipe, table) as run:
        for deleted in ([], ["r3"]):
            if deleted:
                run.delete(records=deleted)
            (export,) = run.export(tmp_path / "out").exports
            (ours,) = document("harness", run.path, "--task", "stories", "--include", TASKS)["results"]
            theirs, samples = measured_of_export(base, export.path)
            assert (ours["acc"], ours["acc_norm"]) == (theirs["acc,none"], theirs["acc_norm,none"])
            likelihoods = [value for sample in samples for ((value, _),) in sample["resps"]]
            scores.append((ours["acc"], likelihoods))
    assert all(1 / 3 < accuracy < 1 for accuracy, _ in scores)
    assert max(abs(a - b) for a, b in zip(scores[0][1], scores[1][1], strict=True)) > 0.01  # another chain answered
