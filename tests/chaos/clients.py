"""Clients that tell an oracle what they did, made of plain requests: nothing is retried behind their back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kourou.errors import MQError
from kourou.protocol import properties as props
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import (
    CreateTopic,
    OffsetReply,
    PullMessage,
    PullReply,
    QueryMessage,
    QueryOffset,
    QueueNamed,
    SendMessageV2,
    SendReply,
    UpdateOffset,
)
from kourou.protocol.record import Record, decode_all, encode_batch
from kourou.remoting.blocking import BlockingClient
from tests.chaos.oracle import History, Queue, Sent, Stored

GROUP = "readers"
SECONDS_MAX = 20.0
BATCH_EACH, BATCH = 7, 5
"""One send in so many is a batch of so many."""


def make_topics(address: str, topics: list[str], queues: int) -> None:
    with BlockingClient() as client:
        for topic in topics:
            header = CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6)
            reply = client.call(address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), SECONDS_MAX)
            assert reply.code == 0, reply.remark


class Sender(threading.Thread):
    """Sends to each queue in turn until the broker is gone."""

    def __init__(self, name: str, address: str, queues: list[Queue], history: History) -> None:
        super().__init__(name=name, daemon=True)
        self._address = address
        self._queues = queues
        self._history = history
        self._number = 0
        self.refusals: list[str] = []

    def run(self) -> None:
        with BlockingClient() as client:
            while self._send(client):
                pass

    def _send(self, client: BlockingClient) -> bool:
        queue = self._queues[self._number % len(self._queues)]
        is_batch = self._number % BATCH_EACH == BATCH_EACH - 1
        messages = [self._next(queue) for _ in range(BATCH if is_batch else 1)]
        try:
            reply = client.call(self._address, _send_request(queue, messages, is_batch), SECONDS_MAX)
        except MQError as error:
            for message in messages:
                self._history.is_unknown(message, str(error))
            return False
        if reply.code != ResponseCode.SUCCESS:
            self.refusals.append(f"{reply.code}: {reply.remark}")
            return False
        first = reply.parse(SendReply).queue_offset
        for index, message in enumerate(messages):
            self._history.was_acknowledged(message, first + index)
        return True

    def _next(self, queue: Queue) -> Sent:
        number = self._number
        self._number += 1
        body = f"{self.name}/{number}/".encode() + b"." * (number * 37 % 3000)
        properties = {
            "KEYS": f"{self.name}-{number} everyone",
            "TAGS": f"tag{number % 3}",
            "UNIQ_KEY": f"{self.name}-{number}".rjust(32, "0"),
        }
        message = Sent(self.name, number, queue, body, properties)
        self._history.sends(message)
        return message


def _send_request(queue: Queue, messages: list[Sent], is_batch: bool) -> Command:
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    encoded = [props.encode(message.properties) for message in messages]
    header = SendMessageV2(
        producer_group="senders",
        topic=queue[0],
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue[1],
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties="" if is_batch else encoded[0].decode(),
        batch=is_batch,
    )
    items = [(0, message.body, each) for message, each in zip(messages, encoded, strict=True)]
    return request(code, header, encode_batch(items) if is_batch else messages[0].body)


class Reader(threading.Thread):
    """Reads what comes, from where its group is, and commits that it did, until the broker is gone."""

    def __init__(self, address: str, queues: list[Queue], history: History) -> None:
        super().__init__(name="reader", daemon=True)
        self._address = address
        self._queues = queues
        self._history = history

    def run(self) -> None:
        try:
            with BlockingClient() as client:
                at = {queue: group_offset(client, self._address, queue) for queue in self._queues}
                while True:
                    for queue in self._queues:
                        messages, at[queue] = pulled(client, self._address, queue, at[queue])
                        if messages:
                            self._history.was_given(messages)
                            self._commit(client, queue, at[queue])
        except MQError:
            return  # the broker is gone

    def _commit(self, client: BlockingClient, queue: Queue, queue_offset: int) -> None:
        self._history.commits(queue, queue_offset)
        header = UpdateOffset(
            consumer_group=GROUP, topic=queue[0], queue_id=queue[1], commit_offset=queue_offset
        )
        client.call(self._address, request(RequestCode.UPDATE_CONSUMER_OFFSET, header), SECONDS_MAX)


def pulled(client: BlockingClient, address: str, queue: Queue, queue_offset: int) -> tuple[list[Stored], int]:
    """Some messages from there on, and where to go on."""
    header = PullMessage(
        consumer_group=GROUP,
        topic=queue[0],
        queue_id=queue[1],
        queue_offset=queue_offset,
        message_count_max=32,
        sys_flag=4,  # with a subscription
        subscription="*",
        expression_type="TAG",
    )
    reply = client.call(address, request(RequestCode.PULL_MESSAGE, header), SECONDS_MAX)
    next_offset = reply.parse(PullReply).next_begin_offset
    if reply.code != ResponseCode.SUCCESS:
        return [], max(queue_offset, next_offset)
    return [_stored(record) for record in decode_all(reply.body)], next_offset


def everything(address: str, queues: list[Queue]) -> list[Stored]:
    """Every message of these queues."""
    found: list[Stored] = []
    with BlockingClient() as client:
        for queue in queues:
            named = QueueNamed(topic=queue[0], queue_id=queue[1])
            end = _offset(client, address, request(RequestCode.GET_MAX_OFFSET, named))
            at = _offset(client, address, request(RequestCode.GET_MIN_OFFSET, named))
            while at < end:
                messages, next_offset = pulled(client, address, queue, at)
                assert next_offset > at, f"{queue} does not go on at {at} of {end}"
                found += messages
                at = next_offset
    return found


def found_by_key(client: BlockingClient, address: str, topic: str, key: str) -> list[Stored]:
    header = QueryMessage(topic=topic, key=key, max_num=8, begin_timestamp=0, end_timestamp=1 << 62)
    reply = client.call(address, request(RequestCode.QUERY_MESSAGE, header), SECONDS_MAX)
    return [_stored(record) for record in decode_all(reply.body)] if reply.code == 0 else []


def group_offset(client: BlockingClient, address: str, queue: Queue) -> int:
    """Where the group goes on; 0 when it never said."""
    header = QueryOffset(consumer_group=GROUP, topic=queue[0], queue_id=queue[1])
    return _offset(client, address, request(RequestCode.QUERY_CONSUMER_OFFSET, header))


def _offset(client: BlockingClient, address: str, command: Command) -> int:
    reply = client.call(address, command, SECONDS_MAX)
    return reply.parse(OffsetReply).offset if reply.code == ResponseCode.SUCCESS else 0


def _stored(record: Record) -> Stored:
    place = (record.topic_name(), record.queue_id, record.queue_offset)
    return Stored(place, record.body, record.property_table(), record.store_ms)


@contextmanager
def traffic(
    address: str, name: str, senders: int, queues: list[Queue], history: History
) -> Iterator[list[Sender]]:
    """Senders and a reader at work; who kills the broker ends them."""
    running = [Sender(f"{name}-{number}", address, queues, history) for number in range(senders)]
    threads: list[threading.Thread] = [*running, Reader(address, queues, history)]
    for thread in threads:
        thread.start()
    yield running
    for thread in threads:
        thread.join(SECONDS_MAX * 2)
        assert not thread.is_alive(), f"{thread.name} still waits for a broker that is gone"
