"""Messages that are delivered later: what they wait as, and what comes out of it.

    sent       topic T, queue q, DELAY=3             SCHEDULE_TOPIC_XXXX queue 2     kept by `delays.py`
               topic T, queue q, TIMER_DELAY_MS=90   rmq_sys_wheel_timer queue 0     kept by `timers.py`
    waiting    the same message, with REAL_TOPIC=T and REAL_QID=q added; its consume queue entry says when
    due        the same message once more, under topic T and queue q, with a new place and a new store time

The record that waits is the truth; whatever else is kept of it can be built again. A copy is made before it
is noted that it was made, so a crash between the two delivers twice, never not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kourou.errors import ProtocolError, Refused
from kourou.protocol import names
from kourou.protocol.codes import ResponseCode
from kourou.protocol.properties import PROPERTIES_BYTES_MAX, find, terminated, without
from kourou.protocol.record import CRC_PROPERTY_BYTES, Record
from kourou.store.recovery import PREPARED, ROLLED_BACK, TRANSACTION_BITS
from kourou.store.store import Draft

if TYPE_CHECKING:
    from kourou.broker.delays import Delays
    from kourou.broker.timers import Timers

PROPERTIES_ROOM = PROPERTIES_BYTES_MAX - CRC_PROPERTY_BYTES - 1
LOOK_AGAIN_MS = 1_000
"""Nobody who waits for a wall clock time sleeps longer than this: the clock may be set forward meanwhile."""

_CRC = b"__CRC32#"


class Later:
    """Decides whether a message waits."""

    def __init__(self, delays: Delays, timers: Timers) -> None:
        self._delays = delays
        self._timers = timers

    def redirect(self, draft: Draft) -> Draft:
        """What to store for `draft`: itself, or the same message where it waits until it is due.

        Raises Refused when its properties ask for what cannot be.
        """
        properties = draft.properties
        if b"DELAY" not in properties and b"TIMER_DE" not in properties:
            return draft
        if draft.sys_flag & TRANSACTION_BITS in (PREPARED, ROLLED_BACK):
            return draft  # a half message waits for its end first
        level = whole_property(properties, "DELAY")
        if level is not None and level > 0:
            return self._delays.hide(draft, level)
        return self._timers.hide(draft)


def whole_property(properties: bytes, name: str) -> int | None:
    """The number a property holds, or None without it; raises Refused when it is no number."""
    value = find(properties, name.encode())
    if value is None:
        return None
    digits = value[1:] if value[:1] in b"+-" else value
    if not digits.isdigit() or len(digits) > 18:
        shown = names.printable(value.decode("utf-8", "replace"))
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"property {name} is '{shown}': a whole number is needed")
    return int(value)


def hidden(
    draft: Draft, topic: str, queue_id: int, due_ms: int, dropped: tuple[bytes, ...], added: bytes, room: int
) -> Draft:
    """The draft of a message that waits under `topic`, with its properties changed, and `room` bytes left."""
    properties = draft.properties
    for name in (b"REAL_TOPIC", b"REAL_QID", *dropped):
        properties = without(properties, name)
    properties = b"%bREAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02%b" % (
        terminated(properties),
        draft.topic.encode(),
        draft.queue_id,
        added,
    )
    if len(properties) > PROPERTIES_ROOM - room:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the properties have {len(properties)} bytes with what a delayed message needs: at most "
            f"{PROPERTIES_ROOM - room} can be stored",
        )
    return msgspec.structs.replace(
        draft, topic=topic, queue_id=queue_id, properties=properties, tags_code=due_ms
    )


def revealed(record: Record, added: bytes = b"") -> Draft:
    """The draft of the copy that is delivered. Raises ProtocolError when `record` does not say where to."""
    properties = stored_properties(record)
    topic = (find(properties, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
    queue_id = find(properties, b"REAL_QID") or b""
    fault = names.topic_fault(topic)
    if fault is not None or not queue_id.isdigit() or topic in names.NOT_SENDABLE:
        reason = fault or f"'{topic}' queue '{names.printable(queue_id.decode('utf-8', 'replace'))}'"
        raise ProtocolError(f"it cannot be delivered to where it says: {reason}")
    return again(record, topic, int(queue_id), properties + added)


def again(record: Record, topic: str, queue_id: int, properties: bytes) -> Draft:
    """The draft of the same message under another topic: whose it is, and when it was sent, stays."""
    return Draft(
        topic,
        queue_id,
        record.body,
        properties,
        record.flag,
        record.sys_flag,
        record.born_ms,
        record.born_host,
        record.store_host,
        record.reconsume_times,
    )


def stored_properties(record: Record) -> bytes:
    """A record's properties, ready for others to follow, without the CRC of that record."""
    return terminated(without(record.properties, _CRC))
