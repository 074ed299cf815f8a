"""Whatever changes, no queue is without an owner for more than three seconds, in simulated time.

A replica set that elects its master, a group of our consumers with the settings everybody has, and messages
that are put into every queue all the time. How long a message waits after it was acknowledged is how long
nobody read its queue. A broker that is added is found by consumers and producers within the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kourou.client.consumer_settings import ConsumerSettings
from kourou.client.consuming import Consuming
from kourou.client.workers import Finished, Listener, Task
from kourou.errors import MQError
from kourou.message import Message, ReceivedMessage
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import CreateTopic
from kourou.remoting.client import Client
from tests.sim.actors import SimulatedProducer, in_order_of_birth
from tests.sim.elected_brokers import SETTINGS, World
from tests.sim.machines import BrokerMachine, Machine, SeededChance
from tests.sim.switches import address, begun, now, played, settled, until

TOPIC, QUEUES, BROKER, ADDED = "owned", 8, "shop", "annex"
MEMBERS = 3
ORPHANED_SECONDS_MAX = 3.0
PUT_SECONDS = 0.25


class Hands:
    """Handlers that are done at once."""

    def __init__(self, took: Callable[[ReceivedMessage], None]) -> None:
        self._took = took
        self._finished: Finished = lambda tasks: None

    def start(self, finished: Finished) -> None:
        self._finished = finished

    def submit(self, tasks: Any) -> None:
        for task in tasks:
            for unit in task.units:
                self._took(unit[0])
                task.done += 1
            asyncio.get_running_loop().call_soon(self._finished, [task])

    def running(self) -> list[Task]:
        return []

    def cancel_waiting(self) -> list[Task]:
        return []

    def stop(self) -> None: ...


class Group:
    """Consumers that come and go, and how long messages wait for them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.present: list[tuple[Machine, Consuming]] = []
        self.queues = {BROKER: QUEUES, ADDED: 0}
        self.waits: dict[bytes, float] = {}
        """What was acknowledged and not handled yet, and since when."""
        self.longest = 0.0
        self.put = 0
        self.acknowledged = {BROKER: 0, ADDED: 0}
        self._seen: set[bytes] = set()
        self._hosts = 0

    def machine(self) -> Machine:
        self._hosts += 1
        machine = Machine(self.world.network, f"127.0.4.{self._hosts}", SeededChance(self._hosts))
        machine.boot()
        return machine

    async def join(self) -> None:
        machine = self.machine()
        member = Consuming(
            "owners",
            self.world.name_server.address,
            ConsumerSettings(start="earliest"),
            workers=Hands(self._took),
            clock=machine.clock,
            chance=SeededChance(self._hosts),
            files=machine.files,
        )
        member.subscribe(TOPIC, None, None, Listener(lambda message: None))
        self.present.append((machine, member))
        await member.start(machine.network)

    async def leave(self) -> None:
        _, member = self.present.pop(0)
        await member.stop(1.0)

    def crash(self) -> None:
        """kill -9: the brokers see that its connections are lost."""
        machine, member = self.present.pop(0)
        machine.kill()
        for task in in_order_of_birth(member._background):
            task.cancel()

    def _took(self, message: ReceivedMessage) -> None:
        self._seen.add(message.body)
        if message.body in self.waits:
            self.longest = max(self.longest, now() - self.waits.pop(message.body))

    async def feed(self) -> None:
        """Into every queue, again and again."""
        machine = self.machine()
        producer = SimulatedProducer(machine, "feeders", None, self.world.name_server.address)
        every = [(broker, number) for broker in self.queues for number in range(16)]
        await asyncio.gather(*(self._feed_one(producer, *each) for each in every))

    async def _feed_one(self, producer: SimulatedProducer, broker: str, queue_id: int) -> None:
        queue = MessageQueue(topic=TOPIC, broker_name=broker, queue_id=queue_id)
        while True:
            await asyncio.sleep(PUT_SECONDS)
            if queue_id >= self.queues[broker]:
                continue
            self.put += 1
            body = b"%d" % self.put
            try:
                await producer.send(Message(TOPIC, body), queue=queue, timeout=1.0)
            except MQError:
                continue  # the broker is away: that is not the group's fault
            self.acknowledged[broker] += 1
            if body not in self._seen:
                self.waits[body] = now()

    def orphaned(self) -> float:
        """How long a message has waited, at most; those that wait still count."""
        return max([self.longest, *(now() - since for since in self.waits.values())])

    def held(self) -> set[tuple[str, int]]:
        return {
            (queue.broker_name, queue.queue_id)
            for _, member in self.present
            for queue in member.held
            if queue.topic == TOPIC
        }

    def has_all(self) -> bool:
        return self.held() == {
            (name, number) for name, count in self.queues.items() for number in range(count)
        }


