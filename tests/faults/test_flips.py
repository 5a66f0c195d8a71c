"""A short campaign of random bit flips over all files of a run, and a long one. S3T_FAULT_SEED draws others."""

import os

import pytest

from tests.faults.flips import campaign

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("trials", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused_at_opening_found_by_the_audit_or_harmless(tmp_path, trials):
    said: list[str] = []
    found = campaign(tmp_path, seed=int(os.environ.get("S3T_FAULT_SEED", "20")), trials=trials, say=said.append)
    assert "FAILED" not in found, "\n".join(said)
    assert {"opening", "audit", "harmless"} <= found.keys()
