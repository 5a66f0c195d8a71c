"""Every test of the ledger runs on SQLite and on a real PostgreSQL server."""

import secrets

import pytest

from s3t.ledger import PostgresAddress
from tests.ledger.world import make_ledger, open_ledger


@pytest.fixture(scope="session")
def database(postgres):
    """A PostgreSQL database; each test has a schema of its own in it."""
    return postgres.create_database("ledgers")


@pytest.fixture
def schema_of_its_own(database):
    """An address on PostgreSQL; nothing is there yet."""
    return PostgresAddress.of(database, run=secrets.token_hex(8))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.integration)])
def address(request, tmp_path):
    """Where a ledger can be; nothing is there yet."""
    return tmp_path / "ledger.sqlite" if request.param == "sqlite" else request.getfixturevalue("schema_of_its_own")


@pytest.fixture
def ledger(address):
    """A ledger of six records in three slices, with four live stages."""
    ledger = make_ledger(address)
    yield ledger
    ledger.close()


@pytest.fixture
def other(ledger, address):
    """The same ledger, as another process has it open."""
    ledger = open_ledger(address)
    yield ledger
    ledger.close()
