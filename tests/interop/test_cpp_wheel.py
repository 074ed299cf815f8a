"""The official C++ client, as the PyPI wheel `rocketmq` bundles it, works through `kourou start`.

Part of `make test`: no Java is needed. The wheel exists for Linux on x86-64 only.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop import ours
from tests.interop.stock_clients import cpp_client

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("rocketmq") is None,
    reason="THE STOCK C++ CLIENT WAS NOT TESTED: the wheel rocketmq==0.4.4 is not installed "
    "(it exists for Linux on x86-64 only; there `make install` brings it)",
)

COUNT = 24
TOPIC = "CppTopic"


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ours.Node, list[dict[str, Any]]]]:
    """A node of ours and what the C++ producer told after sending to it."""
    folder = tmp_path_factory.mktemp("cpp")
    with ours.node(folder) as node:
        yield node, cpp_client(folder, "produce", node.address, "cpp-producers", TOPIC, str(COUNT))
        node.stop()


def test_the_cpp_client_sends_in_every_way(sent: tuple[ours.Node, list[dict[str, Any]]]) -> None:
    _, said = sent
    results = [line for line in said if line["event"] == "sent"]
    assert Counter(line["way"] for line in results) == {"sync": 6, "async": 6, "orderly": 6}
    assert all(line["status"] == 0 for line in results)
    assert len({line["id"] for line in results}) == len(results)


@pytest.mark.parametrize("how", ["push", "pull"])
def test_the_cpp_client_receives_every_message_once(
    sent: tuple[ours.Node, list[dict[str, Any]]], how: str, tmp_path: Path
) -> None:
    node, _ = sent
    said = cpp_client(tmp_path, how, node.address, f"cpp-{how}", TOPIC, str(COUNT), "30")
    received = [line for line in said if line["event"] == "received"]
    assert Counter(line["body"] for line in received) == Counter(f"cpp-{n}" for n in range(COUNT))
    for line in received:
        n = int(line["number"])
        assert (line["body"], line["keys"]) == (f"cpp-{n}", f"key-{n}")
        assert (line["tags"], line["topic"]) == ("even" if n % 2 == 0 else "odd", TOPIC)


def test_a_second_cpp_consumer_of_a_group_goes_on_where_the_first_stopped(
    sent: tuple[ours.Node, list[dict[str, Any]]], tmp_path: Path
) -> None:
    node, _ = sent
    first = cpp_client(tmp_path, "push", node.address, "cpp-resuming", TOPIC, str(COUNT), "30")
    assert len([line for line in first if line["event"] == "received"]) == COUNT
    second = cpp_client(tmp_path, "push", node.address, "cpp-resuming", TOPIC, "1", "2")
    assert [line for line in second if line["event"] == "received"] == []
