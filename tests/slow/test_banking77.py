"""banking77 with a real MiniLM: slice-wise training comes close to one adapter trained on everything."""

import pytest

from benchmarks import banking77

pytestmark = pytest.mark.slow


def test_slice_wise_training_comes_close_to_one_adapter_on_everything(real_data, tmp_path):
    result = {part: banking77.measure(part, tmp_path / part, real_data) for part in banking77.PARTS}
    sliced, whole = result["slice_wise"]["accuracy"], result["one_adapter"]["accuracy"]
    print(f"\nslice-wise {sliced:.4f}, one adapter {whole:.4f}")
    assert sliced >= 0.90
    assert sliced >= whole - 0.02
    by_depth = [entry["accuracy"] for entry in result["slice_wise"]["per_depth"]]
    assert by_depth == sorted(by_depth)
