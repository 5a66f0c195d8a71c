import pytest

from benchmarks import plain
from tests.benchmarks.small import ADAPTER, TRAINING


@pytest.fixture
def setting(text_model):
    """The plain procedure on the tiny model."""
    return plain.Plain(folder=text_model, labels=["a", "b", "c"], adapter=ADAPTER, training=TRAINING, max_length=20)
