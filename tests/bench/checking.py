"""A process that repeatedly checks a core's health while another process sends work to it.

Run as ``python -m tests.bench.checking ADDRESS``; it checks until standard input ends. It prints a line as soon as it
is connected, and at the end the waits in milliseconds as JSON.
"""

import json
import sys
import threading
import time
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

PAUSE_S = 0.003
"""The pause between an answer and the next check."""
PATIENCE_S = 30.0


def check(address: str, ended: threading.Event) -> list[float]:
    """Return how long each check waited for its answer, in milliseconds, until the event is set."""
    waits: list[float] = []
    with grpc.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        print("connected", flush=True)  # noqa: T201 - the sign for the parent process
        while not ended.wait(PAUSE_S):
            started = time.perf_counter()
            stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
            waits.append(1_000 * (time.perf_counter() - started))
    return waits


def main(address: str) -> list[float]:
    """Check until standard input ends, and return the waits."""
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    return check(address, ended)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))  # noqa: T201 - the answer to the parent process
