"""The limits of the wire: each has a name and a test. A message or stream that exceeds a limit is refused, never cut silently."""

from typing import Final

MESSAGE_BYTES_MAX: Final = 4 << 20
"""The largest number of bytes of one message from a client. gRPC itself answers a larger message with RESOURCE_EXHAUSTED."""

OBJECTS_MAX: Final = 10_000
"""The largest number of objects in one message from a client.

Objects are asks, allocations, releases, vetoes, disruption budgets, nodes and applications.
"""

NAME_CHARACTERS_MAX: Final = 1_024
"""The largest number of characters of a key, an id or a queue name."""

LISTED_MAX: Final = 5_000
"""The largest number of entries of one list or map inside an object, such as the tolerations or resource types of an ask."""

PREFERENCE_WEIGHT_MAX: Final = 1_000_000
"""The largest absolute weight of a node preference."""

SECONDS_MAX: Final = 10**10
"""The largest duration or instant in seconds. This limit keeps milliseconds far below 2^62."""

EPOCH_MAX: Final = 2**62 - 1
"""The largest epoch of a registration."""

MEMBERS_MAX: Final = 100_000
"""The largest number of members that a gang may need."""

INT64_MAX: Final = (1 << 63) - 1
"""The largest sum that a message can hold. A larger sum is sent as this number."""

RESPONSE_OBJECTS_MAX: Final = 1_000
RESPONSE_BYTES_MAX: Final = 1 << 20
"""The number of objects and bytes at which a response is cut (design 1.2). A single object may be larger."""

OUTBOX_OBJECTS_MAX: Final = 200_000
OUTBOX_BYTES_MAX: Final = 128 << 20
"""The number of objects and bytes that may wait for one stream. If more would wait, the stream ends with RESOURCE_EXHAUSTED."""

LAST_WRITE_S: Final = 0.5
"""The seconds that the writing of a message may still take when its stream ends with an error.

Without this limit, a client that does not read would keep the stream open for ever.
"""

DRAIN_WRITE_S: Final = 2.0
"""The seconds that a drain waits for a client that reads no message.

A client that reads gets its messages until the drain ends.
"""

OUTBOX_OBJECTS_CONGESTED: Final = 10_000
"""The number of waiting objects above which the pump pauses before the next slice, so that streams can write."""

BREATHS_MAX: Final = 64
"""The largest number of times that the pump yields to the event loop after a slice, so that streams can write the waiting objects."""

WRITING_LOOK_S: Final = 0.0005
WRITING_LOOKS_MAX: Final = 40
"""The seconds between two checks of whether all streams have written their objects, and the largest number of checks.

The pump makes these checks before it counts as idle. The number is limited because a client may be slow.
"""

MANAGERS_MAX: Final = 64
"""The largest number of resource managers registered at once.

At this limit, a new manager can register only if a manager that is gone (`MANAGER_GONE_MS`) can be removed.
"""

STREAMS_MAX: Final = 4 * MANAGERS_MAX
"""The largest number of streams of `si.v1` open at once: three for each manager, and one for a stream that replaces another."""

MANAGER_GONE_MS: Final = 600_000
"""The milliseconds without a stream after which a manager counts as gone. A manager with objects in the core never counts as gone."""

FIRST_MESSAGE_MS: Final = 30_000
"""The milliseconds within which a stream has to name its manager. A stream that takes longer is ended if another stream needs its place."""

REGISTRATION_WAIT_S: Final = 2.0
"""The seconds that the first message of a stream waits at most while its manager registers again."""

INSTANCES_ASIDE_MAX: Final = 32
"""The number of processes of one resource manager that are remembered as replaced."""

WATCHERS_MAX: Final = 64
"""The largest number of watch streams open at once."""

CALLER_MANAGERS_MAX: Final = 32
"""The largest number of resource managers that one shim's role may register, so that one role cannot take all places."""

