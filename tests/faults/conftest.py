"""One fork server for all tests of a worker, and one without a PostgreSQL."""

from collections.abc import Iterator

import pytest

from testing.postgres import PostgresServer
from tests.faults.client import Client, serving


@pytest.fixture(scope="session")
def client(postgres: PostgresServer) -> Iterator[Client]:
    with serving(postgres.create_database("faults")) as client:
        yield client


@pytest.fixture(scope="session")
def client_on_sqlite() -> Iterator[Client]:
    with serving() as client:
        yield client
