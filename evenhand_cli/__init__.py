"""The command line `evenhand`."""

import server  # noqa: F401 - to be imported before gRPC, for the reason given in that module
