"""For the tests of an application: a real broker as a pytest fixture. pytest finds it by itself.

    def test_an_order_is_announced(kourou_broker, assert_published):
        shop.place_order("espresso", name_server=kourou_broker.name_server)
        assert_published("orders", b"espresso", tags="new")

    kourou_broker            a name server and a broker in this process, in memory
    kourou_broker_settings   override it in a conftest.py: a dict of the broker's settings
    kourou_topic             a topic that is this test's alone
    kourou_environment       the application finds the broker by NAMESRV_ADDR
    kourou_producer          a producer, open while the test runs
    kourou_messages          kourou_messages(topic): all that is in a topic now
    assert_published         waits for messages, and shows what is there when they do not come

The broker lives for the whole session (it is ready in some 10 ms, so `kourou_broker_scope = function` in the
pytest configuration gives each test its own at little cost). Nothing of the broker is imported before a test
asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

if TYPE_CHECKING:
    from kourou.client.producer import Producer
    from kourou.local.local_broker import LocalBroker
    from kourou.message import ReceivedMessage

Scope = Literal["session", "package", "module", "class", "function"]
SCOPES: tuple[Scope, ...] = ("session", "package", "module", "class", "function")
TOPIC_CHARACTERS_MAX = 100
TOPIC_QUEUES = 4

_topics = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "kourou_broker_scope",
        f"How long the fixture kourou_broker lives: {', '.join(SCOPES)}.",
        default="session",
    )


def _broker_scope(fixture_name: str, config: pytest.Config) -> Scope:
    scope = config.getini("kourou_broker_scope")
    if scope not in SCOPES:
        raise pytest.UsageError(f"kourou_broker_scope is {scope!r}; it is one of {', '.join(SCOPES)}")
    return cast("Scope", scope)


@pytest.fixture(scope="session")
def kourou_broker_settings() -> dict[str, Any]:
    """The broker's settings, as `LocalBroker` takes them. Override it to change them."""
    return {}


@pytest.fixture(scope=_broker_scope)
def kourou_broker(kourou_broker_settings: dict[str, Any]) -> Iterator[LocalBroker]:
    """A running `LocalBroker` that keeps everything in memory; give it a `data` folder for files."""
    from kourou.local.local_broker import LocalBroker

    with LocalBroker(**{"memory": "data" not in kourou_broker_settings, **kourou_broker_settings}) as broker:
        yield broker


@pytest.fixture
def kourou_topic(kourou_broker: LocalBroker, request: pytest.FixtureRequest) -> str:
    """The name of a topic that is there, empty, and no other test's."""
    from kourou.local.published import make_topic

    test = re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name)[:TOPIC_CHARACTERS_MAX]
    topic = f"{test}-{next(_topics)}"
    make_topic(kourou_broker.address, topic, TOPIC_QUEUES)
    return topic


@pytest.fixture
def kourou_environment(kourou_broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> str:
    """NAMESRV_ADDR, set while the test runs: clients that are told nothing else find the broker."""
    monkeypatch.setenv("NAMESRV_ADDR", kourou_broker.name_server)
    return kourou_broker.name_server


@pytest.fixture
def kourou_producer(kourou_broker: LocalBroker) -> Iterator[Producer]:
    """A producer, for what the application under test would receive."""
    from kourou.client.producer import Producer

    with Producer("kourou-tests", kourou_broker.name_server) as producer:
        yield producer


@pytest.fixture
def kourou_messages(kourou_broker: LocalBroker) -> Callable[[str], list[ReceivedMessage]]:
    """A function: all messages of a topic that are there right now, in the order they were stored."""
    from kourou.local.published import Published

    return Published(kourou_broker.name_server).messages


@pytest.fixture
def assert_published(kourou_broker: LocalBroker) -> Callable[..., list[ReceivedMessage]]:
    """A function: `Published.assert_published` at the test's broker."""
    from kourou.local.published import Published

    return Published(kourou_broker.name_server).assert_published
