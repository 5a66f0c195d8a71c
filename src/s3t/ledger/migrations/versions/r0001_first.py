"""The first revision. `create_tables` creates new ledgers from `schema.py`, at the newest revision.

A later revision upgrades ledgers that an older version created.
"""

revision = "0001"
down_revision = None
