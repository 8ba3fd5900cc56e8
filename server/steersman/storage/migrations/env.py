"""What Alembic runs: the migrations on the connection that it is given, in the transaction that is open there."""

from alembic import context

from steersman.storage.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
