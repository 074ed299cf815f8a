"""Receiving messages when one asks for them: `PullConsumer` blocks, `AsyncPullConsumer` awaits.

Both read every readable queue of a topic by themselves: nothing is shared out among the members of a group.
What they do is in `reading.py`; here is how it looks from outside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from types import TracebackType
from typing import Self

from kourou.client.drive import AsyncDriver, BlockingDriver
from kourou.client.reading import Reading, Start
from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import MessageQueue

RECEIVE_SECONDS = 5.0


class PullConsumer:
    """Receives messages of one topic. For one thread at a time.

        with kourou.PullConsumer("billing", "orders", name_server="localhost:9876") as consumer:
            for message in consumer.receive():
                print(message.body)
            consumer.commit()

    It begins where `group` last committed; where it never did, at `start`: "earliest", "latest" or a moment.
    (A 4.9 broker of Apache's says that a new group is at 0 for as long as a queue's first message is in
    memory; `seek` goes elsewhere whatever it says.)
    `tags` is `*` for all, or `"new || paid"`. With `announce` the brokers count it as a member of the group,
    so that administrators see it. The consumer owns all queues of the topic: two of them in one group read
    everything twice.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        name_server: str | Iterable[str] | None = None,
        *,
        tags: str = "*",
        start: Start = "earliest",
        announce: bool = True,
    ) -> None:
        self._reading = Reading(group, topic, name_server, tags, start, announce, RealClock(), Chance())
        self._driver = BlockingDriver()

    def receive(
        self, max_messages: int = 32, timeout: float | None = RECEIVE_SECONDS
    ) -> list[ReceivedMessage]:
        """The next messages, as soon as there is one; an empty list when none came in `timeout` seconds.

        Without a timeout it waits as long as it takes. Raises Unreachable when no queue could be read at all,
        Refused when a broker does not let us.
        """
        return self._driver.run(self._reading.receive(max_messages, timeout))

    def commit(self) -> None:
        """Store that all messages handed out so far are done: the group goes on after them."""
        self._driver.run(self._reading.commit())

    def seek(self, where: int | Start, queue: MessageQueue | None = None) -> None:
        """Go on elsewhere: at "earliest", "latest" or a moment, or at an offset of one queue."""
        self._driver.run(self._reading.seek(where, queue))

    def positions(self) -> dict[MessageQueue, int]:
        """The offset of the next message to be handed out, by queue."""
        return self._reading.positions()

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
        start: Start = "earliest",
        announce: bool = True,
    ) -> None:
        self._reading = Reading(group, topic, name_server, tags, start, announce, RealClock(), Chance())
        self._driver = AsyncDriver()

    async def receive(
        self,
        max_messages: int = 32,
        timeout: float | None = RECEIVE_SECONDS,  # noqa: ASYNC109  # as in the blocking form
    ) -> list[ReceivedMessage]:
        """As `PullConsumer.receive`."""
        return await self._driver.run(self._reading.receive(max_messages, timeout))

    async def commit(self) -> None:
        """As `PullConsumer.commit`."""
        await self._driver.run(self._reading.commit())

    async def seek(self, where: int | Start, queue: MessageQueue | None = None) -> None:
        """As `PullConsumer.seek`."""
        await self._driver.run(self._reading.seek(where, queue))

    def positions(self) -> dict[MessageQueue, int]:
        """As `PullConsumer.positions`."""
        return self._reading.positions()

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
