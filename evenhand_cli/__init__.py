"""The command line `evenhand`."""

import server  # noqa: F401 - before gRPC, see there
