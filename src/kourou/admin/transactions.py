"""Half messages: sent, and not yet committed nor rolled back; or given up, because nobody knew.

    open        in RMQ_SYS_TRANS_HALF_TOPIC, with no done mark in RMQ_SYS_TRANS_OP_HALF_TOPIC
    discarded   in TRANS_CHECK_MAX_TIME_TOPIC: asked about as often as is allowed

Both are read from where the broker itself is in these topics, so an Apache broker's are seen just as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kourou.admin import cluster as clusters
from kourou.admin import messages
from kourou.admin.cluster import Node
from kourou.admin.connection import Connection
from kourou.client import operations
from kourou.errors import NotFound
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import EndTransaction, ResumeCheck
from kourou.protocol.names import DISCARDED_HALF_TOPIC, HALF_DONE_TOPIC, HALF_TOPIC, TRANSACTION_GROUP

COMMIT, ROLLBACK = 8, 12


@dataclass(frozen=True)
class Half:
    """A message whose transaction has not ended, or was given up."""

    state: Literal["open", "discarded"]
    message_id: str
    offset_id: str
    transaction_id: str
    topic: str
    producer_group: str
    broker: str
    address: str
    queue_offset: int
    physical_offset: int
    born_ms: int
    stored_ms: int
    checks: int
    tags: str | None
    keys: str | None
    message: ReceivedMessage


def open_halves(connection: Connection, broker: str | None = None) -> list[Half]:
    """All half messages that wait, the oldest first."""
    return _of_all(connection, broker, _open_at)


def discarded(connection: Connection, broker: str | None = None) -> list[Half]:
    """All half messages that were given up and are still there, the oldest first."""
    return _of_all(connection, broker, _discarded_at)


def _of_all(
    connection: Connection, broker: str | None, look: Callable[[Connection, Node], list[Half]]
) -> list[Half]:
    nodes = clusters.masters(connection) if broker is None else [clusters.node(connection, broker)]
    found, _ = connection.some(nodes, lambda node: look(connection, node))
    return sorted((half for _, halves in found for half in halves), key=lambda half: half.stored_ms)


def _open_at(connection: Connection, node: Node) -> list[Half]:
    marks = _read(connection, node, HALF_DONE_TOPIC)
    done = {number for mark in marks for number in _done_offsets(mark)}
    return [
        _half("open", node, message)
        for message in _read(connection, node, HALF_TOPIC)
        if message.queue_offset not in done
    ]


def _discarded_at(connection: Connection, node: Node) -> list[Half]:
    return [
        _half("discarded", node, message) for message in _read(connection, node, DISCARDED_HALF_TOPIC, True)
    ]


def _read(connection: Connection, node: Node, topic: str, whole: bool = False) -> list[ReceivedMessage]:
    """What the broker itself has not passed yet of a topic of its own."""
    queue = MessageQueue(broker_name=node.broker, queue_id=0, topic=topic)
    begin = None
    if not whole:
        begin = connection.run(operations.committed_offset(node.address, queue, TRANSACTION_GROUP))
    try:
        return list(messages.read_queue(connection, node.address, queue, begin or 0))
    except NotFound:  # no transaction was ever begun there
        return []


def _done_offsets(mark: ReceivedMessage) -> list[int]:
    if mark.tags != "d":
        return []
    numbers = mark.body.decode("ascii", "replace").split(",")
    return [int(number) for number in numbers if number.strip().isdecimal()]


def _half(state: Literal["open", "discarded"], node: Node, message: ReceivedMessage) -> Half:
    table = message.properties
    checks = table.get("TRANSACTION_CHECK_TIMES", "0")
    return Half(
        state=state,
        message_id=message.message_id,
        offset_id=message.offset_id,
        transaction_id=table.get("__transactionId__", message.message_id),
        topic=table.get("REAL_TOPIC", ""),
        producer_group=table.get("PGROUP", ""),
        broker=node.broker,
        address=node.address,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        born_ms=message.born_at_ms,
        stored_ms=message.stored_at_ms,
        checks=int(checks) if checks.isdecimal() else 0,
        tags=message.tags,
        keys=message.keys,
        message=message,
    )


def find(connection: Connection, message_id: str) -> Half:
    """An open or discarded half message by its unique id or offset id; raises NotFound."""
    for look in (open_halves, discarded):
        for half in look(connection):
            if message_id in (half.message_id, half.offset_id, half.transaction_id):
                return half
    raise NotFound(
        ResponseCode.NO_MESSAGE,
        f"no half message {message_id}: its transaction has ended, or there never was one; see: kourou tx ls",
    )


def end(connection: Connection, half: Half, *, commit: bool) -> None:
    """END_TRANSACTION: commit or roll back in its producer's stead. A discarded one is resumed first."""
    if half.state == "discarded":
        resume(connection, half)
        half = _resumed(connection, half)
    header = EndTransaction(
        producer_group=half.producer_group,
        half_queue_offset=half.queue_offset,
        physical_offset=half.physical_offset,
        outcome=COMMIT if commit else ROLLBACK,
        from_check=True,
        unique_id=half.message_id,
        transaction_id=half.transaction_id,
        topic=half.topic,
    )
    connection.ask(
        half.address,
        request(RequestCode.END_TRANSACTION, header),
        f"asked to {'commit' if commit else 'roll back'} {half.message_id}",
    )


def _resumed(connection: Connection, half: Half) -> Half:
    for each in open_halves(connection, half.broker):
        if each.message_id == half.message_id:
            return each
    raise NotFound(ResponseCode.NO_MESSAGE, f"half message {half.message_id} did not come back to be ended")


def resume(connection: Connection, half: Half) -> None:
    """RESUME_CHECK_HALF_MESSAGE: producers are asked again about one that was given up."""
    connection.ask(
        half.address,
        request(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheck(half.offset_id, half.topic)),
        f"asked to resume {half.message_id}",
    )
