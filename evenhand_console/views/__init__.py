"""The views of the console, in the order of the menu."""

from typing import Any, Final

from evenhand_console.view import View
from evenhand_console.views import (
    configurations,
    decision,
    decisions,
    nodes,
    overview,
    protected,
    queue,
    queues,
    restarts,
    shadow,
    tenant,
    timers,
    waiting,
    why,
)

VIEWS: Final[tuple[View[Any], ...]] = (
    overview.VIEW,
    queues.VIEW,
    queue.VIEW,
    waiting.VIEW,
    why.VIEW,
    decisions.VIEW,
    decision.VIEW,
    timers.VIEW,
    nodes.VIEW,
    protected.VIEW,
    shadow.VIEW,
    configurations.VIEW,
    restarts.VIEW,
    tenant.VIEW,
)
