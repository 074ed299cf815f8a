"""What both forms of a producer have in common: settings, state, and the operations they make.

What a message needs before it travels (its unique id, its properties as text, a compressed body) is done
here, once, whatever becomes of the first try; how it then finds a broker is in `sends.py`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kourou.client import sends, settings
from kourou.client.delays import DELAY, TIMER_PROPERTIES, Delay, delay_properties
from kourou.client.gate import Gate
from kourou.client.home import Home
from kourou.client.namespaces import (
    queue_with_namespace,
    queue_without_namespace,
    with_namespace,
    without_namespace,
)
from kourou.client.presence import HEARTBEAT_SECONDS, Presence, client_id
from kourou.client.producer_settings import ProducerSettings
from kourou.client.queue_choice import Order, Select, Turns, among_those_left, by_function, only, strictly
from kourou.client.refusals import accepted
from kourou.client.sends import Choose, Greet, Outgoing, Plan, SendAttempt, SendHook, SendResult
from kourou.client.steps import Call, Operation
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock
from kourou.errors import ConfigError, MQError, NotFound, ProtocolError
from kourou.message import UNIQUE_KEY, WAIT, Message, ReceivedMessage
from kourou.protocol import properties, record
from kourou.protocol.bodies import MessageQueue, ProducerData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, request
from kourou.protocol.compression import COMPRESSED, Compression, compress
from kourou.protocol.headers import QueueNamed, RecallMessage, RecallReply
from kourou.protocol.message_id import UniqueIds
from kourou.protocol.names import DEFAULT_TOPIC, NOT_SENDABLE, RETRY_PREFIX
from kourou.protocol.properties import PROPERTIES_BYTES_MAX

if TYPE_CHECKING:
    from kourou.client.drive import Chores
    from kourou.client.faults import Faults
    from kourou.client.telemetry import SendSpan
    from kourou.client.trace import Tracing

INSTANCE_ID = "INSTANCE_ID"
MESSAGE_TYPE = "MSG_TYPE"
REPLY_TYPE = "reply"
PRODUCER_GROUP = "PGROUP"
TRANSACTION_PREPARED = "TRAN_MSG"
PREPARED = 0x4
"""The bit of a message's system flag that makes it one half of a transaction."""

_log = logging.getLogger("kourou.client")

Sent = TypeVar("Sent", bound=SendResult | None)


class Where(NamedTuple):
    """Which queue a message shall go to; at most one of the first three is given."""

    key: str | None = None
    queue: MessageQueue | None = None
    select: Select | None = None
    order: Order = "strict"

    @property
    def is_fixed(self) -> bool:
        """Whether another queue would be wrong."""
        if self.key is not None:
            return self.order == "strict"
        return self.queue is not None or self.select is not None


ANYWHERE = Where()


