"""The benchmark of language models runs, and the docs tell what it wrote."""

import json

import pytest

from benchmarks import language
from tests.benchmarks.test_docs import PAGE, listed, row


def test_the_docs_tell_what_was_measured():
    found = json.loads(language.RESULTS.read_text())
    ours = found["training"]["tokens_a_second"]["s3t"]
    for name, what in (("plain", "drawn at random"), ("grouped", "of similar length")):
        against = found["training"]["against"][name]
        rates = f"{ours:,.0f}, {found['training']['tokens_a_second'][name]:,.0f}"
        assert row(what, [f"{against['times_as_fast']:.2f}", listed(against["by_stage"]), rates]) in PAGE
    for precision in ("float32", "bfloat16"):
        each = found["writing"][precision]
        times = [f"{each['milliseconds'][name]:.1f}" for name in ("one", "peft", "five")]
        assert row(precision, [*times, f"{each['one_over_peft']:.2f}", f"{each['five_over_one']:.2f}"]) in PAGE


@pytest.mark.integration
def test_every_part_runs_with_a_tiny_model(real_data, tmp_path, monkeypatch):
    monkeypatch.setenv("S3T_DATA", str(real_data))
    monkeypatch.setattr("sys.argv", ["language", "--quick", "--json", "--results", str(tmp_path / "found.json")])
    language.main()
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found) == {"training", "writing"}
    assert all(len(each["by_stage"]) == language.SLICES for each in found["training"]["against"].values())
