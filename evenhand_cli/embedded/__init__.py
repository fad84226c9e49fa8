"""Commands on a running embedded cluster, and what its shim keeps and offers."""
