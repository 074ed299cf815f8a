"""Receiving messages when one asks for them: `PullConsumer` blocks, `AsyncPullConsumer` awaits.

Both read every readable queue of a topic by themselves: nothing is shared out among the members of a group.
What they do is in `reading.py`; here is how it looks from outside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from kourou.client.cluster_settings import ClusterSettings
from kourou.client.drive import AsyncDriver, BlockingDriver
from kourou.client.operations import Pulled, Start
from kourou.client.reading import Reading
from kourou.client.reading_answers import reading_answers
from kourou.client.route_news import route_news
from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from kourou.client.options import ClusterOptions

RECEIVE_SECONDS = 5.0
PULL_SECONDS = 20.0


class PullConsumer:
    """Receives messages of one topic. For one thread at a time.

        with kourou.PullConsumer("billing", "orders", name_server="localhost:9876") as consumer:
            for message in consumer.receive():
                print(message.body)
            consumer.commit()

    It begins where `group` last committed; where it never did, at `start`: "earliest", "latest" or a moment.
    (A 4.9 broker of Apache's says that a new group is at 0 for as long as a queue's first message is in
    memory; `seek` goes elsewhere whatever it says.)
    `tags` is `*` for all, or `"new || paid"`; `sql` an SQL92 expression over properties. With `announce` the
    brokers count it as a member of the group, so that administrators see it. The consumer owns all queues of
    the topic: two of them in one group read everything twice.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        name_server: str | Iterable[str] | None = None,
        *,
        tags: str = "*",
        sql: str | None = None,
        start: Start = "earliest",
        announce: bool = True,
        **options: Unpack[ClusterOptions],
    ) -> None:
        cluster = ClusterSettings(**options)
        self._reading = Reading(
            group, topic, name_server, tags, start, announce, RealClock(), Chance(), cluster, sql
        )
        answers = reading_answers(self._reading)
        self._driver = BlockingDriver(handlers=answers, tls=cluster.tls, sign=cluster.sign)

    def receive(
        self, max_messages: int = 32, timeout: float | None = RECEIVE_SECONDS
    ) -> list[ReceivedMessage]:
        """The next messages, as soon as there is one; an empty list when none came in `timeout` seconds.

        Without a timeout it waits as long as it takes. Raises Unreachable when no queue could be read at all,
        Refused when a broker does not let us.
        """
        return self._driver.run(self._reading.receive(max_messages, timeout))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store that all messages handed out so far are done: the group goes on after them.

        With `offsets` it goes on there instead, in these queues.
        """
        reading = self._reading
        self._driver.run(reading.commit() if offsets is None else reading.commit_at(offsets))

    def seek(self, where: int | Start, queue: MessageQueue | None = None) -> None:
        """Go on elsewhere: at "earliest", "latest" or a moment, or at an offset of one queue."""
        self._driver.run(self._reading.seek(where, queue))

    def positions(self) -> dict[MessageQueue, int]:
        """The offset of the next message to be handed out, by queue."""
        return self._reading.positions()

    def queues(self) -> tuple[MessageQueue, ...]:
        """Every queue of the topic that can be read."""
        return self._driver.run(self._reading.queues())

    def pull(self, queue: MessageQueue, offset: int, max_messages: int = 32) -> Pulled:
        """What lies in a queue from `offset` on, right now; moves no place, and needs none."""
        return self._driver.run(self._reading.pull(queue, offset, max_messages, 0.0))

    def pull_block_if_not_found(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, timeout: float = PULL_SECONDS
    ) -> Pulled:
        """The same, but the broker waits up to `timeout` seconds for something to come."""
        return self._driver.run(self._reading.pull(queue, offset, max_messages, timeout))

    def offset_of(self, queue: MessageQueue, where: Start) -> int:
        """The offset that "earliest", "latest" or a moment stands for in a queue right now."""
        return self._driver.run(self._reading.offset_of(queue, where))

    def committed(self, queue: MessageQueue) -> int | None:
        """Where the group goes on in a queue; None when it was never there."""
        return self._driver.run(self._reading.committed(queue))

    def close(self) -> None:
        """Take leave of the brokers. Commits nothing. A closed consumer cannot be used again."""
        if self._reading.end():
            self._driver.run(self._reading.presence.leave())
            self._driver.close()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Every message, one by one, without end."""
        while True:
            yield from self.receive(1, None)

    def __enter__(self) -> Self:
        try:
            self._driver.run(self._reading.open())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncPullConsumer:
    """Receives messages of one topic, for asyncio. For one task at a time.

        async with kourou.AsyncPullConsumer("billing", "orders", name_server="localhost:9876") as consumer:
            async for message in consumer:
                print(message.body)
                await consumer.commit()

    Everything is as with `PullConsumer`, but awaited.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        name_server: str | Iterable[str] | None = None,
        *,
        tags: str = "*",
        sql: str | None = None,
        start: Start = "earliest",
        announce: bool = True,
        **options: Unpack[ClusterOptions],
    ) -> None:
        cluster = ClusterSettings(**options)
        self._reading = Reading(
            group, topic, name_server, tags, start, announce, RealClock(), Chance(), cluster, sql
        )
        handlers = {**reading_answers(self._reading), **route_news(self._reading.routes)}
        self._driver = AsyncDriver(handlers=handlers, tls=cluster.tls, sign=cluster.sign)

    async def receive(
        self,
        max_messages: int = 32,
        timeout: float | None = RECEIVE_SECONDS,  # noqa: ASYNC109  # as in the blocking form
    ) -> list[ReceivedMessage]:
        """As `PullConsumer.receive`."""
        return await self._driver.run(self._reading.receive(max_messages, timeout))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """As `PullConsumer.commit`."""
        reading = self._reading
        await self._driver.run(reading.commit() if offsets is None else reading.commit_at(offsets))

    async def seek(self, where: int | Start, queue: MessageQueue | None = None) -> None:
        """As `PullConsumer.seek`."""
        await self._driver.run(self._reading.seek(where, queue))

    def positions(self) -> dict[MessageQueue, int]:
        """As `PullConsumer.positions`."""
        return self._reading.positions()

    async def queues(self) -> tuple[MessageQueue, ...]:
        """As `PullConsumer.queues`."""
        return await self._driver.run(self._reading.queues())

    async def pull(self, queue: MessageQueue, offset: int, max_messages: int = 32) -> Pulled:
        """As `PullConsumer.pull`."""
        return await self._driver.run(self._reading.pull(queue, offset, max_messages, 0.0))

    async def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = 32,
        timeout: float = PULL_SECONDS,  # noqa: ASYNC109  # as in the blocking form
    ) -> Pulled:
        """As `PullConsumer.pull_block_if_not_found`."""
        return await self._driver.run(self._reading.pull(queue, offset, max_messages, timeout))

    async def offset_of(self, queue: MessageQueue, where: Start) -> int:
        """As `PullConsumer.offset_of`."""
        return await self._driver.run(self._reading.offset_of(queue, where))

    async def committed(self, queue: MessageQueue) -> int | None:
        """As `PullConsumer.committed`."""
        return await self._driver.run(self._reading.committed(queue))

    async def close(self) -> None:
        """As `PullConsumer.close`."""
        if self._reading.end():
            await self._driver.run(self._reading.presence.leave())
            await self._driver.close()

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Every message, one by one, without end."""
        while True:
            for message in await self.receive(1, None):
                yield message

    async def __aenter__(self) -> Self:
        try:
            await self._driver.run(self._reading.open())
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
