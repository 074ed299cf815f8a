"""The shares of static topics: what is readable, what fits, and that nothing stays behind."""

from __future__ import annotations

import pytest

from kourou.nameserver import mappings as module
from kourou.nameserver.mappings import QueueMappings, mapping_fault


@pytest.mark.parametrize(
    "mapping",
    [
        {},
        {"bname": "a", "currIdMap": {"0": 0, "1": 1}, "dirty": False, "epoch": 1, "totalQueues": 2},
        {"scope": None, "topic": "t", "totalQueues": "8", "of a later version": [{"x": 1}]},
    ],
)
def test_what_a_broker_writes_is_readable(mapping: object) -> None:
    assert mapping_fault(mapping) is None


@pytest.mark.parametrize(
    ("mapping", "fault"),
    [
        (None, "is no object"),
        (7, "is no object"),
        ([], "is no object"),
        ({"bname": 7}, "bname"),
        ({"currIdMap": []}, "currIdMap"),
        ({"currIdMap": {"x": 1}}, "currIdMap"),
        ({"currIdMap": {"1": 2**31}}, "currIdMap"),
        ({"epoch": "now"}, "epoch"),
        ({"totalQueues": -1}, "has -1 queues"),
        ({"currIdMap": dict.fromkeys(map(str, range(65_536)), 1)}, "has 65536 queues"),
    ],
)
def test_what_clients_could_not_read_has_a_fault(mapping: object, fault: str) -> None:
    assert fault in (mapping_fault(mapping) or "")


def test_only_a_different_mapping_is_news() -> None:
    mappings = QueueMappings()
    assert mappings.put("a", "t", {"epoch": 1})
    assert not mappings.put("a", "t", {"epoch": 1})
    assert mappings.put("b", "t", {"epoch": 1})
    assert mappings.put("a", "t", {"epoch": 2})
    assert mappings.of_topic("t") == {"a": {"epoch": 2}, "b": {"epoch": 1}}
    assert mappings.of_topic("u") is None


def test_what_is_dropped_leaves_its_room_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALL_BYTES_MAX", 30)
    mappings = QueueMappings()
    share = {"t": {"scope": "x" * 10}}
    assert mappings.room_fault("a", share) is None
    mappings.put("a", "t", share["t"])
    assert mappings.room_fault("a", share) is None  # it replaces what is there
    assert "the most is 30" in (mappings.room_fault("b", share) or "")
    assert mappings.topics_of("a") == ["t"]
    assert mappings.drop("a", "t")
    assert not mappings.drop("a", "t")
    assert mappings.topics_of("a") == []
    assert mappings.of_topic("t") is None
    assert mappings.room_fault("b", share) is None
