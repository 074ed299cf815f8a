"""Sending messages: `Producer` blocks, `AsyncProducer` awaits; same parameters, same errors.

What a message needs before it travels (its unique id, its properties as text, a compressed body) is done
here, once, whatever becomes of the first try; how it then finds a broker is in `operations.send`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from kourou.client import operations, settings
from kourou.client.drive import AsyncDriver, BlockingDriver
from kourou.client.operations import Choose, Outgoing, SendResult
from kourou.client.presence import Presence, client_id
from kourou.client.queue_choice import Turns, by_key
from kourou.client.routes import NameServers, Routes
from kourou.client.steps import Operation
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, RealClock
from kourou.errors import ConfigError, ProtocolError
from kourou.message import UNIQUE_KEY, Message
from kourou.protocol import properties, record
from kourou.protocol.bodies import MessageQueue, ProducerData
from kourou.protocol.compression import COMPRESSED, compress
from kourou.protocol.message_id import UniqueIds
from kourou.protocol.names import NOT_SENDABLE, RETRY_PREFIX
from kourou.protocol.properties import PROPERTIES_BYTES_MAX

MESSAGE_BYTES_MAX = 4 * 1024 * 1024
COMPRESS_OVER_BYTES = 4096

WAIT = "WAIT"
DELAY = "DELAY"


class Producer:
    """Sends messages. One is enough for a program: any number of threads may share it.

        with kourou.Producer("shop", name_server="localhost:9876") as producer:
            sent = producer.send(kourou.Message("orders", b"one espresso", tags="new"))

    `group` names what sends (all its instances together). `name_server` is `host:port`, several separated
    by `;`; without it the environment variable NAMESRV_ADDR counts. `send_timeout` seconds are for one
    `send` with all its `retries` at other brokers. Bodies of `compress_over` bytes and more travel
    compressed with zlib, which every consumer can read; None never compresses.
    """

    def __init__(
        self,
        group: str,
        name_server: str | Iterable[str] | None = None,
        *,
        send_timeout: float = 3.0,
        retries: int = 2,
        compress_over: int | None = COMPRESS_OVER_BYTES,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self._sending = Sending(
            group, name_server, send_timeout, retries, compress_over, message_bytes_max, RealClock(), Chance()
        )
        self._driver = BlockingDriver()

    def send(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message, and return once a broker has it.

        Messages with one `key` go to one queue, and so are read in the order they were sent; `queue` names
        the queue itself. Such a message is tried once and goes nowhere else; any other goes to the next
        queue in turn, and to another broker when that fails. Raises Unreachable (for TimedOut and
        ConnectionLost: it may have been stored all the same), Refused, or ConfigError when it cannot be sent.
        """
        return self._driver.run(self._sending.send(message, key, queue, timeout))

    def send_one_way(
        self, message: Message, *, key: str | None = None, queue: MessageQueue | None = None
    ) -> None:
        """Hand a message to the network; nobody learns whether it was stored."""
        self._driver.run(self._sending.send_one_way(message, key, queue))

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send several messages of one topic to one queue, in one request: all are stored, or none."""
        return self._driver.run(self._sending.send_batch(messages, key, queue, timeout))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues a message of this topic may go to."""
        return self._driver.run(self._sending.queues(topic))

    def close(self) -> None:
        """Take leave of the brokers. A closed producer cannot be used again."""
        if self._sending.end():
            self._driver.run(self._sending.presence.leave())
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncProducer:
    """Sends messages, for asyncio. One is enough for an event loop: any number of tasks may share it.

        async with kourou.AsyncProducer("shop", name_server="localhost:9876") as producer:
            sent = await producer.send(kourou.Message("orders", b"one espresso", tags="new"))

    Everything is as with `Producer`, but awaited.
    """

    def __init__(
        self,
        group: str,
        name_server: str | Iterable[str] | None = None,
        *,
        send_timeout: float = 3.0,
        retries: int = 2,
        compress_over: int | None = COMPRESS_OVER_BYTES,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self._sending = Sending(
            group, name_server, send_timeout, retries, compress_over, message_bytes_max, RealClock(), Chance()
        )
        self._driver = AsyncDriver()

    async def send(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # as in the blocking form
    ) -> SendResult:
        """As `Producer.send`."""
        return await self._driver.run(self._sending.send(message, key, queue, timeout))

    async def send_one_way(
        self, message: Message, *, key: str | None = None, queue: MessageQueue | None = None
    ) -> None:
        """As `Producer.send_one_way`."""
        await self._driver.run(self._sending.send_one_way(message, key, queue))

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # as in the blocking form
    ) -> SendResult:
        """As `Producer.send_batch`."""
        return await self._driver.run(self._sending.send_batch(messages, key, queue, timeout))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """As `Producer.queues`."""
        return await self._driver.run(self._sending.queues(topic))

    async def close(self) -> None:
        """As `Producer.close`."""
        if self._sending.end():
            await self._driver.run(self._sending.presence.leave())
            await self._driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class Sending:
    """What both forms of a producer have in common: settings, state, and the operations they make."""

    def __init__(
        self,
        group: str,
        name_server: str | Iterable[str] | None,
        send_timeout: float,
        retries: int,
        compress_over: int | None,
        message_bytes_max: int,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self.group = settings.checked_group(group)
        addresses = settings.name_server_addresses(name_server)
        self._timeout = settings.checked_seconds("send_timeout", send_timeout)
        self._retries = settings.checked_count("retries", retries)
        if compress_over is not None:
            settings.checked_count("compress_over", compress_over)
        self._compress_over = compress_over
        self._message_bytes_max = settings.checked_count("message_bytes_max", message_bytes_max, 1)
        self._clock = clock
        self._routes = Routes(NameServers(addresses, chance, clock), clock)
        self._turns = Turns(chance)
        # An address drawn by chance: in containers, many machines have the same real one.
        self._ids = UniqueIds(chance.secret_bytes(4), os.getpid(), chance.getrandbits(32))
        self._ids_lock = threading.Lock()
        self._ended = False
        self.presence = Presence(client_id(clock), clock, producer=ProducerData(group_name=self.group))

    def send(
        self, message: Message, key: str | None, queue: MessageQueue | None, timeout: float | None
    ) -> Operation[SendResult]:
        return self._send(self._outgoing(message), key, queue, timeout)

    def send_batch(
        self, messages: Sequence[Message], key: str | None, queue: MessageQueue | None, timeout: float | None
    ) -> Operation[SendResult]:
        return self._send(self._outgoing_batch(messages), key, queue, timeout)

    def send_one_way(self, message: Message, key: str | None, queue: MessageQueue | None) -> Operation[None]:
        outgoing = self._outgoing(message)
        choose = self._choice(outgoing.topic, key, queue)
        return operations.send_one_way(
            outgoing, self._routes, choose, self.presence.announce, self._clock, timeout=self._timeout
        )

    def queues(self, topic: str) -> Operation[tuple[MessageQueue, ...]]:
        self._check_open()
        deadline = self._clock.monotonic() + self._timeout
        route = yield from self._routes.to_publish(settings.checked_topic(topic), deadline)
        return route.write_queues

    def end(self) -> bool:
        """From now on nothing is sent; False when that was so already."""
        was_open, self._ended = not self._ended, True
        return was_open

    def _send(
        self, outgoing: Outgoing, key: str | None, queue: MessageQueue | None, timeout: float | None
    ) -> Operation[SendResult]:
        fixed = key is not None or queue is not None
        return operations.send(
            outgoing,
            self._routes,
            self._choice(outgoing.topic, key, queue),
            self.presence.announce,
            self._clock,
            timeout=self._timeout if timeout is None else settings.checked_seconds("timeout", timeout),
            retries=0 if fixed else self._retries,
        )

    def _choice(self, topic: str, key: str | None, queue: MessageQueue | None) -> Choose:
        if queue is not None:
            if key is not None:
                raise ConfigError("key and queue are both given, and each of them says which queue; give one")
            if queue.topic != topic:
                raise ConfigError(f"a queue of topic '{queue.topic}' is given for a message to '{topic}'")
            return lambda queues, avoid: queue
        if key is not None:
            return lambda queues, avoid: by_key(queues, str(key))
        return self._turns.choose

    # ------------------------------------------------------------------------- a message gets ready

    def _outgoing(self, message: Message) -> Outgoing:
        self._check_sendable(message)
        table = self._with_id(message)
        body, sys_flag = self._perhaps_compressed(message.body)
        return Outgoing(
            self.group,
            message.topic,
            body,
            _encoded(table).decode(),
            table[UNIQUE_KEY],
            sys_flag,
            message.flag,
            self._clock.now_ms(),
        )

    def _outgoing_batch(self, messages: Sequence[Message]) -> Outgoing:
        if not messages:
            raise ConfigError("an empty batch cannot be sent; give at least one message")
        topic = messages[0].topic
        for message in messages:
            self._check_batchable(message, topic)
        tables = [self._with_id(message) for message in messages]
        body = record.encode_batch(
            (message.flag, message.body, _encoded(table))
            for message, table in zip(messages, tables, strict=True)
        )
        if len(body) > self._message_bytes_max:
            raise ConfigError(
                f"a batch of {len(messages)} messages has {len(body)} bytes, and at most "
                f"{self._message_bytes_max} are sent; send it in parts"
            )
        return Outgoing(
            self.group,
            topic,
            body,
            properties.encode({WAIT: tables[0][WAIT]}).decode(),
            ",".join(table[UNIQUE_KEY] for table in tables),
            born_ms=self._clock.now_ms(),
            batch=True,
        )

    def _check_open(self) -> None:
        if self._ended:
            raise ConfigError("this producer is closed; make a new one")

    def _check_sendable(self, message: Message) -> None:
        self._check_open()
        if message.topic in NOT_SENDABLE:
            raise ConfigError(f"topic '{message.topic}' belongs to the brokers; send to one of your own")
        if not message.body:
            raise ConfigError(f"a message to '{message.topic}' has no body; RocketMQ wants at least one byte")
        if len(message.body) > self._message_bytes_max:
            raise ConfigError(
                f"a message to '{message.topic}' has {len(message.body)} bytes, and at most "
                f"{self._message_bytes_max} are sent; raise message_bytes_max here and maxMessageSize at the "
                "brokers, or send a reference to what is large"
            )

    def _check_batchable(self, message: Message, topic: str) -> None:
        self._check_sendable(message)
        if message.topic != topic:
            raise ConfigError(f"a batch has one topic, and this one has '{topic}' and '{message.topic}'")
        if topic.startswith(RETRY_PREFIX) or message.properties.get(DELAY):
            raise ConfigError(
                "retry topics and delayed messages cannot be sent in batches; send them one by one"
            )

    def _with_id(self, message: Message) -> dict[str, str]:
        """Its properties with those every message has. The message stays as it is, and may be sent again."""
        table = dict(message.properties)
        if UNIQUE_KEY not in table:
            with self._ids_lock:
                table[UNIQUE_KEY] = self._ids.next(self._clock.now_ms())
        table.setdefault(WAIT, "true")
        return table

    def _perhaps_compressed(self, body: bytes) -> tuple[bytes, int]:
        if self._compress_over is None or len(body) < self._compress_over:
            return body, 0
        smaller = compress(body)
        # The bare bit, as all clients but the newest Java ones set it: everybody takes that for zlib.
        return (smaller, COMPRESSED) if len(smaller) < len(body) else (body, 0)


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
