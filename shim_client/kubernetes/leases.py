"""The lease of the election as a Lease of `coordination.k8s.io/v1`, read and written over a separate connection.

Renewals do not wait behind other requests: the rate limit does not apply to renewals, and no other request uses their
connection.
"""

from __future__ import annotations

from datetime import UTC, datetime

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease as LeaseObject

from shim_client.election.lease import Lease, LeaseError, LeaseTakenError, LeaseWrite
from shim_client.kubernetes.access import NoAccessError, uses_proxy
from shim_client.kubernetes.events import Clock

_MISSING = 404
_CONFLICT = 409
_DURATION_UNKNOWN = 3600.0
"""Seconds to wait for a lease that has a holder but no duration. A lease without a duration was written by another program."""


class KubernetesLease:
    """One Lease of the API server."""

    def __init__(
        self,
        config: SingleConfig,
        namespace: str,
        name: str,
        request_seconds: float,
        now_ms: Clock,
    ) -> None:
        """Open a separate connection for the lease. Raises NoAccessError if the certificates cannot be used."""
        self._namespace, self._name = namespace, name
        self._now_ms = now_ms
        self._found: LeaseObject | None = None
        """The Lease object as it was last read or written.

        The fields of this object that the shim does not know are written back unchanged.
        """
        try:
            self._client = AsyncClient(
                config,
                namespace=namespace,
                timeout=httpx2.Timeout(request_seconds),
                trust_env=uses_proxy(config.cluster.server),
            )
        except (ConfigError, OSError) as error:
            raise NoAccessError(f"the kubeconfig's certificates cannot be used: {error}") from error

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def read(self) -> Lease | None:
        """Return the lease as the API server has it now, or None if there is no lease.

        Raises LeaseError if the request fails.
        """
        try:
            self._found = await self._client.get(LeaseObject, self._name)
        except ApiError as error:
            if error.status.code == _MISSING:
                self._found = None
                return None
            raise LeaseError(f"{error.status.code} {error.status.message}") from error
        except httpx2.HTTPError as error:
            raise LeaseError(f"{type(error).__name__} {error}".rstrip()) from error
        return _lease(self._found)

    async def write(self, change: LeaseWrite) -> Lease:
        """Write the lease if it still has the version that was read. Raises LeaseTakenError, LeaseError."""
        written = self._object(change)
        try:
            if change.version:
                self._found = await self._client.replace(written)
            else:
                self._found = await self._client.create(written)
        except ApiError as error:
            what = f"{error.status.code} {error.status.message}"
            taken = error.status.code in {_CONFLICT, _MISSING}
            raise (LeaseTakenError(what) if taken else LeaseError(what)) from error
        except httpx2.HTTPError as error:
            raise LeaseError(f"{type(error).__name__} {error}".rstrip()) from error
        return _lease(self._found)

    def _object(self, change: LeaseWrite) -> LeaseObject:
        now = _with_fraction(datetime.fromtimestamp(self._now_ms() / 1_000, UTC))
        before = self._found if change.version else None
        old = before.spec if before is not None else None
        is_kept = change.holder and not change.acquires
        acquired = old.acquireTime if old is not None and is_kept else None
        spec = LeaseSpec(
            holderIdentity=change.holder,
            leaseDurationSeconds=change.duration,
            leaseTransitions=change.transitions,
            acquireTime=_with_fraction(acquired) if acquired else now,
            renewTime=now,
        )
        metadata = ObjectMeta(name=self._name, namespace=self._namespace)
        if before is not None and before.metadata is not None:
            metadata.labels = before.metadata.labels
            metadata.annotations = before.metadata.annotations
            metadata.ownerReferences = before.metadata.ownerReferences
        if change.version:
            metadata.resourceVersion = change.version
        return LeaseObject(metadata=metadata, spec=spec)


def _with_fraction(instant: datetime) -> datetime:
    """Return an instant that has a fraction of a second: one microsecond is added to a whole second.

    Python writes a whole second without a fraction, which the API server refuses in a Lease.
    """
    return instant if instant.microsecond else instant.replace(microsecond=1)


def _lease(found: LeaseObject) -> Lease:
    spec = found.spec or LeaseSpec()
    metadata = found.metadata or ObjectMeta()
    holder = spec.holderIdentity or ""
    duration = spec.leaseDurationSeconds or (_DURATION_UNKNOWN if holder else 0)
    return Lease(metadata.resourceVersion or "", holder, duration, spec.leaseTransitions or 0)
