"""Making a run is all or nothing."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import s3t
from s3t.store.disk import temporary_name
from s3t.store.spill import Spill
from s3t.tasks import TASKS
from s3t.training import numerics
from testing import tiny

ADD = Spill.add
ROOT = Path(__file__).resolve().parents[2]

KILL_INIT = """
import os, signal, sys
import pandas as pd
import s3t
from s3t.ledger import Ledger

Ledger.create = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL)
from testing import tiny
s3t.Run.create(sys.argv[1], recipe=tiny.recipe(sys.argv[2]), data=tiny.text_table())
"""


@pytest.mark.integration
def test_what_a_killed_init_leaves_is_no_run_and_goes_with_the_next_init(text_model, tmp_path):
    path = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", KILL_INIT, str(path), str(text_model)], capture_output=True, cwd=ROOT, text=True
    )
    assert done.returncode == -9, done.stderr
    assert not path.exists()
    assert [left.name[:10] for left in tmp_path.iterdir()] == [".run.init-"]
    s3t.Run.create(path, recipe=tiny.recipe(text_model), data=tiny.text_table()).close()
    assert [left.name for left in tmp_path.iterdir()] == ["run"]


def test_a_refused_init_leaves_nothing_of_the_records_before_the_fault(text_model, tmp_path, monkeypatch):
    task = TASKS["text-classification"]
    small = replace(task, inputs=replace(task.inputs, window_rows=3))
    monkeypatch.setattr("s3t.tasks.targets.TASKS", {task.name: small})
    added = []
    monkeypatch.setattr(Spill, "add", lambda self, key, content: added.append(content) or ADD(self, key, content))
    table = tiny.text_table()
    table.loc[len(table) - 1, "text"] = ""
    with pytest.raises(s3t.DataError, match="column 'text' is empty"):
        s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=table)
    assert added
    assert not list(tmp_path.iterdir())


def test_unfinished_folders_of_a_running_init_and_for_a_day_of_other_machines_are_left_alone(text_model, tmp_path):
    """Processes of other machines cannot be seen from here."""
    running = tmp_path / f".run.init-{temporary_name(os.getppid())}"
    young, old = (tmp_path / f".run.init-another_machine-4194305-{name}" for name in ("young", "old"))
    for folder in (running, young, old):
        folder.mkdir()
    os.utime(old, (time.time() - 90_000,) * 2)
    s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=tiny.text_table()).close()
    assert [folder.exists() for folder in (running, young, old)] == [True, True, False]


@pytest.mark.parametrize("made_for", ["mean", "last"])
def test_auto_pools_as_the_base_model_was_made_for_and_is_kept(made_for, text_model, tmp_path):
    folder = shutil.copytree(text_model, tmp_path / "model")
    declared = folder / "1_Pooling" / "config.json"
    declared.parent.mkdir()
    declared.write_text(json.dumps({"pooling_mode": {"last": "lasttoken"}.get(made_for, made_for)}))
    with s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(folder), data=tiny.text_table()):
        pass
    with s3t.Run.open(tmp_path / "run") as run:
        assert run.recipe.text.pooling == made_for


def test_auto_threads_are_no_more_than_the_cores_whose_time_a_container_is_given(text_model, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(numerics, "WIDTH_A_THREAD", 1)  # so narrow a model is worth 8
    recipe = tiny.recipe(text_model, training={"threads": "auto", "precision": "auto"})
    for cores in (8, 3):
        monkeypatch.setattr("s3t.run.creation.cores_worth", lambda cores=cores: cores)
        with s3t.Run.create(tmp_path / str(cores), recipe=recipe, data=tiny.text_table()) as run:
            assert run.recipe.training.threads == cores
            assert run.recipe.training.precision in ("float32", "bfloat16")


REPLAY = """
import sys
import s3t
with s3t.Run.open(sys.argv[1]) as run:
    sys.exit(not run.audit(replay=4, seed=0).ok)
"""


@pytest.mark.integration
def test_a_run_replays_under_another_number_of_threads(trained):
    """The number is the run's own, whatever the process is told."""
    for threads in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", REPLAY, str(trained.path)],
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_prior_that_the_selector_takes_no_notice_of_is_a_warning(text_model, tmp_path):
    prior = {"prior": [0.5, 0.3, 0.2]}
    for selector, warned in (("cyclic", True), ("sorted-cyclic", False)):
        recipe = tiny.recipe(text_model, sequences=prior | {"selector": selector})
        run = s3t.Run.create(tmp_path / selector, recipe=recipe, data=tiny.text_table())
        assert any("takes no notice of the declared prior" in warning for warning in run.status().warnings) == warned
