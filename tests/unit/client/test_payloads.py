from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import msgspec
import pytest

from kourou.client.outcomes import DeadLetter
from kourou.client.payloads import reader, taking_messages
from kourou.errors import ConfigError
from kourou.message import ReceivedMessage


@dataclass
class Order:
    number: int
    what: str = "espresso"


class Struct(msgspec.Struct):
    number: int


class Typed(TypedDict):
    number: int


class Model:
    """Looks like a pydantic model to whoever does not import pydantic."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    @classmethod
    def model_validate_json(cls, text: bytes) -> Model:
        return cls(text)


def message(body: bytes) -> ReceivedMessage:
    class Source:
        def plain_body(self) -> bytes:
            return body

        def topic_name(self) -> str:
            return "orders"

        def property_table(self) -> dict[str, str]:
            return {"UNIQ_KEY": "1"}

        queue_id = queue_offset = 0

    return ReceivedMessage(Source(), "a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (bytes, b"\xff", b"\xff"),
        (str, "één".encode(), "één"),
        (Order, b'{"number": 1}', Order(1)),
        (Struct, b'{"number": 1}', Struct(1)),
        (Typed, b'{"number": 1}', {"number": 1}),
        (dict, b'{"a": [1]}', {"a": [1]}),
        (list[int], b"[1, 2]", [1, 2]),
        (int, b"42", 42),
    ],
)
def test_a_body_becomes_what_is_wanted(kind: Any, body: bytes, expected: Any) -> None:
    assert reader(kind)(body) == expected


def test_pydantic_models_validate_themselves() -> None:
    assert reader(Model)(b"{}").text == b"{}"


def call(handler: Callable[..., Any], body: bytes) -> Any:
    return taking_messages(handler)(message(body))


def test_the_signature_says_what_a_handler_is_given() -> None:
    def plain(given):  # type: ignore[no-untyped-def]
        return given

    def annotated(given: ReceivedMessage) -> object:
        return given

    def typed(order: Order) -> object:
        return order

    def both(order: Order, source: ReceivedMessage, more: int = 3) -> object:
        return order, source.body, more

    body = b'{"number": 7, "what": "tea"}'
    assert isinstance(call(plain, body), ReceivedMessage)
    assert isinstance(call(annotated, body), ReceivedMessage)
    assert call(typed, body) == Order(7, "tea")
    assert call(both, body) == (Order(7, "tea"), body, 3)


def test_what_is_called_may_be_an_object_or_a_function_that_was_given_something_already() -> None:
    class Kitchen:
        def __call__(self, order: Order) -> object:
            return order

        async def cook(self, order: Order) -> object:
            return order

    def typed(database: object, order: Order) -> object:
        return database, order

    body = b'{"number": 7}'
    assert call(Kitchen(), body) == Order(7)
    assert asyncio.run(call(Kitchen().cook, body)) == Order(7)
    assert call(partial(typed, "db"), body) == ("db", Order(7))


def test_coroutine_functions_stay_coroutine_functions() -> None:
    async def typed(order: Order) -> Order:
        return order

    assert asyncio.run(call(typed, b'{"number": 7}')) == Order(7)


@pytest.mark.parametrize("body", [b'{"number": "x"}', b"{", b"\xff", b"{}"])
def test_a_body_that_does_not_fit_is_a_dead_letter(body: bytes) -> None:
    def typed(order: Order) -> None: ...

    with pytest.raises(DeadLetter, match="is no Order"):
        call(typed, body)


def test_what_cannot_be_told_is_told() -> None:
    def nothing() -> None: ...

    def too_much(order: Order, database: object) -> None: ...

    def impossible(order: Order | Typed) -> None: ...

    def by_name(*, order: Order) -> None: ...

    def strange(order: Callable[[], None]) -> None: ...

    def unknown(order: NotThere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    for handler, text in (
        (nothing, "takes nothing"),
        (too_much, "wants database as well"),
        (impossible, "cannot become"),
        (strange, "nothing in JSON"),
        (by_name, "takes nothing by its place"),
        (unknown, "NotThere"),
        (3, "cannot be called"),
    ):
        with pytest.raises(ConfigError, match=text):
            taking_messages(handler)  # type: ignore[arg-type]
