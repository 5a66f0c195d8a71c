"""`s3t serve` refuses what it cannot serve before it listens."""

import importlib.util

from tests.cli.typed import problems


def test_wrong_options_are_told_at_once(made, tmp_path):
    run = made / "run"
    found = problems("serve", run, "--port", "70000", "--workers", "0", "--wait-ms", "-1")
    assert [problem.partition(":")[0] for problem in found] == ["port", "workers", "wait"]
    assert "there is no scope 'delet'" in problems("serve", run, "--open", "delet")[0]
    assert "two runs are called run" in problems("serve", run, run)[0]


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    assert "no run" in problems("serve", tmp_path)[0]


def test_without_the_extra_it_says_what_to_install(made, monkeypatch):
    usual = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else usual(name))
    (problem,) = problems("serve", made / "run")
    assert problem.startswith("serve needs uvicorn; install with: pip install")
