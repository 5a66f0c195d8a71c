"""The experiments run, resume and draw; what is committed is what the code gives; READMEs tell no other numbers."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from functools import cache

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from transformers import ViTConfig, ViTForImageClassification

from experiments import runner
from experiments.__main__ import main
from experiments.distance_cyclic.experiment import counting_bound
from experiments.frontier.table import table
from experiments.runner import FOLDER, NAMES, TIMED, TRAINED, draw, experiment, results, rounded, run
from experiments.settings import load
from experiments.storage.experiment import sizes
from s3t.orders import Setting, cyclic, mean_distance

FILES = ("README.md", "config.yaml", "experiment.py", "figure.png", "figure.py", "results.json")

CHEAP = {
    "deletion_rate_budget": lambda row: True,
    "deletion_rate_scaling": lambda row: True,
    "deletion_rate_prior": lambda row: row["system"] == 9,
    "distance_cyclic": lambda row: row["budget"] in (1, 2, 7, 60),
    "bms_random": lambda row: row["prior"] < 2 and row["budget"] == 1,
    "bms_sorted_cyclic": lambda row: row["prior"] < 2 and row["slices"] in (4, 8),
    "storage": lambda row: True,
    "deleted_slices": lambda row: True,
}
committed = cache(results)
MEASURED = [name for name in NAMES if (FOLDER / name / "results.json").exists()]
"""Those that train take hours, and come one by one."""

each_cheap = pytest.mark.parametrize("name", CHEAP)
each_measured = pytest.mark.parametrize("name", MEASURED)


def marks_of(name, *, quick):
    """Marks of a test that runs an experiment. CI runs two of those that train, `make test-slow` all."""
    if name in quick:
        return []
    return [pytest.mark.slow] if name in TRAINED - {"slice_wise", "tofu"} else [pytest.mark.integration]


every_name = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks_of(name, quick=set(NAMES) - TRAINED)) for name in NAMES]
)


@pytest.fixture(autouse=True)
def kept_elsewhere(tmp_path_factory, monkeypatch):
    """Systems that several experiments look at are trained once for all tests."""
    monkeypatch.setenv("S3T_EXPERIMENTS", str(tmp_path_factory.getbasetemp() / "experiments"))


@pytest.mark.integration
@every_name
def test_an_experiment_runs_at_a_tiny_size_and_its_figure_draws(name, tmp_path):
    run(name, into=tmp_path, smoke=True)
    found = results(name, tmp_path)
    assert len(found["rows"]) == len(experiment(name).points(config_of(name, smoke=True)))
    assert {"commit", "date", "seed", "seconds", "machine", "versions", "config", "summary"} <= set(found)
    if name in TRAINED - {"deleted_slices"}:  # it reads what another has trained
        assert {each for row in found["rows"] for each in row["recipes"]} == set(found["recipes"])
        assert all({"base_model", "adapter", "training", "partition"} <= set(own) for own in trained_in(found))
    if name not in MEASURED:
        assert importlib.import_module(f"experiments.{name}.finding").finding(found).claim
    picture = (tmp_path / "figure.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.png", "results.json"]


@pytest.mark.integration
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(name, quick={"bms_random"})) for name in NAMES])
def test_the_same_seed_gives_the_same_numbers_and_the_same_picture(name, tmp_path, monkeypatch):
    """However many processes share the work."""
    pair = []
    for part, jobs in (("one", 1), ("two", 2)):
        (tmp_path / part).mkdir()
        monkeypatch.setenv("S3T_EXPERIMENTS", str(tmp_path / part / "kept"))
        run(name, into=tmp_path / part, smoke=True, jobs=jobs)
        found = results(name, tmp_path / part)
        pair.append((found["rows"], found["summary"], (tmp_path / part / "figure.png").read_bytes()))
    if name in TIMED:
        assert without_times(pair[0][0]) == without_times(pair[1][0])
    else:
        assert pair[0] == pair[1]


def test_a_stopped_run_goes_on_where_it_was(tmp_path, monkeypatch):
    name = "deletion_rate_budget"
    (tmp_path / "whole").mkdir()
    run(name, into=tmp_path / "whole", smoke=True)
    monkeypatch.setattr(runner, "SECONDS_KEPT", 0)
    chosen, measured = experiment(name), []
    measure = chosen.measure

    def stopping(config, point):
        if point["budget"] == 4 and len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(point["budget"])
        return measure(config, point)

    monkeypatch.setattr(chosen, "measure", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(name, into=tmp_path, smoke=True)
    assert (tmp_path / "partial.json").exists()
    measured.append("stopped")
    run(name, into=tmp_path, smoke=True)
    assert measured == [1, 2, "stopped", 4, 6]
    assert results(name, tmp_path)["rows"] == results(name, tmp_path / "whole")["rows"]
    assert not (tmp_path / "partial.json").exists()


def test_a_stopped_suite_goes_on_with_what_was_not_finished(tmp_path, monkeypatch):
    monkeypatch.setenv("S3T_EXPERIMENTS", str(tmp_path))
    names, done = ["deletion_rate_budget", "storage", "distance_cyclic"], []

    def run_one(name, *, jobs):
        if name == "storage" and "stopped" not in done:
            done.append("stopped")
            raise KeyboardInterrupt
        done.append(name)

    monkeypatch.setattr(runner, "run", run_one)
    with pytest.raises(KeyboardInterrupt):
        runner.suite(names)
    runner.suite(names)
    assert done == [names[0], "stopped", *names[1:]]
    runner.suite(names[:1])  # it was finished, all of it: it begins anew
    assert done[4:] == names[:1]


def test_rows_of_other_code_are_not_used_and_that_is_told(tmp_path, monkeypatch, capsys):
    name = "deletion_rate_budget"
    kept = {"digest": "of other code", "seconds": 5.0, "rows": {"a": {}, "b": {}}}
    (tmp_path / "partial.json").write_text(json.dumps(kept))
    run(name, into=tmp_path, smoke=True)
    assert f"{name}: 2 rows so far are of other settings, code or machine" in capsys.readouterr().err
    assert results(name, tmp_path)["seconds"] < 5


def test_without_the_records_one_line_says_where_they_are_looked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("S3T_DATA", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["experiments", "sequential", "--jobs", "1"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("sequential: ")]
    assert str(tmp_path / "none" / "cifar10") in line
    assert "S3T_DATA" in line


@pytest.mark.integration
def test_processes_that_share_an_experiment_end_with_it_and_leave_one_line(tmp_path):
    command = [sys.executable, "-m", "experiments", "design_ablation", "--smoke", "--jobs", "2"]
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parent)}
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731  the tests may run where it is ignored
    how = {"cwd": tmp_path, "env": environment, "start_new_session": True, "preexec_fn": heard}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **how) as started:
        told = next(line for line in started.stderr if line.startswith("design_ablation, 1 of 6"))
        os.killpg(started.pid, signal.SIGINT)  # as a terminal does
        rest = started.stderr.read()  # ends when the last of them has
    assert started.returncode == 130, told + rest
    assert "stopped; the same command goes on where it was" in rest.splitlines()
    assert "Traceback" not in rest


def test_rows_that_train_are_of_all_the_code_that_they_hang_on():
    imported = runner._imported(FOLDER / "repair_policies" / "experiment.py")
    found = {path.relative_to(FOLDER).as_posix() for path in imported}
    assert {"repair_policies/experiment.py", "replay.py", "requests.py", "served.py", "runs.py", "tasks.py"} <= found
    assert "runner.py" not in found


@each_measured
def test_a_folder_is_whole_and_tells_the_paper_s_setting_the_command_the_time_and_the_machine(name):
    assert set(NAMES) - TRAINED <= set(MEASURED)  # what trains no model is measured, all of it
    for file in FILES:
        assert (FOLDER / name / file).stat().st_size > 0, file
    readme, config = ((FOLDER / name / file).read_text() for file in ("README.md", "config.yaml"))
    assert "](figure.png)" in readme
    assert f"python -m experiments {name}" in readme
    assert config.startswith("# Paper: ")
    assert re.search(rf"^# Run:   .*python -m experiments {name}$", config, flags=re.M)
    (takes,) = re.findall(r"^# Takes: (.*)$", config, flags=re.M)
    machine = committed(name)["machine"]
    assert takes.endswith(f"; {machine['cores']} cores of an {machine['processor']}, {machine['capability']}")


@each_measured
def test_committed_results_are_of_the_committed_settings(name):
    found, config = committed(name), config_of(name)
    assert (found["config"], found["seed"]) == (config.model_dump(mode="json"), config.seed)
    assert "changes" not in found["commit"]
    points = [{key: row[key] for key in point} for row, point in paired(name, config, found["rows"])]
    assert points == experiment(name).points(config)
    if name in TRAINED - {"deleted_slices"}:
        assert {each for row in found["rows"] for each in row["recipes"]} == set(found["recipes"])
        for recipe in trained_in(found):
            assert {"base_model", "adapter", "partition", "training"} <= set(recipe)
            assert config.training.items() <= recipe["training"].items()


@pytest.mark.parametrize(
    "name",  # one simulates, for half a minute
    [pytest.param(name, marks=[pytest.mark.integration] * (name == "thousand_requests")) for name in MEASURED],
)
def test_a_committed_summary_is_of_the_committed_rows(name):
    found = committed(name)
    again = rounded(experiment(name).summary(config_of(name), found["rows"]))
    assert flat(again).keys() == flat(found["summary"]).keys()
    assert flat(again) == pytest.approx(flat(found["summary"]), rel=1e-4, abs=1e-6)


@pytest.mark.integration
@each_cheap
def test_committed_exact_numbers_are_found_again(name):
    found, config = committed(name), config_of(name)
    chosen = [pair for pair in paired(name, config, found["rows"]) if CHEAP[name](pair[0])]
    assert chosen
    quick = config.model_copy(update={"trials": 2})
    for row, point in chosen:
        again = rounded(experiment(name).measure(quick, point))
        exact = {key: value for key, value in again.items() if "simulated" not in key}
        assert {key for key in exact if exact[key] is None} == {key for key in exact if row[key] is None}
        assert flat(exact) == pytest.approx(flat({key: row[key] for key in exact}), rel=1e-6, abs=1e-9), point


@pytest.mark.parametrize("name", ["deletion_rate_budget", "deletion_rate_scaling", "deletion_rate_prior", "storage"])
def test_committed_simulations_agree_with_the_exact_rate(name):
    for row in committed(name)["rows"]:
        ends = [key for key in row if key.endswith("simulated_rate")]
        assert ends
        for end in ends:
            exact = row[end.replace("simulated_", "")]
            assert abs(row[end] - exact) < 4.5 * row[f"{end}_error"], row


def test_adapters_are_counted_as_peft_makes_them():
    shape, names = config_of("storage", smoke=True).model, ("q_proj", "v_proj")
    found = sizes(shape, 7, 4, 2, names)
    with torch.device("meta"):
        model = ViTForImageClassification(ViTConfig(**shape.model_dump(), num_labels=7))
    base, head = model.num_parameters(), model.classifier.weight.numel() + model.classifier.bias.numel()
    inject_adapter_in_model(LoraConfig(r=4, target_modules=list(names)), model)
    assert found.head == head
    assert found.model == base - head
    assert 3 * found.block == model.num_parameters() - base
    assert found.block_all_linear > found.block


def test_no_orders_lie_further_apart_than_the_counting_bound():
    for slices in (3, 4, 5):
        for budget in range(2, 7):
            found = mean_distance(cyclic(Setting(slices=slices, budget=budget)))
            assert found <= counting_bound(slices=slices, budget=budget) + 1e-12


@each_measured
def test_a_readme_tells_no_number_that_is_not_in_the_results(name):
    """Every number with a point, or of three digits, is in the settings (with what the paper says) or rounded from the
    summary."""
    config = (FOLDER / name / "config.yaml").read_text()
    found = committed(name)
    known = [value for value in flat({"summary": found["summary"], "seconds": found["seconds"]}).values() if value]
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|arXiv [\d.]+", " ", (FOLDER / name / "README.md").read_text())
    told = re.findall(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)(?![\w])(\s?%)?", text)
    assert told
    for shown, percent in told:
        plain = shown.rstrip(",").replace(",", "")
        places = len(plain.partition(".")[2])
        if (places == 0 and len(plain) < 3) or re.search(rf"(?<![\d.]){re.escape(plain)}(?![\d])", config):
            continue
        # A share; or a ratio, of which is told how far it is from 1.
        meant = [100 * each for value in known for each in (value, value - 1)] if percent else known
        assert any(f"{abs(value):.{places}f}" == plain for value in meant), f"{name}: {shown}{percent}"


def test_drawing_again_needs_the_results_alone(tmp_path, monkeypatch):
    name = "storage"
    (tmp_path / "results.json").write_text((FOLDER / name / "results.json").read_text())
    monkeypatch.setattr(runner, "experiment", None)
    draw(name, tmp_path)
    assert (tmp_path / "figure.png").exists()


def config_of(name, *, smoke=False):
    return load(experiment(name).Config, FOLDER / name / "config.yaml", smoke=smoke)


def trained_in(found):
    """Recipes of what trains models."""
    return [recipe for recipe in found["recipes"].values() if recipe.get("method") != "ridge"]


TIMES = ("seconds", "filling", "ms_a_step", "costs", "repair_seconds", "delete_ms", "answer_ms", "merged", "recipes")
"""And recipes, in which a merged model is named by its folder, which is gone."""


def without_times(rows):
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def paired(name, config, rows):
    return list(zip(rows, experiment(name).points(config), strict=True))


def flat(value, prefix=""):
    """Numbers by where they stand."""
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in flat(inner, f"{prefix}/{key}").items()}
    if isinstance(value, list):
        return {k: v for index, inner in enumerate(value) for k, v in flat(inner, f"{prefix}/{index}").items()}
    return {prefix: json.loads(json.dumps(value))} if isinstance(value, int | float) else {}


def test_the_guide_has_the_table_of_ten_tasks():
    found = results("frontier")
    assert table(found) in (FOLDER / "frontier" / "README.md").read_text()
    assert table(found, leave_out="chains") in (FOLDER.parent / "docs" / "methods.md").read_text()


def test_the_page_on_planning_has_the_hours_of_repair_as_needed():
    page = " ".join((FOLDER.parent / "docs" / "planning.md").read_text().split())
    grown = results("thousand_requests")["summary"]["grown"]
    hours = {each["depth"]: each["hours"] for each in grown["s3t"] if each["spares"]}
    assert f"all four serving, that takes {hours[4]:.2f} hours" in page
    assert f"three serving it takes {hours[3]:.2f} hours" in page
