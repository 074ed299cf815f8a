"""Where the queues of 5.x static topics lie: what each broker says of its own share, passed on as it is.

    topic -> broker name -> {"bname":"broker-a","currIdMap":{0:0,1:1},"epoch":1,"totalQueues":2,…}

A mapping belongs to the broker that registered it, whatever it calls itself inside, and leaves with it. All
mappings together have a most, well below a frame: whichever topic is asked for, its route can be sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import field

from kourou.errors import ProtocolError
from kourou.protocol import fastjson
from kourou.protocol.bodies import QUEUES_MAX, Body
from kourou.protocol.numbers import Int32, Int64

QueueMapping = Mapping[str, Any]

BROKER_BYTES_MAX: Final = 2 * 1024 * 1024
"""Of the mappings of one broker name, as JSON: about 10,000 static topics."""

ALL_BYTES_MAX: Final = 8 * 1024 * 1024


class _Known(Body, kw_only=True):
    """The members that clients read. Others may be there, too."""

    bname: str = ""
    curr_id_map: dict[Int32, Int32] = field(default_factory=dict)
    dirty: bool = False
    epoch: Int64 = 0
    scope: str = ""
    topic: str = ""
    total_queues: Int32 = 0


def mapping_fault(mapping: object) -> str | None:
    """Why clients could not read `mapping`, or None."""
    if not isinstance(mapping, dict):
        return "is no object"
    try:
        known = fastjson.convert(mapping, _Known)
    except ProtocolError as error:
        return f"makes no sense: {error}"
    queues = max(known.total_queues, len(known.curr_id_map))
    if known.total_queues < 0 or queues > QUEUES_MAX:
        return (
            f"has {known.total_queues if known.total_queues < 0 else queues} queues: 0 to {QUEUES_MAX} can be"
        )
    return None


class QueueMappings:
    """The mappings of all brokers, and how many bytes they are."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, QueueMapping]] = {}
        self._sizes: dict[str, dict[str, int]] = {}

    def of_topic(self, topic: str) -> dict[str, QueueMapping] | None:
        """By broker name; None when `topic` is not static."""
        return self._by_topic.get(topic)

    def room_fault(self, broker_name: str, mappings: Mapping[str, QueueMapping]) -> str | None:
        """Why these cannot be put beside what is there, or None."""
        if not mappings:
            return None
        sizes = self._sizes.get(broker_name, {}) | {each: _size(each, mappings[each]) for each in mappings}
        mine = sum(sizes.values())
        if mine > BROKER_BYTES_MAX:
            return f"its static topics take {mine} bytes: at most {BROKER_BYTES_MAX} are kept of one broker"
        others = sum(sum(each.values()) for name, each in self._sizes.items() if name != broker_name)
        if mine + others > ALL_BYTES_MAX:
            return (
                f"static topics of all brokers would take {mine + others} bytes: the most is {ALL_BYTES_MAX}"
            )
        return None

    def put(self, broker_name: str, topic: str, mapping: QueueMapping) -> bool:
        """Take in or replace; returns whether it is news."""
        by_broker = self._by_topic.setdefault(topic, {})
        if by_broker.get(broker_name) == mapping:
            return False
        by_broker[broker_name] = mapping
        self._sizes.setdefault(broker_name, {})[topic] = _size(topic, mapping)
        return True

    def drop(self, broker_name: str, topic: str) -> bool:
        """Forget the broker's share of `topic`; returns whether there was one."""
        sizes = self._sizes.get(broker_name, {})
        if sizes.pop(topic, None) is None:
            return False
        if not sizes:
            del self._sizes[broker_name]
        by_broker = self._by_topic[topic]
        del by_broker[broker_name]
        if not by_broker:
            del self._by_topic[topic]
        return True

    def topics_of(self, broker_name: str) -> list[str]:
        return list(self._sizes.get(broker_name, ()))


def _size(topic: str, mapping: QueueMapping) -> int:
    return len(topic.encode()) + len(fastjson.dumps(mapping))
