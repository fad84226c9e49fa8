"""The scheduler core and the gRPC service around it."""

import os
import sys
from typing import Final

_FORK_SUPPORT: Final = "GRPC_ENABLE_FORK_SUPPORT"

MAY_FORK: Final = "grpc" not in sys.modules or os.environ.get(_FORK_SUPPORT) == "0"
"""Whether this process may be copied (`rpc/copies`). gRPC reads the variable once, when it is imported.

Unless the variable is 0 when gRPC is imported, gRPC starts its threads again in every child process. In the child, gRPC's threads
fail because the state that they expect is missing, and they end the process.
"""

os.environ[_FORK_SUPPORT] = "0"
