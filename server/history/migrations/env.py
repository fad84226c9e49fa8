"""The environment of Alembic. Migrations run on the connection of `store.migrate`."""

from alembic import context

from server.history.schema import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
