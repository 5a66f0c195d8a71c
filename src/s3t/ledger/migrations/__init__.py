"""Revisions of the ledger, for alembic. Each is written once and never changed; a new version adds another."""
