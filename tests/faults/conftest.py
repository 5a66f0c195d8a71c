"""One fork server for all tests of a worker."""

from collections.abc import Iterator

import pytest

from tests.faults.client import Client, serving


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    with serving() as client:
        yield client
