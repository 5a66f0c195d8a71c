"""A short campaign of random bit flips over all files of a run; a long one: `python -m tests.faults.flips`."""

import pytest

from tests.faults.flips import campaign

pytestmark = pytest.mark.integration

SEED, TRIALS = 20, 40


def test_a_flipped_bit_is_refused_at_opening_found_by_the_audit_or_harmless(tmp_path):
    said: list[str] = []
    results = campaign(tmp_path, seed=SEED, trials=TRIALS, say=said.append)
    assert [found for _, found, _ in results if found == "FAILED"] == [], "\n".join(said)
    assert {"opening", "audit", "harmless"} <= {found for _, found, _ in results}
