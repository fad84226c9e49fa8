"""Access to the API server: kubeconfig, service account, TLS, timeouts."""

from __future__ import annotations

import ipaddress
import os
import ssl
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx2
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import DEFAULT_KUBECONFIG, KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError

from shim_client.kubernetes.slots import Slots

CONNECTIONS_MAX = 64
"""Maximum number of connections through a proxy.

This number is greater than the sum of the requests in flight and the watches.
"""
CONNECTION_IDLE_SECONDS = 60.0
CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0
"""Longest time, in seconds, without data within an answer."""


class NoAccessError(Exception):
    """A missing or unusable configuration of the API server; the message says which sources were tried."""


def access_config(kubeconfig: Path | None, context: str | None) -> SingleConfig:
    """Return the configuration for the connection to the API server.

    Raises NoAccessError if no source has a usable configuration.

    The sources of a configuration are tried in this order: the given file, `KUBECONFIG`, the pod's own service
    account, and the usual file in the home directory.
    """
    try:
        config = _configuration(kubeconfig).get(context)
    except (ConfigError, OSError, KeyError, ValueError, TypeError) as error:
        raise NoAccessError(f"no way to reach a Kubernetes API server: {error}") from error
    if config is None or config.user is None:
        raise NoAccessError("the kubeconfig's context names no user")
    return config


def _configuration(kubeconfig: Path | None) -> KubeConfig:
    named = kubeconfig or os.environ.get("KUBECONFIG")
    if named:
        return KubeConfig.from_file(named)
    try:
        return KubeConfig.from_service_account()
    except (ConfigError, KeyError):
        return KubeConfig.from_file(DEFAULT_KUBECONFIG)


def http_client(config: SingleConfig) -> httpx2.AsyncClient:
    """Return a client for one API server. Raises NoAccessError if the certificates cannot be used."""
    assert config.user is not None
    try:
        trust = verify_cluster(config.cluster, config.user, config.abs_file)
        auth = user_auth(config.user)
    except (ConfigError, OSError) as error:
        raise NoAccessError(f"the kubeconfig's certificates cannot be used: {error}") from error
    server = config.cluster.server
    proxied = uses_proxy(server)
    return httpx2.AsyncClient(
        base_url=server,
        verify=trust,
        auth=auth,
        timeout=httpx2.Timeout(ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX, pool=None),
        limits=_limits(CONNECTIONS_MAX),
        transport=None if proxied else Slots(partial(_single, trust)),
        trust_env=proxied,
    )


def _single(trust: ssl.SSLContext) -> httpx2.AsyncBaseTransport:
    """Return an HTTP transport with one connection."""
    return httpx2.AsyncHTTPTransport(verify=trust, limits=_limits(1), trust_env=False)


def _limits(connections: int) -> httpx2.Limits:
    return httpx2.Limits(
        max_connections=connections,
        max_keepalive_connections=connections,
        keepalive_expiry=CONNECTION_IDLE_SECONDS,
    )


def uses_proxy(server: str) -> bool:
    """Return whether requests to the server go through a proxy that the environment names."""
    return bool(getproxies()) and not _is_loopback(server)


def _is_loopback(server: str) -> bool:
    """Return whether the server is on this machine. Requests to a server on this machine use no proxy."""
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
