from __future__ import annotations

import functools
from typing import Any

import pytest

from kourou.client.handlers import check_handled, is_async, name_of
from kourou.errors import ConfigError


def plain(message: Any) -> None: ...


async def coroutine(message: Any) -> None: ...


class Called:
    def __call__(self, message: Any) -> None: ...


class Awaited:
    async def __call__(self, message: Any) -> None: ...


@pytest.mark.parametrize(
    ("handler", "awaited"),
    [
        (plain, False),
        (coroutine, True),
        (functools.partial(plain), False),
        (functools.partial(coroutine), True),
        (Called(), False),
        (Awaited(), True),
        (Awaited().__call__, True),
        (lambda message: None, False),
        (3, False),
    ],
)
def test_what_is_to_be_awaited_is_known(handler: Any, awaited: bool) -> None:
    assert is_async(handler) is awaited


def test_what_a_plain_function_returns_must_not_have_to_be_awaited() -> None:
    for returned in (None, 7, "done", [1]):
        check_handled(plain, returned)
    with pytest.raises(ConfigError, match="plain returned a coroutine, and has handled nothing"):
        check_handled(plain, coroutine(None))  # and no word of one that was never awaited


def test_a_handler_has_a_name() -> None:
    assert name_of(plain) == "plain"
    assert "Called object" in name_of(Called())
