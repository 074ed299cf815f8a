"""Consumers, a real broker and a real name server on one simulated network; time passes when a test says so.

world = ConsumingWorld()
world.make_topic("orders", queues=4)
bill = world.consumer("billing").on("orders")     a member whose handler takes notes
bill.start()
world.send("orders", b"one")
assert bill.bodies == [b"one"]
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Self

from kourou.client.consumer_settings import ConsumerSettings
from kourou.client.consuming import Consuming
from kourou.client.workers import Finished, Listener, Task
from kourou.doors.chance import Chance
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import MessageQueue
from tests.unit.broker.broker_world import BrokerWorld, Peer

NAME_SERVER = "127.0.0.1:9876"


class ConsumingWorld(BrokerWorld):
    """A broker and its name server, and any number of consumers."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.name_server()
        self.settings = {"property_filter": True, **settings}
        self.start(NAME_SERVER, **self.settings)
        self.consumers: list[Member] = []
        self._peer: Peer | None = None
        self.pass_time(1)

    def consumer(self, group: str = "billing", **more: Any) -> Member:
        member = Member(self, group, **more)
        self.consumers.append(member)
        return member

    def send(self, topic: str = "orders", *bodies: bytes, queue_id: int = 0, **more: Any) -> None:
        for body in bodies:
            assert self.peer.send(topic, body, queue_id=queue_id, **more).code == 0
        self.settle()
        self.settle()

    @property
    def peer(self) -> Peer:
        if self._peer is None or self._peer.is_lost:
            self._peer = self.connect()
        return self._peer

    def restart_broker(self, away: float = 0.0) -> None:
        """Stop the broker, let time pass, start it over the same disk."""
        self.stop()
        self.pass_time(away)
        self.start(NAME_SERVER, **self.settings)

    def close(self) -> None:
        for member in self.consumers:
            member.close()
        super().close()


class Handlers:
    """Workers without threads: a handler runs when it is due, or, once they are held, when a test says so."""

    def __init__(self) -> None:
        self.waiting: list[Task] = []
        self.held = False
        self._running: list[Task] = []

    def start(self, finished: Finished) -> None:
        self._finished = finished
        self._loop = asyncio.get_running_loop()

    def submit(self, tasks: Iterable[Task]) -> None:
        self.waiting += tasks
        if not self.held:
            self._loop.call_soon(self.work)

    def work(self, count: int | None = None) -> None:
        """Run what waits, or the first `count` of it."""
        tasks, self.waiting = self.waiting[:count], self.waiting[len(self.waiting[:count]) :]
        for task in tasks:
            self.begin(task)
            self.end(task)

    def begin(self, task: Task) -> None:
        """A handler is called, and does not return yet."""
        task.started_at = task.held.pulled_at
        if task in self.waiting:
            self.waiting.remove(task)
        self._running.append(task)

    def end(self, task: Task) -> None:
        """It returns, after having done what it does."""
        for number, unit in enumerate(task.units):
            if number and not task.goes_on:
                break
            try:
                if not task.returned(task.listener.handler(unit if task.listener.batch_size else unit[0])):
                    break
            except Exception as failure:
                task.failure = failure
                break
        self._running.remove(task)
        self._finished([task])

    def running(self) -> list[Task]:
        return list(self._running)

    def cancel_waiting(self) -> list[Task]:
        cancelled, self.waiting = self.waiting, []
        return cancelled

    def stop(self) -> None:
        self.waiting = []


class Member:
    """One consumer, and everything its handlers were given."""

    def __init__(
        self,
        world: ConsumingWorld,
        group: str,
        **settings: Any,
    ) -> None:
        self.world = world
        self.handlers = Handlers()
        self.received: list[ReceivedMessage] = []
        self.batches: list[int] = []
        self.engine = Consuming(
            group,
            NAME_SERVER,
            ConsumerSettings(**{"offsets_file": f"home/{group}/offsets.json", **settings}),
            workers=self.handlers,
            clock=world.clock,
            chance=Chance(5),
            files=world.files,
        )

    def on(
        self,
        topic: str = "orders",
        handler: Callable[[Any], object] | None = None,
        *,
        tags: str | None = None,
        sql: str | None = None,
        ordered: bool = False,
        batch_size: int | None = None,
    ) -> Self:
        """Handle a topic: take notes, then do as `handler` does."""

        def note(given: Any) -> object:
            messages = given if batch_size else [given]
            self.batches.append(len(messages))
            self.received += messages
            return None if handler is None else handler(given)

        self.engine.subscribe(topic, tags, sql, Listener(note, ordered=ordered, batch_size=batch_size))
        return self

    def start(self) -> Self:
        self.world.run(self.engine.start(self.world.network))
        self.world.settle()
        self.world.pass_time(1.5)  # the retry topic appears
        return self

    def close(self, drain: float = 10.0) -> None:
        self.world.run(self.engine.stop(drain))
        self.world.settle()

    def work(self, count: int | None = None) -> None:
        """Let handlers that are held back run."""
        self._on_the_loop(lambda: self.handlers.work(count))

    def end(self, task: Task) -> None:
        """Let a handler that was begun return."""
        self._on_the_loop(lambda: self.handlers.end(task))

    def _on_the_loop(self, call: Callable[[], object]) -> None:
        async def work() -> None:
            call()

        self.world.run(work())
        self.world.settle()

    def crash(self) -> None:
        """Gone without a word: its connections break, and it does nothing any more."""
        engine = self.engine
        engine.fetching.is_stopped = engine.handling.is_stopped = engine.is_stopping = True
        self.world.run(engine.brokers.client.close())
        self.world.settle()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.received]

    def queues(self, topic: str = "orders") -> list[int]:
        """The numbers of the queues that are its own."""
        return sorted(queue.queue_id for queue in self.engine.held if queue.topic == topic)

    def place(self, topic: str = "orders", queue_id: int = 0) -> int | None:
        """How far it says the group is."""
        return self.engine.positions().get(queue_of(topic, queue_id))


def queue_of(topic: str, queue_id: int = 0) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=queue_id)