CALLER_STREAMS_MAX: Final = 3 * CALLER_MANAGERS_MAX
CALLER_WATCHES_MAX: Final = 32
CALLER_SIMULATIONS_MAX: Final = 8
CALLER_REGISTRATIONS_MAX: Final = 32
CALLER_READS_MAX: Final = 32
CALLER_REFLECTIONS_MAX: Final = 8
"""The largest number of calls of each kind that one caller may have open at once.

These limits do not apply on an open port, because callers cannot be told apart there.
"""

SIMULATIONS_MAX: Final = 256
REGISTRATIONS_MAX: Final = 64
READS_MAX: Final = 512
REFLECTIONS_MAX: Final = 64
CHECKS_MAX: Final = 1_024
"""The largest number of calls of each kind that all callers together may have open at once.

`STREAMS_MAX`, `WATCHERS_MAX` and `HEALTH_WATCHES_MAX` limit the other kinds.
"""

REQUEST_S: Final = 30.0
"""The seconds within which a call that has one request must send this request."""

HEALTH_WATCHES_MAX: Final = 256
"""The largest number of watches of health open at once: every caller that reaches the port may open them, without a role."""

INBOX_EVENTS_MAX: Final = 50_000
"""The largest number of events waiting for the core. While more wait, readers pause, and gRPC's flow control stops the clients."""

SLICE_EVENTS_MAX: Final = 2_000
"""The largest number of events handled before the core ticks. A message with more events is a slice of its own."""

PIECE_EVENTS_MIN: Final = 8
PIECE_EVENTS_MAX: Final = 250
PIECE_S: Final = 0.01
"""The least and the largest number of events in one piece of a slice, and the seconds that a piece should take.

The number is adapted to the time that the last pieces took.
"""

TURN_S: Final = 0.02
"""The seconds that a slice runs before it yields to the event loop between two pieces of events."""

TURNS: Final = 8
"""The number of times that a slice yields to the event loop between two pieces. This number is enough to receive and answer a call."""

CHECK_WAIT_S: Final = 0.001
CHECK_WAITS_MAX: Final = 5
"""The seconds of one wait for open health checks, and the largest number of waits.

The pump waits for health checks after work that took longer than `TURN_S`.
"""

WIPE_OBJECTS: Final = 1_000
"""The number of asks and allocations that one event ends when a manager registers again.

An event with this number of objects takes about 6 ms.
"""

STEP_OBJECTS: Final = 250
STEP_BYTES: Final = 1 << 16
"""The number of objects and of bytes of a message that are decoded in one step, not counting asks on the fast path.

Between two steps, the event loop runs other tasks.

A step takes 5 to 15 ms.
"""

GATHER_EVENTS: Final = 2_000
GATHER_S: Final = 0.002
GATHER_TIMES_MAX: Final = 10
"""The number of events for which the pump waits in a backlog, the seconds of one wait, and the largest number of waits.

The wait is worthwhile because one slice of a hundred messages takes much less time than a hundred slices.
"""

TICK_BUDGET: Final = SLICE_EVENTS_MAX + 100
"""The largest number of steps of one tick.

This number of steps is enough to place the asks of a full slice. Plans take at most `core.PLANNING` of the steps. The number is
small, so that health checks and streams never wait long behind a slice.
"""

TICK_BUDGET_MIN: Final = 500
TICK_S: Final = 0.04
"""The largest number of seconds of a tick. If steps take long, a tick gets fewer steps, but never fewer than `TICK_BUDGET_MIN`."""

TEMPLATES_MAX: Final = 65_536
"""The largest number of encodings of ask templates that the codec caches.

One template may have several encodings, because the order of the entries of a map is not fixed.
"""

PIECES_MAX: Final = 65_536
"""The largest number of encoded pieces that the encoder caches of each kind (nodes, applications, templates)."""

EVENTS_KEPT_MAX: Final = 10_000
"""The largest number of event records kept for WatchEvents."""

DECISION_CHANGES_KEPT_MAX: Final = 4_000
"""The largest number of changes of decisions kept for WatchDecisions."""

