"""The time slice of a process: how long the kernel lets the process run before it may switch to another process.

Since Linux 6.6 a process that runs keeps its processor for its slice, whatever the priority of a process that wakes up
meanwhile. The usual slice is 1 to 3 ms. Since Linux 6.12 a process may ask for a slice of another length. A process that wakes
up takes the processor at once from a process with a longer slice, unless the waking process has used up its own share of the
processor. This share depends on the nice value alone, so a core that has just used up its share may wait for a copy. With the
policy SCHED_IDLE, copies would delay the core less, but would get no processor time beside a busy core.
"""

import ctypes
import os
import platform
import struct
import sys
from typing import Final

LONG_NS: Final = 10_000_000
"""The slice in nanoseconds for which a process of low priority asks. The kernel accepts 0.1 to 100 ms."""
_CALLS: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""The number of the system call `sched_setattr` by machine. Python and older C libraries have no function for this call."""
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQII")
"""The kernel's `sched_attr`: size, policy, flags, nice value, priority, runtime (here the slice), deadline, period, two limits."""
_LIBRARY: Final = ctypes.CDLL(None) if sys.platform == "linux" else None
"""The C library. A copy of a process cannot load the library, because another thread may have held the lock of the loader."""


def give_way(slice_ns: int = LONG_NS) -> None:
    """Ask for a slice of this length for the calling thread, so that threads with a slice of the usual length can interrupt it.

    Do nothing if the kernel does not support slices, refuses the request, or schedules the thread by another policy than the
    usual one.
    """
    call = _CALLS.get(platform.machine())
    if _LIBRARY is None or call is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0, 0, 0)
    _LIBRARY.syscall(call, 0, wanted, 0)
