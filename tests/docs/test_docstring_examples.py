"""The examples in the docstrings of public names run, against a real broker.

An example that waits for messages for ever is ended after a moment: getting that far is what is checked.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import signal
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import kourou
from kourou import TransactionState

pytestmark = pytest.mark.docs

ENOUGH_SECONDS = 0.7


def examples() -> dict[str, str]:
    """The indented parts of every docstring that are Python and use the library, by name."""
    found = {}
    for name in kourou.__all__:
        thing = getattr(kourou, name)
        lines = (inspect.getdoc(thing) or "").splitlines()
        source = textwrap.dedent("\n".join(line for line in lines if not line or line.startswith("    ")))
        if "kourou." in source and inspect.isclass(thing) and _is_python(source):
            found[name] = source
    return found


def _is_python(source: str) -> bool:
    try:
        compile(source, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return False
    return True


class Enough(BaseException):
    """It has run for long enough."""


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Raises Enough in this thread, when it is still in there by then."""

    def stop(number: int, frame: object) -> None:
        raise Enough

    is_over = threading.Event()

    def ring() -> None:
        # Once may not do: what a handler raises is lost where Python happens to be in a finaliser.
        pause = seconds
        while not is_over.wait(pause):
            os.kill(os.getpid(), signal.SIGUSR1)
            pause = 15.0

    before = signal.signal(signal.SIGUSR1, stop)  # the alarm clock is pytest-timeout's
    ringing = threading.Thread(target=ring)
    ringing.start()
    try:
        yield
    except Enough:
        return
    finally:
        is_over.set()
        ringing.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.fixture(scope="module")
def broker() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker(memory=True) as running:
        with kourou.Producer("examples", running.name_server) as producer:
            producer.send(kourou.Message("orders", b"one espresso", tags="new"))
        yield running


@pytest.mark.parametrize("name", examples())
def test_the_example_of_a_docstring_runs(name: str, broker: kourou.LocalBroker) -> None:
    source = examples()[name].replace("localhost:9876", broker.name_server)
    booked: set[str] = set()

    async def book(key: str) -> None:
        booked.add(key)

    def is_booked(message: kourou.ReceivedMessage) -> kourou.TransactionState:
        return TransactionState.COMMIT

    names: dict[str, Any] = {
        "kourou": kourou,
        "TransactionState": TransactionState,
        "booked": booked,
        "book": book,
        "is_booked": is_booked,
    }
    code = compile(source, f"example of {name}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if "await " in source or "async " in source:
        asyncio.run(awaited(eval(code, names)))
    else:
        with interrupted(ENOUGH_SECONDS):
            exec(code, names)


async def awaited(work: Any) -> None:
    try:
        async with asyncio.timeout(ENOUGH_SECONDS):
            await work
    except TimeoutError:
        return


def test_there_is_an_example_for_every_client() -> None:
    clients = {
        name for name in kourou.__all__ if name.endswith(("Consumer", "Producer")) or name == "LocalBroker"
    }
    assert clients <= set(examples())