VICTIMS_TOLD_MAX: Final = 20_000
"""The largest number of victims that one message names. This number of victims takes about 5 MiB."""

KINDS_INTERVAL_S: Final = 0.05
"""The seconds between two responses of WatchEvents that have only the kinds of events."""

PAGE_MAX: Final = 5_000
"""The largest number of objects in one page of a listing. A request for a larger page gets this size."""

SIMULATED_ASKS_MAX: Final = 1_000
"""The largest number of asks in one simulation."""

WATCH_INTERVAL_MS_MIN: Final = 100
WATCH_INTERVAL_MS_DEFAULT: Final = 500
WATCH_INTERVAL_MS_MAX: Final = 60_000
"""The shortest, the default and the longest time in milliseconds between two pictures of a watch.

A request for a shorter or longer interval gets the shortest or longest interval. A request for 0 gets the default.
"""

CONFIGURATION_BYTES_MAX: Final = 2 << 20
"""The largest number of bytes of a queue configuration in UTF-8."""

SHORT_CONFIGURATION_CHARACTERS: Final = 4_096
"""The largest number of characters of a configuration that is read in the event loop.

Longer configurations are read in a process of `configuration_reading`.
"""

FIRST_READING_S: Final = 1.0
"""The seconds that the first process of `configuration_reading` spends on a configuration.

The second process reads a slower configuration again.
"""

READING_START_S: Final = 30.0
"""The seconds that a process of `configuration_reading` may take to start."""

READINGS_MAX: Final = 32
CALLER_READINGS_MAX: Final = 1
"""The largest number of configurations that are being read or wait to be read: of all callers together, and of one caller.

On an open port only the first limit applies.
"""

STATUS_BYTES_MAX: Final = 4_096
"""The largest number of bytes of an error in gRPC's headers.

The headers have the error's message percent-encoded, and its details in base64. The four limits below ensure this size.
"""

STATUS_MESSAGE_BYTES_MAX: Final = 700
"""The largest number of bytes of the message of an error, percent-encoded."""

VIOLATION_BYTES_MAX: Final = 400
VIOLATIONS_BYTES_MAX: Final = 1_500
"""The largest number of bytes of one violation in an error, its path included, and of all violations in an error.

Violations beyond the second limit are only counted.
"""

NAME_BYTES_MAX: Final = 200
"""The largest number of bytes of a path or a name that an error repeats."""

READS_WAITING_MAX: Final = 512
"""The largest number of reads and simulations that wait for their answers at once."""

COPIES_MAX: Final = 4
"""The largest number of copies of the process that answer reads at once."""

COPY_CPU_S_MAX: Final = 30
"""The seconds of processor time that a copy has for its reads."""

COPY_S_MAX: Final = 120.0
"""The seconds after which a copy ends, even if it got little processor time because of other work."""

FOLLOWERS_MAX: Final = 8
"""The largest number of followers of one core."""
POSITION_WAIT_S: Final = 2.0
"""The seconds that a call waits on a follower for the position that it asks for."""
POSITION_LOOK_S: Final = 0.02
"""The seconds after which a waiting call compares positions again, because ticks without events wake no waiting call."""
ALIVE_S: Final = 1.0
"""The seconds without input after which a leader sends its followers a message that says that it still runs."""
CHECKPOINT_PART_BYTES: Final = 1 << 20
"""The largest number of bytes of a checkpoint in one message."""
MOVE_BYTES_MAX: Final = 64 << 20
"""The largest number of bytes of the copy of a partition that moves to another group of cores."""

KEPT_OBJECTS_MAX: Final = 20_000
"""The largest number of decisions of one stream that are kept for a session that may be resumed (design 7.5)."""
KEPT_BYTES_MAX: Final = 8 << 20
"""The largest number of bytes of the decisions that are kept for one stream."""
LEVEL_S: Final = 2.0
"""The seconds that a registration which resumes a session waits for the last input of the previous leader."""
