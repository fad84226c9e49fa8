"""`python -m server`: the server without the command line. The options are those of `evenhand serve`."""

import argparse
import sys
from pathlib import Path

from server.bootstrap import DEFAULT_LISTEN, ServeOptions, run
from server.rpc.access import Access


def options(arguments: list[str]) -> ServeOptions:
    """Return the options from the arguments."""
    parser = argparse.ArgumentParser(prog="python -m server", description=__doc__)
    parser.add_argument("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT")
    parser.add_argument("--config", type=Path, metavar="FILE")
    parser.add_argument("--metrics", metavar="HOST:PORT")
    parser.add_argument("--health", metavar="HOST:PORT")
    parser.add_argument("--insecure", action="store_true")
    for name in ("decision-log", "trace"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE")
    parser.add_argument("--durable", action="store_true")
    parser.add_argument("--state-dir", type=Path, metavar="DIR")
    parser.add_argument("--history", default="", metavar="FILE|URL|off")
    for name in ("tls-cert", "tls-key", "tls-client-ca", "tokens", "roles"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    access = Access(
        given.insecure,
        given.tls_cert,
        given.tls_key,
        given.tls_client_ca,
        given.tokens,
        given.roles,
    )
    return ServeOptions(
        given.listen,
        given.config,
        given.metrics,
        access,
        given.health,
        given.decision_log,
        given.trace,
        given.state_dir,
        durable=given.durable,
        history=given.history,
    )


if __name__ == "__main__":
    sys.exit(run(options(sys.argv[1:])))
