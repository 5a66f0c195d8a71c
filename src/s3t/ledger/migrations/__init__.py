"""alembic's scripts. Each revision is written down once and never changed; a new version adds another."""
