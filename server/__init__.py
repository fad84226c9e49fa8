"""The scheduler core and the gRPC service around it."""

import os
import sys
from typing import Final

_FORK_SUPPORT: Final = "GRPC_ENABLE_FORK_SUPPORT"

MAY_FORK: Final = "grpc" not in sys.modules or os.environ.get(_FORK_SUPPORT) == "0"
"""Whether this process may be copied by a fork (`rpc/copies`).

The library gRPC reads GRPC_ENABLE_FORK_SUPPORT once, when it is imported. If the variable GRPC_ENABLE_FORK_SUPPORT is not 0 at
that time, gRPC starts its threads again in every child process. These threads fail because the state that they expect is
missing in the child, and their failure ends the child.
"""

os.environ[_FORK_SUPPORT] = "0"
