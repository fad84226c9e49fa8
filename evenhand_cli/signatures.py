"""Options that several commands share: the parameters of a wrapper are added to the parameters of the command."""

import inspect
from collections.abc import Callable
from typing import Any

Command = Callable[..., Any]


def joined(command: Command, wrapper: Command, *, keep_first: bool = False) -> Command:
    """Return the wrapper with the options of the command as parameters, followed by the wrapper's own options.

    The wrapper provides the command's first parameter. With `keep_first` the command's first parameter is also a parameter of the
    wrapper. The wrapper's last parameter is a mapping with the command's options.
    """
    first, *own = inspect.signature(command, eval_str=True).parameters.values()
    of_wrapper = list(inspect.signature(wrapper, eval_str=True).parameters.values())[:-1]
    shared = of_wrapper[1:] if keep_first else of_wrapper
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *shared)]
    if keep_first:
        parameters.insert(0, first)
    wrapper.__doc__ = command.__doc__
    wrapper.__name__ = command.__name__
    wrapper.__annotations__ = {one.name: one.annotation for one in parameters}
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return wrapper
