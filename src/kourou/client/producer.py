"""Sending messages: `Producer` blocks, `AsyncProducer` awaits; same parameters, same errors.

What they do is in `sending.py` (a message gets ready), `sends.py` (it finds its broker) and `asking.py`
(requests and replies); here is how it looks from outside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from kourou.client import presence
from kourou.client.asking import Asking
from kourou.client.delays import Delay
from kourou.client.drive import AsyncDriver, BlockingDriver
from kourou.client.producer_settings import ProducerSettings
from kourou.client.queue_choice import Order, Select
from kourou.client.route_news import route_news
from kourou.client.sending import Sending, Where
from kourou.client.sends import SendResult
from kourou.client.steps import Operation
from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.errors import ConfigError, MQError
from kourou.message import Message, ReceivedMessage
from kourou.protocol.bodies import MessageQueue
from kourou.remoting.answer import Handler

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from kourou.client.lingering import Lingering
    from kourou.client.options import ProducerOptions

REQUEST_SECONDS = 3.0
HEARTBEAT_JOIN_SECONDS = 1.0
NO_HANDLERS: Mapping[int, Handler] = {}

OnSent = Callable[[SendResult | Exception], None]
"""Is told where a message has gone, or why it has not."""


class Producer:
    """Sends messages. One is enough for a program: any number of threads may share it.

        with kourou.Producer("shop", name_server="localhost:9876") as producer:
            sent = producer.send(kourou.Message("orders", b"one espresso", tags="new"))

    `group` names what sends (all its instances together). `name_server` is `host:port`, several separated
    by `;`; without it the environment variable NAMESRV_ADDR counts. `send_timeout` seconds are for one
    `send` with all its `retries` at other brokers. Bodies of `compress_over` bytes and more travel
    compressed with zlib, which every consumer can read; None never compresses. `ProducerSettings` has all
    the keywords.
    """

    def __init__(
        self,
        group: str,
        name_server: str | Iterable[str] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._sending = Sending(group, name_server, ProducerSettings(**options), RealClock(), Chance())
        self._asking = Asking(self._sending, Chance())
        self._lingering = _lingering(self._sending)
        self._is_closing = threading.Event()
        self._beating: threading.Thread | None = None
        self._sending.routes.reads_when_asked = True
        self._driver = BlockingDriver(
            handlers={
                **self._asking.handlers,
                **self._own_handlers(),
                **route_news(self._sending.routes),
            },
            tls=self._sending.settings.tls,
            sign=self._sending.settings.sign,
        )
        self._sending.when_unreachable(self._driver.attend)
        self._tracing = self._sending.traced(
            name_server, Chance(), lambda told: self._driver.start(told, _ignored), self._driver.attend
        )

    def send(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        order: Order = "strict",
        delay: Delay | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message, and return once a broker has it.

        Messages with one `key` go to one queue, and so are read in the order they were sent; `queue` names
        the queue itself; `select(queues, message)` is a function that picks one of the queues. Such a message
        is tried once and goes nowhere else; any other goes to the next queue in turn, and to another broker
        when that fails. With `order="normal"` a message with a key may go to another queue while its own
        cannot be reached.

        With `delay` (seconds, a timedelta, a datetime or a DelayLevel) nobody sees it before then.

        Raises Unreachable (for TimedOut and ConnectionLost: it may have been stored all the same), Refused,
        or ConfigError when it cannot be sent.
        """
        where = Where(key, queue, select, order)
        return self._driver.run(self._sending.send(message, where, timeout, delay))

    def send_soon(
        self,
        message: Message,
        then: OnSent | None = None,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        order: Order = "strict",
        delay: Delay | None = None,
        timeout: float | None = None,
    ) -> Future[SendResult]:
        """Send a message without waiting for the broker's answer, which the future gets.

        `then` is told it as well, or the error, in a thread of the producer's own. It is tried again after
        network errors (`retries_soon` times), never after a refusal. While `in_flight_max` messages or
        `in_flight_bytes_max` bytes are on their way it waits; raises Busy when there is no room in time.
        """
        from concurrent.futures import Future

        _check_told(then)
        where = Where(key, queue, select, order)
        sent: Future[SendResult] = Future()
        sent.set_running_or_notify_cancel()

        def told(outcome: SendResult | Exception) -> None:
            if isinstance(outcome, Exception):
                sent.set_exception(outcome)
            else:
                sent.set_result(outcome)
            if then is not None:
                then(outcome)

        if self._lingering is not None and self._lingering.takes(message, where, delay, timeout):
            size = self._lingering.size_of(message)
            self._driver.run(self._sending.gate.enter(len(message.body), self._sending.settings.send_timeout))
            batch = self._lingering.add(message, size, _leaving(self._sending, message, told))
            if batch is not None:
                self._driver.start(self._lingering.send(batch), partial(_if_given_up, batch.tell_all))
            return sent
        room, operation = self._sending.send_soon(message, where, timeout, delay)
        self._driver.run(room)
        self._driver.start(operation, told)
        return sent

    def send_one_way(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
    ) -> None:
        """Hand a message to the network; nobody learns whether it was stored.

        It is lost when the connection breaks, or when the broker refuses it for any reason.
        """
        self._driver.run(self._sending.send_one_way(message, Where(key, queue, select)))

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send several messages of one topic to one queue, in one request: all are stored, or none."""
        return self._driver.run(self._sending.send_batch(messages, Where(key, queue), timeout))

    def send_all(
        self,
        messages: Iterable[Message],
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send any number of messages in as few batches as they fit in, one result for each batch.

        Raises with the first batch that fails; those before it are stored. `timeout` is for each batch.
        """
        return self._driver.run(self._sending.send_all(messages, Where(key, queue), timeout))

    def request(
        self, message: Message, timeout: float = REQUEST_SECONDS, *, key: str | None = None
    ) -> ReceivedMessage:
        """Send a message that asks something, and return what a consumer of it replied.

        The consumer answers with `producer.send(kourou.reply_to(message, b"..."))`. Raises TimedOut when
        nobody did in time.
        """
        return self._driver.run(self._asking.request(message, Where(key), timeout))

    def recall(self, topic: str, handle: str | SendResult) -> str:
        """Take back a message that was sent with a delay and is not due yet; returns its id.

        `handle` is what `send` gave: its result, or its `recall_handle`. The broker must allow it
        (`recallMessageEnable`), and does not tell whether the message was still there.
        """
        return self._driver.run(self._sending.recall(topic, _handle_of(handle)))

    def query(
        self,
        topic: str,
        key: str,
        max_messages: int = 32,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
    ) -> list[ReceivedMessage]:
        """Messages of a topic that were sent with this key, the oldest first; up to so many of each broker.

        `begin` and `end` say when they were stored. A message can be found about a second after it was sent.
        """
        return self._driver.run(self._sending.query(topic, key, max_messages, begin, end))

    def view(self, topic: str, message_id: str) -> ReceivedMessage:
        """The message with this id, be it `message_id` or `offset_id`; raises NotFound when there is none."""
        return self._driver.run(self._sending.view(topic, message_id))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues a message of this topic may go to."""
        return self._driver.run(self._sending.queues(topic))

    @property
    def moved_keys(self) -> int:
        """How many messages with `order="normal"` went to another queue than their key's own."""
        return self._sending.moved_keys

    def close(self) -> None:
        """Take no more messages, wait for those of `send_soon` that are on their way, and leave the brokers.

        That takes `send_timeout` seconds at most. Any other send that is under way, in another thread or
        task, is told ConnectionLost. A closed producer cannot be used again.
        """
        if not self._sending.home.is_here:
            return  # a fork must not take leave of the brokers in its parent's name
        self._sending.take_no_more()
        if self._lingering is not None:
            self._lingering.flush()
        self._driver.run(self._sending.gate.empty(self._sending.settings.send_timeout))
        if self._sending.end():
            self._is_closing.set()
            if self._beating is not None:
                self._beating.join(HEARTBEAT_JOIN_SECONDS)
            if self._tracing is not None:
                self._driver.run(self._tracing.leave())
            self._driver.run(self._sending.presence.leave())
            self._driver.close()

    def _own_handlers(self) -> Mapping[int, Handler]:
        """For what brokers ask of this kind of producer."""
        return NO_HANDLERS

    def __enter__(self) -> Self:
        self._sending.check_open()
        self._stay_known()
        return self

    def _stay_known(self) -> None:
        """From now on brokers we have sent to hear of us regularly, also while nothing is sent."""
        # A thread that reads for all, as `attend` has, would make every send wait for it; this one sleeps.
        if self._beating is None:
            self._beating = threading.Thread(target=self._beat, name="kourou-heartbeat", daemon=True)
            self._beating.start()

    def _beat(self) -> None:
        while not self._is_closing.wait(presence.HEARTBEAT_SECONDS):
            try:
                self._driver.run(self._sending.presence.beat())
            except MQError:
                continue  # the next send tells what is wrong

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
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._sending = Sending(group, name_server, ProducerSettings(**options), RealClock(), Chance())
        self._asking = Asking(self._sending, Chance())
        self._lingering = _lingering(self._sending)
        self._driver = AsyncDriver(
            handlers={
                **self._asking.handlers,
                **self._own_handlers(),
                **route_news(self._sending.routes),
            },
            tls=self._sending.settings.tls,
            sign=self._sending.settings.sign,
        )
        self._sending.when_unreachable(self._driver.attend)
        self._tracing = self._sending.traced(
            name_server, Chance(), lambda told: self._driver.start(told, _ignored), self._driver.attend
        )

    async def send(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        order: Order = "strict",
        delay: Delay | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # as in the blocking form
    ) -> SendResult:
        """As `Producer.send`."""
        where = Where(key, queue, select, order)
        return await self._driver.run(self._sending.send(message, where, timeout, delay))

    async def send_soon(
        self,
        message: Message,
        then: OnSent | None = None,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        order: Order = "strict",
        delay: Delay | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # as in the blocking form
    ) -> asyncio.Future[SendResult]:
        """As `Producer.send_soon`; the future is the event loop's, and so is who tells `then`."""
        import asyncio

        _check_told(then)
        where = Where(key, queue, select, order)
        sent: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()

        def told(outcome: SendResult | Exception) -> None:
            if not sent.done():  # else it was cancelled, and nobody wants to know
                if isinstance(outcome, Exception):
                    sent.set_exception(outcome)
                else:
                    sent.set_result(outcome)
            if then is not None:
                sent.cancelled() or sent.exception()  # told: not to be complained about as never looked at
                then(outcome)

        if self._lingering is not None and self._lingering.takes(message, where, delay, timeout):
            size = self._lingering.size_of(message)
            room = self._sending.gate.enter(len(message.body), self._sending.settings.send_timeout)
            await self._driver.run(room)
            batch = self._lingering.add(message, size, _leaving(self._sending, message, told))
            if batch is not None:
                self._driver.start(self._lingering.send(batch), partial(_if_given_up, batch.tell_all))
            return sent
        room, operation = self._sending.send_soon(message, where, timeout, delay)
        await self._driver.run(room)
        self._driver.start(operation, told)
        return sent

    async def send_one_way(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
    ) -> None:
        """As `Producer.send_one_way`."""
        await self._driver.run(self._sending.send_one_way(message, Where(key, queue, select)))

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # as in the blocking form
    ) -> SendResult:
        """As `Producer.send_batch`."""
        return await self._driver.run(self._sending.send_batch(messages, Where(key, queue), timeout))

    async def send_all(
        self,
        messages: Iterable[Message],
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # as in the blocking form
    ) -> list[SendResult]:
        """As `Producer.send_all`."""
        return await self._driver.run(self._sending.send_all(messages, Where(key, queue), timeout))

    async def request(
        self,
        message: Message,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # as in the blocking form
        *,
        key: str | None = None,
    ) -> ReceivedMessage:
        """As `Producer.request`."""
        return await self._driver.run(self._asking.request(message, Where(key), timeout))

    async def recall(self, topic: str, handle: str | SendResult) -> str:
        """As `Producer.recall`."""
        return await self._driver.run(self._sending.recall(topic, _handle_of(handle)))

    async def query(
        self,
        topic: str,
        key: str,
        max_messages: int = 32,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
    ) -> list[ReceivedMessage]:
        """As `Producer.query`."""
        return await self._driver.run(self._sending.query(topic, key, max_messages, begin, end))

    async def view(self, topic: str, message_id: str) -> ReceivedMessage:
        """As `Producer.view`."""
        return await self._driver.run(self._sending.view(topic, message_id))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """As `Producer.queues`."""
        return await self._driver.run(self._sending.queues(topic))

    @property
    def moved_keys(self) -> int:
        """As `Producer.moved_keys`."""
        return self._sending.moved_keys

    async def close(self) -> None:
        """As `Producer.close`."""
        if not self._sending.home.is_here:
            return
        self._sending.take_no_more()
        if self._lingering is not None:
            self._lingering.flush()
        await self._driver.run(self._sending.gate.empty(self._sending.settings.send_timeout))
        if self._sending.end():
            if self._tracing is not None:
                await self._driver.run(self._tracing.leave())
            await self._driver.run(self._sending.presence.leave())
            await self._driver.close()

    def _own_handlers(self) -> Mapping[int, Handler]:
        """For what brokers ask of this kind of producer."""
        return NO_HANDLERS

    async def __aenter__(self) -> Self:
        self._sending.check_open()
        self._driver.attend(self._beat)
        return self

    def _beat(self) -> Operation[float]:
        """A chore: let brokers we have sent to hear of us, also while nothing is sent."""
        yield from self._sending.presence.beat()
        return presence.HEARTBEAT_SECONDS

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _ignored(outcome: object) -> None:
    """Nobody waits for it."""


def _check_told(then: object) -> None:
    if then is not None and not callable(then):
        raise ConfigError(f"then is {then!r}, but must be a function that is told the result")


def _lingering(sending: Sending) -> Lingering | None:
    if sending.settings.linger is None:
        return None
    from kourou.client.lingering import Lingering

    return Lingering(sending, sending.settings.linger)


def _leaving(sending: Sending, message: Message, tell: OnSent) -> OnSent:
    """`tell`, after making room for another message."""

    def told(outcome: SendResult | Exception) -> None:
        sending.gate.leave(len(message.body))
        tell(outcome)

    return told


def _if_given_up(tell: Callable[[Exception], None], outcome: object) -> None:
    """A batch tells its messages by itself, unless it was given up with the producer."""
    if isinstance(outcome, Exception):
        tell(outcome)


def _handle_of(given: str | SendResult) -> str:
    handle = given if isinstance(given, str) else getattr(given, "recall_handle", None)
    if not handle:
        raise ConfigError(
            "this message cannot be taken back: only one that was sent with a delay in seconds or with a "
            "moment has a recall handle"
        )
    return handle