class Sending:
    """Makes messages ready, and the operations that send them. Any number of threads may ask at once."""

    def __init__(
        self,
        group: str,
        name_server: str | Iterable[str] | None,
        options: ProducerSettings,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self.group = with_namespace(options.namespace, settings.checked_producer_group(group))
        self.settings = options
        self.clock = clock
        self.routes = options.routes(name_server, clock, chance)
        self.moved_keys = 0
        """Messages with a key and `order="normal"` that did not go to their key's own queue."""
        self._turns = Turns(chance)
        self._faults = self._avoidance(chance)
        # An address drawn by chance: in containers, many machines have the same real one.
        self._ids = UniqueIds(chance.secret_bytes(4), os.getpid(), chance.getrandbits(32))
        self._ids_lock = threading.Lock()
        self.home = Home("producer")
        self._is_closing = False
        self._ended = False
        self.gate = Gate(options.in_flight_max, options.in_flight_bytes_max, clock)
        self.presence = Presence(client_id(clock), clock, producer=ProducerData(group_name=self.group))
        self._plain_plan = Plan(
            self._turns.next_of if self._faults is None else self._faults.choose,
            self.presence.announce,
            options.send_timeout,
            options.retries,
            frozenset(options.retried_codes),
            options.retry_another_broker_when_not_stored,
            options.vip_channel,
            self._faults,
        )
        """How a message is sent about which nothing was said: made once."""
        self.hooks: tuple[SendHook, ...] = ()
        self.end_transaction_hooks = tuple(options.end_transaction_hooks)
        self._add_hooks(options.hooks)

    def _add_hooks(self, hooks: Iterable[SendHook]) -> None:
        self.hooks += tuple(hooks)
        if self.hooks:
            self._plain_plan = self._plain_plan._replace(around=self._tell_hooks)

    def traced(
        self,
        name_server: str | Iterable[str] | None,
        chance: Chance,
        start: Callable[[Operation[None]], None],
        attend: Callable[[Chores], None],
    ) -> Tracing | None:
        """The message trace, if it is wanted; from now on it is told of everything."""
        if not self.settings.trace:
            return None
        from kourou.client.trace import SendTrace, tracing  # off by default

        told = tracing(
            without_namespace(self.settings.namespace, self.group),
            "PRODUCE",
            self.settings.trace,
            self.settings,
            name_server,
            self.clock,
            chance,
            start,
            attend,
        )
        hook = SendTrace(told, self.settings.namespace, self.clock)
        self._add_hooks([hook])
        self.end_transaction_hooks += (hook,)
        return told

    def _avoidance(self, chance: Chance) -> Faults | None:
        if self.settings.avoid_slow_brokers is None:
            return None
        from kourou.client.faults import TABLES, Faults  # off by default

        table = TABLES[self.settings.avoid_slow_brokers]
        return Faults(table, self._turns, self.clock, chance, self.settings.probe_brokers)

    def send(
        self,
        message: Message,
        where: Where = ANYWHERE,
        timeout: float | None = None,
        delay: Delay | None = None,
    ) -> Operation[SendResult]:
        self.check_open()
        outgoing = self.outgoing(message, None if delay is None else self._delayed(message, delay))
        return self.sent(outgoing, self.plan(outgoing, message, where, timeout))

    def send_soon(
        self, message: Message, where: Where, timeout: float | None, delay: Delay | None
    ) -> tuple[Operation[None], Operation[SendResult]]:
        """As `send`, but tried again only after network errors, and then also at a queue that is fixed.

        First what waits for room among the messages on their way, then what sends and makes room again.
        """
        self.check_open()
        outgoing = self.outgoing(message, None if delay is None else self._delayed(message, delay))
        plan = self.plan(outgoing, message, where, timeout)._replace(
            retries=self.settings.retries_soon, retried_codes=frozenset()
        )
        size = len(outgoing.body)
        room = self.gate.enter(size, plan.timeout)
        if outgoing.span is not None:
            room = self._entering(room, outgoing.span)
        return room, self._leaving(self.sent(outgoing, plan), size)

    def _entering(self, room: Operation[None], span: SendSpan) -> Operation[None]:
        """A message that found no room is not sent: that is the end of its span."""
        try:
            yield from room
        except MQError as error:
            span.end(0.0, None, error)
            raise

    def send_together(self, messages: Sequence[Message]) -> Operation[SendResult]:
        """As `send_soon`, for several messages in one request; one alone goes as it would alone."""
        outgoing = self.outgoing(messages[0]) if len(messages) == 1 else self._outgoing_batch(messages)
        plan = self._plain_plan._replace(retries=self.settings.retries_soon, retried_codes=frozenset())
        return self.sent(outgoing, plan)

    def encoded_bytes(self, message: Message) -> int:
        """How much of a batch a message takes; raises ConfigError when it cannot be sent."""
        self.check_open()
        self._check_sendable(message)
        return len(message.body) + len(_encoded(self.with_id(message.properties)))

    def _leaving(self, operation: Operation[SendResult], size: int) -> Operation[SendResult]:
        try:
            return (yield from operation)
        finally:
            self.gate.leave(size)

    def sent(self, outgoing: Outgoing, plan: Plan) -> Operation[SendResult]:
        """Send it, and tell where it has gone in the program's own words."""
        operation = sends.send(outgoing, self.routes, plan, self.clock)
        if outgoing.span is not None:
            operation = self._spanned(operation, outgoing.span)
        return operation if self.settings.namespace is None else self._renamed(operation)

    def _spanned(self, operation: Operation[Sent], span: SendSpan) -> Operation[Sent]:
        began = self.clock.monotonic()
        try:
            result = yield from operation
        except BaseException as error:  # also when it is cancelled
            span.end(self.clock.monotonic() - began, None, error)
            raise
        span.end(self.clock.monotonic() - began, result)
        return result

    def _renamed(self, operation: Operation[SendResult]) -> Operation[SendResult]:
        result = yield from operation
        return result._replace(queue=queue_without_namespace(self.settings.namespace, result.queue))

    def send_half(self, message: Message, timeout: float | None) -> Operation[SendResult]:
        """Send one half of a transaction: stored, and not yet visible to anybody."""
        self.check_open()
        # As in the Java client, a level is dropped: a half message waits for its other half, not for a time.
        table = {name: value for name, value in message.properties.items() if name != DELAY}
        table[TRANSACTION_PREPARED] = "true"
        table[PRODUCER_GROUP] = self.group
        outgoing = self.outgoing(message, table)
        outgoing = outgoing._replace(sys_flag=outgoing.sys_flag | PREPARED)
        return self.sent(outgoing, self.plan(outgoing, message, ANYWHERE, timeout))

    def send_batch(
        self, messages: Iterable[Message], where: Where = ANYWHERE, timeout: float | None = None
    ) -> Operation[SendResult]:
        self.check_open()
        together = list(_several(messages))
        outgoing = self._outgoing_batch(together)
        return self.sent(outgoing, self.plan(outgoing, together[0], where, timeout))

    def send_all(
        self, messages: Iterable[Message], where: Where, timeout: float | None
    ) -> Operation[list[SendResult]]:
        """Send many messages in as few requests as possible; raises with the first that fails."""
        results = []
        for part in self.parts(_several(messages)):
            result = yield from self.send_batch(part, where, timeout)
            results.append(result)
        return results

    def send_one_way(self, message: Message, where: Where = ANYWHERE) -> Operation[None]:
        self.check_open()
        outgoing = self.outgoing(message)
        plan = self.plan(outgoing, message, where, None)
        operation = sends.send_one_way(outgoing, self.routes, plan, self.clock)
        return operation if outgoing.span is None else self._spanned(operation, outgoing.span)

    def recall(self, topic: str, handle: str) -> Operation[str]:
        """Take back a message that is not due yet; the id of the message."""
        from kourou.protocol.recall_handle import parse_recall_handle  # few programs take anything back

        self.check_open()
        topic = self.topic_at_broker(topic)
        try:
            broker_name = parse_recall_handle(handle).broker_name
        except ProtocolError as error:
            raise ConfigError(str(error)) from None
        deadline = self.clock.monotonic() + self.settings.send_timeout
        route = yield from self.routes.to_publish(topic, deadline)
        address = route.master(broker_name)
        header = RecallMessage(topic, handle, self.group)
        reply: Command = yield Call(
            address, request(RequestCode.RECALL_MESSAGE, header), deadline - self.clock.monotonic()
        )
        accepted(reply, f"{broker_name} ({address}), recall of a message to '{topic}'")
        return reply.parse(RecallReply).message_id

    def queues(self, topic: str) -> Operation[tuple[MessageQueue, ...]]:
        self.check_open()
        deadline = self.clock.monotonic() + self.settings.send_timeout
        route = yield from self.routes.to_publish(self.topic_at_broker(topic), deadline)
        return tuple(queue_without_namespace(self.settings.namespace, queue) for queue in route.write_queues)

    def query(
        self, topic: str, key: str, count: int, begin: datetime | None, end: datetime | None
    ) -> Operation[list[ReceivedMessage]]:
        """Messages with this key."""
        from kourou.client import lookups  # few programs look for messages

        self.check_open()
        found = yield from lookups.by_key(
            self.routes,
            self.clock,
            self.topic_at_broker(topic),
            _checked_text("key", key),
            count=settings.checked_count("max_messages", count, 1),
            begin_ms=_moment_ms("begin", begin, 0),
            end_ms=_moment_ms("end", end, lookups.LATEST_MS),
        )
        for message in found:
            self.show(message)
        return found

    def view(self, topic: str, message_id: str) -> Operation[ReceivedMessage]:
        """The message with this id."""
        from kourou.client import lookups

        self.check_open()
        found = yield from lookups.by_id(
            self.routes, self.clock, self.topic_at_broker(topic), _checked_text("message_id", message_id)
        )
        self.show(found)
        return found

    def topic_at_broker(self, topic: str) -> str:
        """Its name with the namespace, if there is one."""
        return with_namespace(self.settings.namespace, settings.checked_topic(topic))

    def show(self, message: ReceivedMessage) -> None:
        """Have a received message appear under the program's own name for its topic."""
        if self.settings.namespace is not None:
            message.show_as(without_namespace(self.settings.namespace, message.topic))

    def stay_known(self) -> Operation[float]:
        """A chore: let every broker we may send to know that we are there, also while nothing is sent."""
        deadline = self.clock.monotonic() + self.settings.send_timeout
        for topic in {*self.routes.topics(), DEFAULT_TOPIC}:
            try:
                yield from self.routes.to_read(topic, deadline)
            except NotFound:
                continue  # the default topic, say, where topics are not made by sending to them
        yield from self.presence.beat(self.routes.masters())
        return HEARTBEAT_SECONDS

    def when_unreachable(self, attend: Callable[[Chores], None]) -> None:
        """Have `attend` probe, if that is wanted, from when a broker cannot be reached for the first time."""
        if self._faults is not None and self.settings.probe_brokers:
            self._faults.first_unreachable = lambda: attend(self.probe)

    def probe(self) -> Operation[float]:
        """A chore: look whether brokers that could not be reached are there again."""
        from kourou.client.faults import PROBE_SECONDS, PROBE_TIMEOUT_SECONDS

        assert self._faults is not None
        unreachable = set(self._faults.unreachable())
        for queue in self.routes.a_queue_of_each_broker():
            if queue.broker_name in unreachable:
                header = QueueNamed(queue.topic, queue.queue_id)
                try:
                    address = self.routes.known(queue.topic).master(queue.broker_name)
                    yield Call(address, request(RequestCode.GET_MAX_OFFSET, header), PROBE_TIMEOUT_SECONDS)
                except MQError:
                    continue
                self._faults.reached(queue.broker_name)
        return PROBE_SECONDS

    def take_no_more(self) -> None:
        """From now on nobody can send; what was taken already still goes."""
        self._is_closing = True
        self.gate.shut()

    def end(self) -> bool:
        """From now on nothing is sent; False when that was so already."""
        self._is_closing = True
        was_open, self._ended = not self._ended, True
        return was_open

    @property
    def is_ended(self) -> bool:
        return self._ended

    def check_open(self) -> None:
        if self._is_closing:
            raise ConfigError("this producer is closed; make a new one")
        self.home.check()

    # -------------------------------------------------------------------------------- how it is sent

    def plan(self, outgoing: Outgoing, message: Message, where: Where, timeout: float | None) -> Plan:
        if where == ANYWHERE and timeout is None and "TIMER_DEL" not in outgoing.properties:
            return self._plain_plan
        return self._made_plan(outgoing, message, where, timeout)

    def _made_plan(self, outgoing: Outgoing, message: Message, where: Where, timeout: float | None) -> Plan:
        options = self.settings
        return self._plain_plan._replace(
            choose=self._choice(outgoing.topic, message, where),
            greet=self._greeting(outgoing),
            timeout=options.send_timeout if timeout is None else settings.checked_seconds("timeout", timeout),
            retries=0 if where.is_fixed else options.retries,
        )

    def _choice(self, topic: str, message: Message, where: Where) -> Choose:
        if sum(given is not None for given in where[:3]) > 1:
            raise ConfigError(
                "key, queue and select each say which queue; key and queue are both given, or "
                "select with one of them: give one"
            )
        if where.queue is not None:
            if not isinstance(where.queue, MessageQueue):
                raise ConfigError(f"queue is {where.queue!r}; give one of those that `queues` tells")
            queue = queue_with_namespace(self.settings.namespace, where.queue)
            if queue.topic != topic:
                raise ConfigError(
                    f"a queue of topic '{where.queue.topic}' is given for a message to '{message.topic}'"
                )
            return only(queue)
        if where.select is not None:
            if not callable(where.select):
                raise ConfigError(f"select is {where.select!r}, but must be a function of queues and message")
            return by_function(where.select, message, self.settings.namespace)
        if where.order not in ("strict", "normal"):
            raise ConfigError(f"order is {where.order!r}; it is strict or normal")
        if where.key is None:
            return self._turns.next_of if self._faults is None else self._faults.choose
        key = str(where.key)
        return strictly(key) if where.order == "strict" else among_those_left(key, self._count_moved)

    def _count_moved(self) -> None:
        with self._ids_lock:
            self.moved_keys += 1

    def _greeting(self, outgoing: Outgoing) -> Greet:
        return self._greet_for_any_delay if "TIMER_DEL" in outgoing.properties else self.presence.announce

    def _greet_for_any_delay(self, address: str) -> Operation[None]:
        version = yield from self.presence.version_of(address)
        if not version.knows_any_delay:
            raise ConfigError(
                f"the broker at {address} is of RocketMQ 4, which knows delay levels only and would deliver "
                "at once; give delay=DelayLevel(n)"
            )
        yield from self.presence.announce(address)

    def _tell_hooks(self, attempt: SendAttempt, is_over: bool) -> None:
        for hook in self.hooks:
            try:
                hook.after_send(attempt) if is_over else hook.before_send(attempt)
            except Exception:
                _log.exception("a send hook failed")

    # ------------------------------------------------------------------------- a message gets ready

    def outgoing(self, message: Message, table: dict[str, str] | None = None) -> Outgoing:
        """The message as it travels, with `table` as its properties if given."""
        self._check_sendable(message)
        table = self.with_id(message.properties if table is None else table)
        span = None if self.settings.telemetry is None else self._span(message.topic, [table])
        body, sys_flag = self._perhaps_compressed(message.body)
        is_reply = table.get(MESSAGE_TYPE) == REPLY_TYPE
        return Outgoing(
            self.group,
            message.topic if is_reply else with_namespace(self.settings.namespace, message.topic),
            body,
            _encoded(table).decode(),
            table[UNIQUE_KEY],
            sys_flag,
            message.flag,
            self.clock.now_ms(),
            reply=is_reply,
            span=span,
        )

    def _span(self, topic: str, tables: list[dict[str, str]]) -> SendSpan:
        """The span of a send, which the messages with these properties carry along."""
        assert self.settings.telemetry is not None
        group = without_namespace(self.settings.namespace, self.group)
        span = self.settings.telemetry.begin_send(topic, group, len(tables))
        span.carry(tables)
        return span

    def parts(self, messages: Iterable[Message]) -> Iterator[list[Message]]:
        """The messages in batches: of one topic each, no larger than may be sent, in their order."""
        batches: dict[str, list[Message]] = {}
        sizes: dict[str, int] = {}
        for message in messages:
            check_message(message)
            self._check_batchable(message, message.topic)
            size = BATCH_ITEM_BYTES + self.encoded_bytes(message)
            batch = batches.setdefault(message.topic, [])
            is_full = len(batch) == record.BATCH_ITEMS_MAX
            if is_full or (batch and sizes[message.topic] + size > self.settings.message_bytes_max):
                yield batch
                batch = batches[message.topic] = []
            batch.append(message)
            sizes[message.topic] = size + (sizes[message.topic] if len(batch) > 1 else 0)
        yield from batches.values()

    def _delayed(self, message: Message, delay: Delay) -> dict[str, str]:
        check_message(message)
        wanted = delay_properties(delay)
        if wanted and any(name in message.properties for name in {DELAY, *TIMER_PROPERTIES}):
            raise ConfigError("delay is given, and the message has a property that says another; give one")
        return message.properties | wanted

    def _outgoing_batch(self, messages: Sequence[Message]) -> Outgoing:
        if not messages:
            raise ConfigError("an empty batch cannot be sent; give at least one message")
        check_message(messages[0])
        topic = messages[0].topic
        for message in messages:
            self._check_batchable(message, topic)
        tables = [self.with_id(message.properties) for message in messages]
        span = None if self.settings.telemetry is None else self._span(topic, tables)
        body = record.encode_batch(
            (message.flag, message.body, _encoded(table))
            for message, table in zip(messages, tables, strict=True)
        )
        if len(body) > self.settings.message_bytes_max:
            raise ConfigError(
                f"a batch of {len(messages)} messages has {len(body)} bytes, and at most "
                f"{self.settings.message_bytes_max} are sent; send it in parts: send_all does"
            )
        return Outgoing(
            self.group,
            self.topic_at_broker(topic),
            body,
            properties.encode({WAIT: tables[0][WAIT]}).decode(),
            ",".join(table[UNIQUE_KEY] for table in tables),
            born_ms=self.clock.now_ms(),
            batch=True,
            span=span,
        )

    def _check_sendable(self, message: Message) -> None:
        check_message(message)
        if message.topic in NOT_SENDABLE:
            raise ConfigError(f"topic '{message.topic}' belongs to the brokers; send to one of your own")
        if not message.body:
            raise ConfigError(f"a message to '{message.topic}' has no body; RocketMQ wants at least one byte")
        if len(message.body) > self.settings.message_bytes_max:
            raise ConfigError(
                f"a message to '{message.topic}' has {len(message.body)} bytes, and at most "
                f"{self.settings.message_bytes_max} are sent; raise message_bytes_max here and "
                "maxMessageSize at the brokers, or send a reference to what is large"
            )

    def _check_batchable(self, message: Message, topic: str) -> None:
        self._check_sendable(message)
        if message.topic != topic:
            raise ConfigError(f"a batch has one topic, and this one has '{topic}' and '{message.topic}'")
        if topic.startswith(RETRY_PREFIX) or not NOT_IN_BATCHES.isdisjoint(message.properties):
            raise ConfigError(
                "retry topics and delayed messages cannot be sent in batches; send them one by one"
            )

    def with_id(self, given: dict[str, str]) -> dict[str, str]:
        """Properties with those every message has. The message stays as it is, and may be sent again."""
        table = dict(given)
        if UNIQUE_KEY not in table:
            with self._ids_lock:
                table[UNIQUE_KEY] = self._ids.next(self.clock.now_ms())
        table.setdefault(WAIT, "true")
        if self.settings.namespace is not None:
            table[INSTANCE_ID] = self.settings.namespace
        return table

    def _perhaps_compressed(self, body: bytes) -> tuple[bytes, int]:
        options = self.settings
        if options.compress_over is None or len(body) < options.compress_over:
            return body, 0
        kind = options.compression_kind
        smaller = compress(body, kind)
        if len(smaller) >= len(body):
            return body, 0
        # The bare bit for zlib, as all clients but the newest Java ones set it: everybody takes it for that.
        return smaller, COMPRESSED if kind is Compression.ZLIB else kind.sys_flag


BATCH_ITEM_BYTES = 22
"""What a message in a batch needs besides its body and properties."""

NOT_IN_BATCHES = frozenset({DELAY, *TIMER_PROPERTIES, TRANSACTION_PREPARED})


def _several(messages: Any) -> Iterable[Message]:
    if isinstance(messages, Message):
        raise ConfigError("one message is given, and several are sent together: put it into a list")
    if not isinstance(messages, Iterable):
        raise ConfigError(f"{messages!r} is given, and several messages are sent together: give a list")
    return messages


def _checked_text(what: str, text: object) -> str:
    if not isinstance(text, str) or not text:
        raise ConfigError(f"{what} is {text!r}, but must be a text")
    return text


def _moment_ms(what: str, moment: object, without: int) -> int:
    if moment is None:
        return without
    if not isinstance(moment, datetime):
        raise ConfigError(f"{what} is {moment!r}, but must be a datetime")
    return round(moment.timestamp() * 1000)


def check_message(message: object) -> None:
    """Raises ConfigError for what is no message to send."""
    if not isinstance(message, Message):
        raise ConfigError(
            f"{str(message)[:80]!r} is a {type(message).__name__}, and a kourou.Message is sent: "
            'Message("topic", b"body")'
        )


def _encoded(table: dict[str, str]) -> bytes:
    try:
        encoded = properties.encode(table)
    except ProtocolError as error:
        raise ConfigError(str(error)) from None
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise ConfigError(
            f"the properties of a message have {len(encoded)} bytes, and at most {PROPERTIES_BYTES_MAX} "
            "are stored; put what is large into the body"
        )
    return encoded
