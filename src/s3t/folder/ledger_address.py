"""The database of a run's ledger: its URL and address."""

from __future__ import annotations

import os

from s3t.errors import RunFolderError
from s3t.extras import how_to_install
from s3t.folder.layout import Layout
from s3t.ledger import Address, PostgresAddress
from s3t.recipe import Recipe

VARIABLE = "S3T_LEDGER"


def ledger_url(recipe: Recipe) -> str | None:
    """The database that a new run's ledger shall be in: the recipe's, else the environment's; None for SQLite."""
    return recipe.ledger or os.environ.get(VARIABLE) or None


def ledger_address(layout: Layout, *, url: str | None, run: str) -> Address:
    """The address of a run's ledger.

    Args:
        url: URL of the database, None for SQLite in the folder; S3T_LEDGER overrides it, and may hold a password.
    """
    if url is None:
        return layout.ledger
    given = os.environ.get(VARIABLE)
    try:
        address = PostgresAddress.of(given or url, run=run)
        import psycopg  # noqa: F401
    except ValueError as error:
        raise RunFolderError(VARIABLE if given else str(layout.root), f"its ledger {error}") from None
    except ImportError as error:
        raise RunFolderError(
            str(layout.root),
            f"its ledger is in PostgreSQL ({error}); install the driver with: {how_to_install('postgres')}",
        ) from error
    return address
