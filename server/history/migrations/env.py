"""The environment of Alembic: migrations run on the connection that `store.migrate` gives."""

from alembic import context

from server.history.schema import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
