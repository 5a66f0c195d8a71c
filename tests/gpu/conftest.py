"""What the tests of a GPU share."""

import pytest
import torch


@pytest.fixture(scope="session")
def cuda():
    """The name of the GPU, or a skip that says that there is none."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU: torch.cuda.is_available() is false here")
    return torch.cuda.get_device_name()
