"""Stable codes for why something waits, was refused or was noted. Messages may change, codes do not."""

import enum


class Code(enum.StrEnum):
    """One code, one meaning. Waiting codes first, then refusals and notes."""

    # Why an ask waits.
    NOT_SYNCED = "not-synced"
    QUEUE_STOPPED = "queue-stopped"
    QUEUE_LIMIT = "queue-limit"
    USER_LIMIT = "user-limit"
    GROUP_LIMIT = "group-limit"
    APPLICATION_LIMIT = "application-limit"
    NO_NODE = "no-node"
    NO_NODE_CONSTRAINTS = "no-node-constraints"
    NO_NODE_CAPACITY = "no-node-capacity"
    NO_NODES = "no-nodes"
    GANG_GATHERING = "gang-gathering"
    GANG_PARTIAL = "gang-partial"
    NOT_TRIED = "not-tried"
    # What happened.
    RESERVED = "reserved"
    RESERVATION_DROPPED = "reservation-dropped"
    ASK_TIMEOUT = "ask-timeout"
    NODE_AVOIDED = "node-avoided"
    NODE_LOST = "node-lost"
    NODE_OVERCOMMITTED = "node-overcommitted"
    CONFIGURATION_APPLIED = "configuration-applied"
    CONFIGURATION_REFUSED = "configuration-refused"
    QUEUE_CREATED = "queue-created"
    QUEUE_REMOVED = "queue-removed"
    QUEUE_DRAINING = "queue-draining"
    OVER_MAX = "over-max"
    MANAGER_REGISTERED = "manager-registered"
    MANAGER_REPLACED = "manager-replaced"
    SYNC_COMPLETE = "sync-complete"
    SYNC_MISMATCH = "sync-mismatch"
    RELEASE_UNKNOWN = "release-unknown"
    DISRUPTIONS_REFUSED = "disruptions-refused"
    FORCED_APPLICATION = "forced-application"
