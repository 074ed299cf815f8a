"""What a program gives us to call for its messages: a function, or a coroutine function.

A decorator may hide that a handler is a coroutine function. Calling it then only makes a coroutine, which
nobody would await, and its message would count as done: so whoever calls looks at what is returned.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeGuard

from kourou.errors import ConfigError


def is_async(handler: Callable[..., object]) -> TypeGuard[Callable[..., Awaitable[object]]]:
    """Whether it is to be awaited."""
    if inspect.iscoroutinefunction(handler):
        return True
    call = getattr(type(handler), "__call__", None)  # noqa: B004 - of an object that can be called
    return inspect.iscoroutinefunction(call)


def check_takes_one(handler: Callable[..., object]) -> None:
    """Raises ConfigError for what cannot be called with a message, or a list of them, and nothing else."""
    if not callable(handler):
        raise ConfigError(f"{handler!r} cannot be a handler: it cannot be called")
    try:
        signature = inspect.signature(handler, follow_wrapped=False)  # a decorator may bring the rest
    except ValueError:  # one in C may not tell what it takes
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigError(
            f"{name_of(handler)} cannot be a handler: it is called with the message alone ({error})"
        ) from None


def check_handled(handler: Callable[..., object], returned: object) -> None:
    """Raises ConfigError when a plain function returned something that would have to be awaited."""
    if returned is None or not isinstance(returned, Awaitable):
        return
    if isinstance(returned, Coroutine):
        returned.close()  # or Python complains of one that was never awaited
    raise ConfigError(
        f"{name_of(handler)} returned a {type(returned).__name__}, and has handled nothing: make it, and "
        "whatever wraps it, a coroutine function (`async def`), for AsyncPushConsumer or App"
    )


def name_of(handler: Any) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)
