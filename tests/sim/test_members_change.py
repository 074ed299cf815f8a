"""Members join and leave a replica set by restarts, one at a time, as the handbook says; sends go on.

1  one slave is started anew with the new list, and made the master (whoever leaves must not lead before)
2  whoever leaves is stopped; whoever joins is started
3  the others are started anew with the new list, one after the other, each when all are in sync again
"""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.sends import SendStatus
from kourou.errors import MQError
from kourou.message import Message
from kourou.protocol.bodies import TopicConfig
from tests.sim.actors import SimulatedProducer
from tests.sim.elected_brokers import HOSTS, SETTINGS, TOPIC, World
from tests.sim.machines import BrokerMachine, Machine, SeededChance
from tests.sim.switches import LEADS_SECONDS, address, begun, now, played, settled, until

SILENT_SECONDS_MAX = 5.0
NEW_HOST = "127.0.2.4"


class Story:
    """A set, somebody who sends to it, and an operator."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.longest = 0.0
        self._last = now()
        self._machine = Machine(world.network, "127.0.3.1", SeededChance(1))
        self._machine.boot()
        self._sending = self._machine.spawn(self._send())

    async def _send(self) -> None:
        producer = SimulatedProducer(self._machine, "senders", None, self.world.name_server.address)
        number = 0
        while self.world.is_busy:
            number += 1
            body = b"%d" % number
            try:
                if (await producer.send(Message(TOPIC, body))).status is SendStatus.SEND_OK:
                    self.world.acknowledged.add(body)
                    self.longest, self._last = max(self.longest, now() - self._last), now()
            except MQError:
                pass  # it is tried again, and the silence is measured
            await asyncio.sleep(0.02)

    async def start_anew(self, machine: BrokerMachine, members: tuple[str, ...]) -> None:
        """With another list, as an operator does."""
        await machine.stop()
        machine.settings["election_members"] = members
        await asyncio.sleep(1.0)
        await machine.start()

    async def all_in_sync(self, count: int | None = None) -> None:
        """Everybody the master knows of."""

        def are() -> bool:
            master = self.world.master()
            if master is None or master.broker is None or master.broker.switching is None:
                return False
            state = master.broker.switching.state
            return len(state.in_sync) == (count or len(state.members))

        await until(are, LEADS_SECONDS, "not all are in sync")

    async def change(
        self,
        members: tuple[str, ...],
        joins: BrokerMachine | None = None,
        leaves: BrokerMachine | None = None,
    ) -> None:
        """Step by step."""
        staying = [each for each in self.world.brokers if each is not leaves]
        master = self.world.master()
        before = self.world.brokers[0].settings["election_members"]
        kept = [each for each in staying if _place(each, members) == _place(each, before)]
        if master is leaves:
            await self.promote(kept[0])
            master = kept[0]
        first = next(each for each in kept if each is not master)
        await self.start_anew(first, members)
        await self.promote(first)
        if leaves is not None:
            await leaves.stop()
            self.world.brokers.remove(leaves)
        if joins is not None:
            joins.settings["election_members"] = members
            await joins.start()
            self.world.brokers.append(joins)
        for machine in staying:
            if machine is not first:
                await self.all_in_sync(len(members))
                await self.start_anew(machine, members)
        await self.all_in_sync(len(members))

    async def promote(self, heir: BrokerMachine) -> None:
        def is_back() -> bool:
            master = self.world.master()
            if master is None or master.broker is None or master.broker.switching is None:
                return False
            return address(heir) in master.broker.switching.state.in_sync

        await until(is_back, LEADS_SECONDS, "it is not in sync")
        master = self.world.master()
        assert master is not None
        assert master.broker is not None
        assert master.broker.switching is not None
        await master.broker.switching.hand_over(address(heir))
        await until(lambda: self.world.master() is heir, LEADS_SECONDS, "it does not lead")

    async def examine(self) -> None:
        self.world.is_busy = False
        await settled(self.world)
        self.world._judge()
        assert not self.world.found, self.world.found
        assert self.longest <= SILENT_SECONDS_MAX, f"nothing was acknowledged for {self.longest:.1f} s"
        await self.world.bury()


def _place(machine: BrokerMachine, members: tuple[str, ...]) -> int:
    """Which is its brokerId: whoever keeps it can be there at the same time as all others."""
    return members.index(address(machine)) if address(machine) in members else -1


async def _story(seed: int) -> Story:
    world = await begun(seed * 3)  # three members, and no witness
    master = await settled(world)
    assert master.broker is not None
    master.broker.topics.save({TOPIC: TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)})
    story = Story(world)
    await until(lambda: len(world.acknowledged) > 20, LEADS_SECONDS, "no sends")
    return story


def _fourth(world: World) -> BrokerMachine:
    return BrokerMachine(world.network, "shop", NEW_HOST, SeededChance(4), {**SETTINGS})


THREE = tuple(f"{host}:10911" for host in HOSTS)
FOUR = (*THREE, f"{NEW_HOST}:10911")


def test_a_member_joins_and_can_lead() -> None:
    async def story() -> None:
        told = await _story(0)
        fourth = _fourth(told.world)
        await told.change(FOUR, joins=fourth)
        await told.promote(fourth)
        count = len(told.world.acknowledged)
        await until(lambda: len(told.world.acknowledged) > count + 20, LEADS_SECONDS, "it leads in vain")
        await told.examine()

    played(story)


@pytest.mark.parametrize("place", [0, 3])
def test_a_member_leaves_the_first_of_the_list_or_the_last(place: int) -> None:
    async def story() -> None:
        told = await _story(place)
        await told.change(FOUR, joins=_fourth(told.world))
        leaves = next(each for each in told.world.brokers if address(each) == FOUR[place])
        # The last one takes the place of the one that leaves: all others keep their brokerId.
        rest = tuple(FOUR[-1] if each == FOUR[place] else each for each in FOUR[:-1])
        await told.change(rest, leaves=leaves)
        await told.examine()

    played(story)
