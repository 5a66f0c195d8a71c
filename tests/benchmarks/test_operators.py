"""The profile of a step: its arithmetic, and that it works."""

import json
import sys

import pytest

from benchmarks import operators


def test_shares_add_up_to_the_epoch_and_only_the_bases_products_have_a_rate():
    found = operators.summary(
        10.0,
        5.0,
        [
            ("aten::addmm", [[6], [4, 8], [8, 6]], 2.0, 3),
            ("aten::addmm", [[4, 6], [4, 16], [16, 6]], 1.0, 1),
            ("aten::bmm", [[2, 4, 8], [2, 8, 4]], 1.0, 1),
            ("aten::add", [[2, 1, 4, 4], [2, 1, 1, 4]], 0.5, 1),
            ("aten::add", [[4, 6], [4, 6]], 0.5, 1),
            ("aten::native_layer_norm_backward", [[4, 6]], 1.0, 1),
            ("aten::_fused_adamw_", [], 1.0, 1),
            ("aten::something", [[3]], 1.0, 1),
        ],
        peak=1_000.0,
    )
    shares = {kind: share for kind, share in found["shares"].items() if share}
    wanted = {"base": 0.2, "lora": 0.1, "attention": 0.15, "sums": 0.05, "norm": 0.1, "optimiser": 0.1}
    assert shares == pytest.approx(wanted | {"other": 0.1, "between": 0.2})
    assert found["rate_of_base"] == pytest.approx(3 * 2 * 4 * 8 * 6 / 1.0 / 1_000)
    assert found["most_of_other"] == {"aten::something": 1.0}


@pytest.mark.slow
def test_it_profiles_every_stage_in_both_precisions(real_data, tmp_path, monkeypatch, capsys):
    results = tmp_path / "operators.json"
    arguments = ["operators", "--quick", "--json", "--data", str(real_data), "--results", str(results)]
    monkeypatch.setattr(sys, "argv", arguments)
    operators.main()
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(results.read_text())
    for stages in found["profiles"].values():
        assert len(stages) == 3
        for stage in stages:
            assert sum(stage["shares"].values()) == pytest.approx(1)
            assert 0 < stage["rate_of_base"] < 1
            assert stage["shares"]["other"] < 0.05
