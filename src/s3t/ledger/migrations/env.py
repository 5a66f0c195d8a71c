"""What alembic runs: the revisions, in the connection and the transaction of whoever asked (`migrating.py`)."""

from alembic import context

from s3t.ledger.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
