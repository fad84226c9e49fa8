"""The migrations of the schema, run by Alembic at the start of the writing process."""