Change = Callable[[Group], Coroutine[Any, Any, None]]


async def _join(group: Group) -> None:
    await group.join()


async def _leave(group: Group) -> None:
    await group.leave()


async def _crash(group: Group) -> None:
    group.crash()


async def _more_queues(group: Group) -> None:
    await _make(group, QUEUES + 4)
    group.queues[BROKER] = QUEUES + 4
    await until(group.has_all, ORPHANED_SECONDS_MAX, "new queues have no owner")


async def _another_broker(group: Group) -> None:
    """Nobody who knows the topic has a connection to it: only a name server can tell."""
    settings = {**SETTINGS, "broker_role": "ASYNC_MASTER"}
    added = BrokerMachine(group.world.network, ADDED, "127.0.2.9", SeededChance(9), settings)
    await added.start()
    await _make(group, QUEUES, at=added)
    group.queues[ADDED] = QUEUES
    sent = until(lambda: group.acknowledged[ADDED], ORPHANED_SECONDS_MAX, "nobody sends to the new broker")
    held = until(group.has_all, ORPHANED_SECONDS_MAX, "the new broker's queues have no owner")
    sent_seconds, held_seconds = await asyncio.gather(sent, held)
    print(f"a new broker's queues: sent to after {sent_seconds:.2f} s, owned after {held_seconds:.2f} s")


async def _fail_over(group: Group) -> None:
    master = group.world.master()
    assert master is not None
    master.kill()
    await until(lambda: group.world.master() is not None, 20.0, "nobody leads")


async def _make(group: Group, queues: int, at: BrokerMachine | None = None) -> None:
    master = at or group.world.master()
    assert master is not None
    machine = group.machine()
    client = Client(network=machine.network, clock=machine.clock, chance=machine.chance)
    header = CreateTopic(topic=TOPIC, read_queue_nums=queues, write_queue_nums=queues, perm=6)
    made = await client.call(address(master), request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), 5.0)
    assert made.code == ResponseCode.SUCCESS, made.remark


@pytest.mark.parametrize("change", [_join, _leave, _crash, _more_queues, _another_broker, _fail_over])
def test_no_queue_is_without_an_owner_for_long(change: Change) -> None:
    async def story() -> None:
        world = await begun(0)
        world.network.latency = lambda: world.chance.uniform(0.001, 0.02)
        await settled(world)
        group = Group(world)
        await _make(group, QUEUES)
        for _ in range(MEMBERS):
            await group.join()
        await asyncio.sleep(130.0)  # whatever is watched closely after a start is so no more
        feeding = asyncio.get_running_loop().create_task(group.feed())
        await asyncio.sleep(2.0)
        assert group.orphaned() < ORPHANED_SECONDS_MAX, "before anything changed"
        group.longest = 0.0
        put = group.put
        await change(group)
        await asyncio.sleep(6.0)
        assert group.has_all()
        assert group.put > put + 8 * sum(group.queues.values()), "nothing is proved"
        assert group.orphaned() <= ORPHANED_SECONDS_MAX, f"{change.__name__}: {group.orphaned():.2f} s"
        print(f"{change.__name__}: {group.orphaned():.2f} s")
        feeding.cancel()
        await world.bury()

    played(story)
