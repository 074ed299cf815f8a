"""Message trace: who sent and who handled which message, told to a topic of its own, as the Java client does.

    Pub             time region group topic id tags keys broker bytes ms type offset-id done
    SubBefore       time region group request id times keys
    SubAfter        request id ms done keys code time group
    EndTransaction  time region group topic id tags keys broker type transaction-id state asked

A line's fields are separated by U+0001, lines end with U+0002; what is not there is "null", as Java writes
it. Up to 20 lines about one topic travel in one message, whose keys are the ids and keys of the messages it
tells of: so `mqadmin queryMsgTraceById` and every dashboard find them. A line waits 5 s at most. When traces
come faster than they can be sent, the newest are dropped: a message is worth more than the word about it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Literal, NamedTuple

from kourou.client.cluster_settings import ClusterSettings
from kourou.client.consume_hooks import ConsumeAttempt
from kourou.client.drive import Chores
from kourou.client.namespaces import without_namespace
from kourou.client.outcomes import DeadLetter, RetryLater
from kourou.client.producer_settings import ProducerSettings
from kourou.client.sending import ANYWHERE, PREPARED, Sending
from kourou.client.sends import SendAttempt, SendStatus
from kourou.client.steps import Arrival, Operation, Wait
from kourou.client.transactions import TransactionEnd, TransactionState
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock
from kourou.errors import MQError
from kourou.message import KEYS, TAGS, Message, ReceivedMessage
from kourou.protocol import properties
from kourou.protocol.message_id import UniqueIds
from kourou.protocol.names import TRACE_TOPIC

LINES_IN_A_MESSAGE = 20
LINES_WAITING_MAX = 2048
FLUSH_SECONDS = 5.0
SEND_SECONDS = 5.0
MESSAGE_BYTES_MAX = 128_000
DEFAULT_REGION = "DefaultRegion"
GROUP_CHARACTERS_MAX = 200
"""As much of a group's name as finds a place in the name of the group that tells of it."""

FIELD_END = "\x01"
LINE_END = "\x02"

NORMAL, HALF, COMMIT, DELAYED = range(4)
"""Kinds of messages, by their place among Java's."""
SUCCESS, TIME_OUT, EXCEPTION, _, FAILED = range(5)
"""How a handler ended, by their place among Java's."""
STATES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}

_numbers = count(1)
_log = logging.getLogger("kourou.client")


class Line(NamedTuple):
    """One thing that happened."""

    topic: str
    """Of the message it happened to."""
    text: str
    keys: tuple[str, ...]
    """What it shall be found by."""


def line(topic: str, message_id: str, keys: str | None, *fields: object) -> Line:
    text = FIELD_END.join(map(_text, fields)) + LINE_END
    return Line(topic, text, (message_id, *(keys or "").split()))


