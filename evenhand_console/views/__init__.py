"""The views of the console, in the order of the menu."""

from typing import Any, Final

from evenhand_console.view import View
from evenhand_console.views import overview, queue, queues, waiting, why

VIEWS: Final[tuple[View[Any], ...]] = (
    overview.VIEW,
    queues.VIEW,
    queue.VIEW,
    why.VIEW,
    waiting.VIEW,
)
