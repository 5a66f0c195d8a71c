"""Every test of the ledger runs on SQLite and on a real PostgreSQL server."""

import secrets
import shutil
from contextlib import closing
from pathlib import Path

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


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The ledger of `world.py` in SQLite, to be copied: that takes a twentieth of making one."""
    path = tmp_path_factory.mktemp("made") / "ledger.sqlite"
    make_ledger(path).close()
    return path


@pytest.fixture
def ledger(address, made):
    """A ledger of six records in three slices, with four live stages."""
    if isinstance(address, Path):
        shutil.copy(made, address)
    with closing(open_ledger(address) if isinstance(address, Path) else make_ledger(address)) as ledger:
        yield ledger


@pytest.fixture
def other(ledger, address):
    """The same ledger, as another process has it open."""
    with closing(open_ledger(address)) as ledger:
        yield ledger
