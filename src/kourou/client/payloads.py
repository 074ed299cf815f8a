"""What a handler wants to be given, read off its signature.

    def bill(message)                              the ReceivedMessage
    def bill(message: ReceivedMessage)             the same
    def bill(body: bytes), def bill(text: str)     the body; as UTF-8
    def bill(order: Order)                         JSON as a dataclass, msgspec.Struct, TypedDict, dict, …
    def bill(order: Order)                         or as a pydantic model, where that is what Order is
    def bill(order: Order, message: ReceivedMessage)    both

A body that does not fit never will, so its message goes straight to the dead letters.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import msgspec
import msgspec.inspect

from kourou.client.handlers import is_async
from kourou.client.outcomes import DeadLetter
from kourou.errors import ConfigError
from kourou.message import ReceivedMessage

Read = Callable[[bytes], Any]


def taking_messages(handler: Callable[..., object]) -> Callable[[ReceivedMessage], object]:
    """`handler`, called with what it wants of a message; raises ConfigError when that cannot be told."""
    parameters = _parameters(handler)
    hints = _hints(handler)
    first, *others = parameters
    wanted = hints.get(first.name, ReceivedMessage)
    extra = [each.name for each in others if hints.get(each.name) is ReceivedMessage]
    if strangers := [
        each.name for each in others if each.name not in extra and each.default is inspect.Parameter.empty
    ]:
        raise ConfigError(
            f"{_name(handler)} wants {', '.join(strangers)} as well, and a message has nothing like it; "
            "annotate it as ReceivedMessage, or give it a default"
        )
    if wanted is ReceivedMessage and not extra:
        return handler
    read = None if wanted is ReceivedMessage else reader(wanted)

    def arguments(message: ReceivedMessage) -> tuple[Any, dict[str, Any]]:
        given = message if read is None else _payload(read, message, wanted)
        return given, dict.fromkeys(extra, message)

    if is_async(handler):

        @functools.wraps(handler)
        async def call_async(message: ReceivedMessage) -> object:
            given, more = arguments(message)
            return await handler(given, **more)

        return call_async

    @functools.wraps(handler)
    def call(message: ReceivedMessage) -> object:
        given, more = arguments(message)
        return handler(given, **more)

    return call


def reader(kind: Any) -> Read:
    """What turns a body into a `kind`; raises ConfigError for what JSON cannot become."""
    if kind is bytes:
        return bytes
    if kind is str:
        return bytes.decode
    validate = getattr(kind, "model_validate_json", None)  # a pydantic model, without importing pydantic
    if validate is not None:
        return typing.cast("Read", validate)
    try:
        if isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType):
            raise TypeError("nothing in JSON corresponds to it")
        return msgspec.json.Decoder(kind).decode
    except TypeError as error:
        raise ConfigError(f"a message cannot become a {kind!r}: {error}") from None


def _payload(read: Read, message: ReceivedMessage, wanted: Any) -> Any:
    try:
        return read(message.body)
    except ValueError as error:  # what msgspec, pydantic and bytes.decode raise is one
        name = getattr(wanted, "__name__", wanted)
        raise DeadLetter(f"the body of {message!r} is no {name}: {error}") from None


def _parameters(handler: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        raise ConfigError(f"{handler!r} cannot be a handler: it cannot be called") from None
    if not parameters:
        raise ConfigError(f"{_name(handler)} takes nothing; a handler takes the message, or its payload")
    if parameters[0].kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
        raise ConfigError(f"{_name(handler)} takes nothing by its place, as a handler takes the message")
    return parameters


def _hints(handler: Callable[..., object]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(_annotated(handler))
    except NameError as error:
        raise ConfigError(
            f"the annotations of {_name(handler)} cannot be understood: {error}; use types of its module"
        ) from None


def _annotated(handler: Any) -> Any:
    """Where the annotations of a handler are: of an object that can be called, at its method."""
    if isinstance(handler, functools.partial):
        return _annotated(handler.func)
    return handler if inspect.isroutine(handler) or inspect.isclass(handler) else type(handler).__call__


def _name(handler: Callable[..., object]) -> str:
    return getattr(handler, "__qualname__", repr(handler))
