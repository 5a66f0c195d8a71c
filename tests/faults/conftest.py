"""One fork server for all tests of a worker."""

from collections.abc import Iterator

import pytest

from testing.postgres import PostgresServer
from tests.faults.client import Client, serving


@pytest.fixture(scope="session")
def client(postgres: PostgresServer) -> Iterator[Client]:
    with serving(postgres.create_database("faults")) as client:
        yield client
