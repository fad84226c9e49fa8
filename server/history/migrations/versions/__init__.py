"""The versions of the schema, one module for each."""
