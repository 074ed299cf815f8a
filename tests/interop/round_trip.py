"""One conversation that must work with any name server and broker: send in every way, consume it all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.interop import apache

WAYS = ("sync", "async", "oneway", "batch")
PER_WAY = 10


def java_round_trip(
    version: str, folder: Path, name_server: str, topic: str = "RoundTrip"
) -> list[dict[str, Any]]:
    """The Java client of `version` sends and push consumes; each message must come exactly once and whole.

    Returns what was received.
    """
    for way in WAYS:
        java_send(version, folder, name_server, topic, way)
    received = java_consume(version, folder, name_server, topic, len(WAYS) * PER_WAY)
    expected = [f"{way}-{n}" for way in WAYS for n in range(PER_WAY)]
    check_each_once(received, expected)
    return received


def java_send(
    version: str, folder: Path, name_server: str, topic: str, way: str, count: int = PER_WAY
) -> None:
    said = apache.traffic(version, folder, "send", name_server, "senders", topic, way, str(count), way)
    sent = [line for line in said if line["event"] == "sent"]
    assert said[-1] == {"event": "done", "count": count}
    assert len(sent) == {"oneway": 0, "batch": 1}.get(way, count), said
    assert all(line["status"] == "SEND_OK" for line in sent), said
    places = [(line["queueId"], line["queueOffset"]) for line in sent]
    assert len(set(places)) == len(places), "two messages were given the same place"


def java_consume(
    version: str,
    folder: Path,
    name_server: str,
    topic: str,
    count: int,
    *,
    expression: str = "*",
    group: str = "readers",
) -> list[dict[str, Any]]:
    arguments = ("consume", name_server, group, topic, expression, str(count), "40")
    said = apache.traffic(version, folder, *arguments)
    return [line for line in said if line["event"] == "received"]


def check_each_once(received: list[dict[str, Any]], bodies: list[str]) -> None:
    """Every body came exactly once, each with its own key, tag and property."""
    came, expected = Counter(line["body"] for line in received), Counter(bodies)
    assert came == expected, f"missing: {expected - came}; too much: {came - expected}; all: {received}"
    for line in received:
        prefix, n = line["body"].rsplit("-", 1)
        assert line["keys"] == f"{prefix}-key-{n}"
        assert line["tags"] == ("even" if int(n) % 2 == 0 else "odd")
        assert line["properties"]["number"] == n
        assert line["properties"]["UNIQ_KEY"] == line["msgId"]
        assert line["reconsumeTimes"] == 0
