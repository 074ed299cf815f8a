"""Two name servers and two brokers, cut apart down the middle, with clients on both sides.

Each side works alone with the half it can see; when the wire is mended everything that was acknowledged is
there, and both name servers know both brokers again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kourou.doors.simulated_network import SimulatedNetwork
from kourou.errors import MQError
from kourou.message import Message
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.record import decode_all
from tests.sim.actors import SimulatedProducer
from tests.sim.elected_brokers import QUEUES, SETTINGS, TOPIC
from tests.sim.machines import BrokerMachine, Machine, NameServerMachine, SeededChance
from tests.sim.simulation import _nothing_from_outside
from tests.sim.virtual_time import VirtualClock, VirtualLoop

CUT_SECONDS = 60.0
LEARNS_SECONDS = 8.0
"""A side needs two or three timeouts to learn that the other half does not answer."""
BACK_SECONDS = 20.0


class Side:
    """A name server, a broker and a sender."""

    def __init__(self, number: int, network: SimulatedNetwork, name_servers: tuple[str, ...]) -> None:
        chance = SeededChance(number)
        self.name_server = NameServerMachine(network, f"127.0.1.{number}", chance)
        settings = {**SETTINGS, "broker_role": "ASYNC_MASTER", "name_servers": name_servers}
        self.broker = BrokerMachine(network, f"broker-{number}", f"127.0.2.{number}", chance, settings)
        self.client = Machine(network, f"127.0.3.{number}", chance)
        self.name_servers = ";".join(name_servers)
        self.acknowledged: set[bytes] = set()
        self.tries: list[tuple[float, bool]] = []

    @property
    def hosts(self) -> list[str]:
        return [self.name_server.host, self.broker.host, self.client.host]

    async def send(self, number: int) -> None:
        self.client.boot()
        producer = SimulatedProducer(
            self.client,
            f"side-{number}",
            None,
            self.name_servers,
            avoid_slow_brokers="5",
            probe_brokers=True,
        )
        count = 0
        while True:
            count += 1
            body = b"%d-%d" % (number, count)
            began = asyncio.get_running_loop().time()
            try:
                await producer.send(Message(TOPIC, body))
                self.acknowledged.add(body)
                self.tries.append((began, True))
            except MQError:
                self.tries.append((began, False))
            await asyncio.sleep(0.2)

    def share_of_success(self, begin: float, end: float) -> float:
        taken = [is_ok for at, is_ok in self.tries if begin <= at < end]
        assert len(taken) > 10, f"{len(taken)} sends are too few to tell"
        return sum(taken) / len(taken)

    def stored(self) -> set[bytes]:
        assert self.broker.broker is not None
        store, found = self.broker.broker.store, set()
        for queue_id in range(QUEUES):
            at, end = store.min_offset(TOPIC, queue_id), store.max_offset(TOPIC, queue_id)
            while at < end:
                got = store.read(TOPIC, queue_id, at, 32)
                found |= {each.body for each in decode_all(b"".join(got.messages))}
                at = max(got.next_offset, at + 1)
        return found


def test_each_side_works_alone_and_nothing_is_lost() -> None:
    loop = VirtualLoop()
    with _nothing_from_outside():
        try:
            loop.run_until_complete(_story())
        finally:
            loop.close()


async def _story() -> None:
    loop = asyncio.get_running_loop()
    network = SimulatedNetwork(VirtualClock(loop))
    name_servers = ("127.0.1.1:9876", "127.0.1.2:9876")
    sides = [Side(number, network, name_servers) for number in (1, 2)]
    for side in sides:
        side.name_server.start()
    for side in sides:
        broker = await side.broker.start()
        assert broker is not None
        shape = TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        broker.topics.save({TOPIC: shape})
    await asyncio.sleep(3.0)
    sending: list[asyncio.Task[Any]] = [
        loop.create_task(side.send(number)) for number, side in enumerate(sides, 1)
    ]
    await asyncio.sleep(5.0)

    _wire(network.cut, sides)
    cut_at = loop.time()
    await asyncio.sleep(CUT_SECONDS)
    for side in sides:
        share = side.share_of_success(cut_at + LEARNS_SECONDS, loop.time())
        assert share > 0.9, f"alone, {share:.0%} of its sends went through"

    _wire(network.mend, sides)
    await asyncio.sleep(BACK_SECONDS)
    for side in sides:
        known = {
            name
            for name, by_id in ((n, b.addresses) for n, b in side.name_server.server.routes._brokers.items())
            if 0 in by_id
        }
        assert known == {"broker-1", "broker-2"}, "a name server has not heard of the other side again"
        assert side.share_of_success(loop.time() - 5.0, loop.time()) == 1.0
    assert not any(task.done() for task in sending)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0)
    stored = sides[0].stored() | sides[1].stored()
    for side in sides:
        assert side.acknowledged <= stored
        assert side.stored()


def _wire(change: Any, sides: list[Side]) -> None:
    for one in sides[0].hosts:
        for other in sides[1].hosts:
            change(one, other)
            change(other, one)