def _text(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


class Tracing:
    """What one client has to tell, and how it gets there. Any thread may add."""

    def __init__(
        self,
        group: str,
        topic: str,
        sending: Sending,
        start: Callable[[Operation[None]], None],
        attend: Callable[[Chores], None],
    ) -> None:
        """`start` runs an operation beside everything else, `attend` does so again and again."""
        self.group = group
        self.topic = topic
        self._sending = sending
        self._start = start
        self._attend = attend
        self._is_attended = False
        self._lines: deque[Line] = deque()
        self._lock = threading.Lock()
        self._is_sending = False
        self._under_way = 0
        self._all_sent: Arrival | None = None
        self._dropped = 0

    def add(self, told: Line) -> None:
        with self._lock:
            if len(self._lines) >= LINES_WAITING_MAX:
                self._dropped += 1
                return
            self._lines.append(told)
            is_first, self._is_attended = not self._is_attended, True
            is_full = not self._is_sending and len(self._lines) >= LINES_IN_A_MESSAGE
            self._is_sending = self._is_sending or is_full
        if is_first:
            self._attend(self.chore)
        if is_full:
            self._start(self._send_full())

    def _send_full(self) -> Operation[None]:
        try:
            while len(self._lines) >= LINES_IN_A_MESSAGE:
                yield from self._send_some()
        finally:
            self._is_sending = False

    def flush(self) -> Operation[None]:
        """Send all there is."""
        while self._lines:
            yield from self._send_some()
        dropped, self._dropped = self._dropped, 0
        if dropped:
            _log.warning("%d lines of the message trace were dropped: they came too fast", dropped)

    def chore(self) -> Operation[float]:
        """Send all there is, again and again."""
        yield from self.flush()
        return FLUSH_SECONDS

    def leave(self) -> Operation[None]:
        """Send all there is, wait for what others are sending, and take leave of the brokers."""
        yield from self.flush()
        with self._lock:
            waiting = self._all_sent = Arrival() if self._under_way else None
        if waiting is not None:
            yield Wait(waiting, SEND_SECONDS, from_broker=False)
        if self._sending.end():
            yield from self._sending.presence.leave()

    def _send_some(self) -> Operation[None]:
        with self._lock:
            some = [self._lines.popleft() for _ in range(min(len(self._lines), LINES_IN_A_MESSAGE))]
            self._under_way += 1
        try:
            for message in messages_of(self.topic, some):
                yield from self._send(message)
        finally:
            with self._lock:
                self._under_way -= 1
                waiting = None if self._under_way else self._all_sent
            if waiting is not None:
                waiting.put(True)

    def _send(self, message: Message) -> Operation[None]:
        try:
            yield from self._sending.send(message, ANYWHERE, SEND_SECONDS)
        except MQError as error:
            _log.warning("a part of the message trace was not sent: %s", error)


def messages_of(topic: str, lines: Iterable[Line]) -> Iterator[Message]:
    """The messages that tell these lines: one for each topic they are about, in the order of the first."""
    by_topic: dict[str, list[Line]] = {}
    for each in lines:
        by_topic.setdefault(each.topic, []).append(each)
    for some in by_topic.values():
        body, keys = "", {}
        for each in some:
            body += each.text
            keys.update(dict.fromkeys(each.keys))
        yield Message(topic, body.encode(), keys=list(keys))


def tracing(
    group: str,
    kind: Literal["PRODUCE", "CONSUME"],
    trace: bool | str,
    cluster: ClusterSettings,
    name_server: str | Iterable[str] | None,
    clock: Clock,
    chance: Chance,
    start: Callable[[Operation[None]], None],
    attend: Callable[[Chores], None],
) -> Tracing:
    """The trace of a client of this group; `trace` is True, or the name of the topic to tell it to."""
    options = ProducerSettings(
        properties=cluster.properties,
        tls=cluster.tls,
        access=cluster.access,
        address_map=cluster.address_map,
        route_cache=cluster.route_cache,
        message_bytes_max=MESSAGE_BYTES_MAX,
    )
    inner = f"_INNER_TRACE_PRODUCER-{group[:GROUP_CHARACTERS_MAX]}-{kind}-{next(_numbers)}"
    sending = Sending(inner, name_server, options, clock, chance)
    return Tracing(group, TRACE_TOPIC if trace is True else str(trace), sending, start, attend)


class SendTrace:
    """Tells of sends, and of the ends of transactions: a hook of a producer."""

    def __init__(self, told: Tracing, namespace: str | None, clock: Clock) -> None:
        self._tracing = told
        self._namespace = namespace
        self._clock = clock

    def before_send(self, attempt: SendAttempt) -> None:
        """Only how it went is told."""

    def after_send(self, attempt: SendAttempt) -> None:
        result, outgoing = attempt.result, attempt.outgoing
        if result is None or not result.is_traced:
            return
        table = properties.parse(outgoing.properties.encode())
        topic = without_namespace(self._namespace, outgoing.topic)
        if topic == self._tracing.topic:
            return
        self._tracing.add(
            line(
                topic,
                result.message_id,
                table.get(KEYS),
                "Pub",
                attempt.began_ms,
                result.region or DEFAULT_REGION,
                without_namespace(self._namespace, outgoing.group),
                topic,
                result.message_id,
                table.get(TAGS),
                table.get(KEYS),
                attempt.address,
                len(outgoing.body),
                self._clock.now_ms() - attempt.began_ms,
                _kind(outgoing.sys_flag, table),
                result.offset_id,
                result.status is SendStatus.SEND_OK,
            )
        )

    def end_transaction(self, end: TransactionEnd) -> None:
        topic = without_namespace(self._namespace, end.topic)
        self._tracing.add(
            line(
                topic,
                end.message_id,
                end.keys,
                "EndTransaction",
                self._clock.now_ms(),
                end.region or DEFAULT_REGION,
                without_namespace(self._namespace, end.group),
                topic,
                end.message_id,
                end.tags,
                end.keys,
                end.address,
                COMMIT,
                end.transaction_id,
                STATES[end.state],
                end.from_check,
            )
        )


def _kind(sys_flag: int, table: dict[str, str]) -> int:
    if sys_flag & PREPARED:
        return HALF
    # As in Java, which does not count the delays of 5.x among them.
    return DELAYED if "DELAY" in table or "__STARTDELIVERTIME" in table else NORMAL


class ConsumeTrace:
    """Tells what a handler got, and how it ended: a hook of a consumer."""

    def __init__(self, told: Tracing, ids: UniqueIds, timeout_seconds: float) -> None:
        """A handler that takes longer than `timeout_seconds` counts as too late, whatever it does then."""
        self._tracing = told
        self._ids = ids
        self._lock = threading.Lock()
        self._timeout_ms = timeout_seconds * 1000

    def before_consume(self, attempt: ConsumeAttempt) -> None:
        traced = [each for each in attempt.messages if _is_traced(each)]
        with self._lock:
            request_id = self._ids.next(attempt.began_ms)
        attempt.notes[self] = (request_id, traced)
        for message in traced:
            self._tracing.add(
                line(
                    message.topic,
                    message.message_id,
                    message.keys,
                    "SubBefore",
                    attempt.began_ms,
                    message.properties.get("MSG_REGION"),
                    attempt.group,
                    request_id,
                    message.message_id,
                    message.reconsume_times,
                    message.keys,
                )
            )

    def after_consume(self, attempt: ConsumeAttempt) -> None:
        request_id, traced = attempt.notes[self]
        spent_ms = attempt.ended_ms - attempt.began_ms
        for message in traced:
            self._tracing.add(
                line(
                    message.topic,
                    message.message_id,
                    message.keys,
                    "SubAfter",
                    request_id,
                    message.message_id,
                    spent_ms // len(attempt.messages),
                    attempt.failure is None,
                    message.keys,
                    self._outcome(attempt.failure, spent_ms),
                    attempt.ended_ms,
                    attempt.group,
                )
            )

    def _outcome(self, failure: BaseException | None, spent_ms: int) -> int:
        is_answer = failure is None or isinstance(failure, RetryLater | DeadLetter)
        if not is_answer:
            return EXCEPTION
        if spent_ms >= self._timeout_ms:
            return TIME_OUT
        return SUCCESS if failure is None else FAILED


def _is_traced(message: ReceivedMessage) -> bool:
    """Brokers may say that it is not to be. Those of 4.9 say nothing, nor where they are."""
    return message.properties.get("TRACE_ON") != "false"
