"""The schema's versions, for Alembic. They are never changed; a new schema is a new version."""
