"""The address of a core, the credentials of the shim, and the channels to the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import grpc
from grpc.aio import Channel, Metadata

CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

QUICK_OPTIONS = (
    *CHANNEL_OPTIONS[:3],
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 400),
    ("grpc.keepalive_timeout_ms", 700),
    ("grpc.http2.ping_timeout_ms", 700),
    ("grpc.http2.max_pings_without_data", 0),
)
"""The options of a channel to one of several cores.

The channel sends pings, and the connection ends if the core does not answer a ping in time. The option of the ping
timeout sets the time after which the connection ends. Without this option, gRPC 1.85 waits a minute, whatever the
keepalive timeout is. In the core, a thread of gRPC answers pings, so that a core that is busy with a long decision
still answers.
"""

Secrets = tuple[grpc.ChannelCredentials | None, str]
"""The credentials of a channel, and the token of each call ("" for no token)."""


@dataclass(frozen=True, slots=True)
class CoreAddress:
    """The address of the core, and the credentials of the shim."""

    target: str
    credentials: grpc.ChannelCredentials | None = None
    token: str = field(default="", repr=False)
    renew: Callable[[], Secrets] | None = field(default=None, repr=False, compare=False)
    """A function that returns the credentials and the token that are valid now.

    If nothing has changed, the function returns the objects of its last call.
    """

    def renewed(self) -> CoreAddress:
        """Return the address with the credentials that are valid now, or this object if nothing has changed."""
        if self.renew is None:
            return self
        credentials, token = self.renew()
        if credentials is self.credentials and token == self.token:
            return self
        return replace(self, credentials=credentials, token=token)

    def channel(self, *, quick: bool = False) -> Channel:
        """Return a channel to the core, which connects when it is first used.

        A `quick` channel notices within a second that the core is gone.
        """
        options = QUICK_OPTIONS if quick else CHANNEL_OPTIONS
        if self.credentials is None:
            return grpc.aio.insecure_channel(self.target, options=options)
        return grpc.aio.secure_channel(self.target, self.credentials, options=options)

    def metadata(self) -> Metadata:
        """Return the metadata that every call carries."""
        return Metadata(("authorization", f"Bearer {self.token}")) if self.token else Metadata()
