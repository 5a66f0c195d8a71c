"""Workers as Ray's actors, and as jobs: the program is run, as Ray keeps state in the process that joins a cluster."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import s3t
from s3t.run import train_worker
from s3t.run.training import engine_of
from testing import tiny
from testing.served import wait_for

HERE = {"ray": ["--on", "ray"], "slurm": ["--on", "slurm", "--address", "local"]}
"""On this machine: a cluster that the command starts, and jobs that are processes."""
SMALL = {"partition": {"shards": 1}, "sequences": {"budget": 2}, "training": {"epochs": 1}}


def trained(path: Path, *options: str, status: int = 0) -> dict:
    """What `s3t train --json` says."""
    command = [sys.executable, "-m", "s3t", "train", str(path), "--json", *options]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


@pytest.mark.integration
@pytest.mark.parametrize("on", HERE)
def test_workers_of_a_cluster_make_the_bytes_of_one_process(on, text_model, tmp_path):
    recipe, runs = tiny.recipe(text_model, **SMALL), {}
    for name in ("here", "there"):
        with s3t.Run.create(tmp_path / name, recipe=recipe, data=tiny.text_table()) as run:
            runs[name] = len(run.inventory().missing())
    trained(tmp_path / "here")
    done = trained(tmp_path / "there", *HERE[on], "--workers", "2")
    assert (len(done["summaries"]), done["missing"]) == (runs["there"], 0)
    assert tiny.artifacts(tmp_path / "here") == tiny.artifacts(tmp_path / "there")
    # What is passed on, and what stays of jobs, holds nothing of records.
    for file in (tmp_path / "s3t-slurm").glob("*"):
        assert b"w1 " not in file.read_bytes()
    if on == "ray":
        assert (Path.home() / ".ray" / "auth_token").stat().st_mode & 0o077 == 0


@pytest.mark.integration
def test_a_worker_of_ray_that_is_killed_costs_the_stage_in_its_hand(text_model, tmp_path):
    recipe = tiny.recipe(text_model, **SMALL | {"training": {"epochs": 40}})
    for name in ("here", "there"):
        s3t.Run.create(tmp_path / name, recipe=recipe, data=tiny.text_table()).close()
    trained(tmp_path / "here")
    command = [sys.executable, "-m", "s3t", "train", str(tmp_path / "there"), *HERE["ray"], "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as training:
        wait_for(lambda: tiny.artifacts(tmp_path / "there"), seconds=200)
        actors = [each for each in psutil.Process(training.pid).children(recursive=True) if "_Worker" in each.name()]
        actors[0].kill()
        _, told = training.communicate(timeout=200)
    assert training.returncode == 1
    for said in ("a worker on Ray was lost", "run the same command again"):
        assert said in told
    trained(tmp_path / "there")
    assert tiny.artifacts(tmp_path / "here") == tiny.artifacts(tmp_path / "there")


@pytest.mark.integration
def test_a_cluster_without_room_or_without_an_answer_is_refused(text_model, tmp_path):
    with s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model, **SMALL), data=tiny.text_table()):
        pass
    for options, said in (
        (["--address", "127.0.0.1:9"], "at 127.0.0.1:9 does not answer"),
        (["--gpus-per-worker", "1"], "has no room for a worker of 1 CPU and 1 GPU"),
    ):
        refused = trained(tmp_path / "run", "--on", "ray", *options, status=2)
        assert said in str(refused["error"])


@pytest.mark.parametrize(
    ("engine", "workers", "said"),
    [
        ({"on": "slurm"}, 2, "PostgreSQL"),
        ({"on": "slurm", "address": "slurm"}, 2, "PostgreSQL"),
        ({"on": "slurm"}, "auto", "give their number"),
        ({"on": "dask"}, 1, "engine.on"),
        ({"on": "ray", "gpus_per_worker": -1}, 1, "engine.gpus_per_worker"),
        ({"on": "ray", "cores": 1}, 1, "engine.cores"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_done(engine, workers, said, trained_once, tmp_path):
    with s3t.Run.open(tiny.copy_run(trained_once, tmp_path / "run")) as run:
        run.delete(records=["r0"], repair=False)
        with pytest.raises(s3t.InputError) as refused:
            run.train(workers=workers, engine=engine)
        assert said in str(refused.value)


def test_a_command_overrides_the_recipe(text_model, tmp_path):
    recipe = tiny.recipe(text_model, **SMALL, engine={"on": "ray", "workers": 4, "cpus_per_worker": 2})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        assert (engine_of(run.parts).on, engine_of(run.parts).workers) == ("ray", 4)
        asked = engine_of(run.parts, 2, {"on": "local"})
        assert (asked.on, asked.workers, asked.cpus_per_worker) == ("local", 2, 2)


@pytest.mark.parametrize(("device", "other"), [("cuda", {}), ("cpu", {"torch": "1.0"})])
def test_a_worker_whose_stages_would_have_other_bits_trains_nothing(device, other, trained_once, tmp_path):
    from s3t.training.numerics import versions

    path = tiny.copy_run(trained_once, tmp_path / "run")
    with s3t.Run.open(path) as run:
        run.delete(records=["r0"], repair=False)
        missing = len(run.inventory().missing())
        with pytest.raises(s3t.S3TError, match="would have other bits"):
            train_worker.train([str(path), "inf", device, json.dumps(versions() | other)], lambda _event: None)
        assert len(run.inventory().missing()) == missing > 0
    assert train_worker.train([str(path), "inf", "cpu", json.dumps(versions())], lambda _event: None) == 0
