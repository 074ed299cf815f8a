"""A topic or group that was made is there when another broker leads, were the master killed with its answer.

Three real brokers that elect their master, on simulated machines: each time something is made the master is
killed in the very moment in which the answer arrives.
"""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import CreateTopic
from kourou.remoting.client import Client
from kourou.replication.primary import Primary
from tests.sim.elected_brokers import World
from tests.sim.machines import BrokerMachine, Machine, SeededChance
from tests.sim.switches import LEADS_SECONDS, address, begun, played, settled, until

KILLS = 6
QUEUES = 7


class Maker:
    """Somebody who has topics and groups made."""

    def __init__(self, world: World) -> None:
        self.world = world
        machine = Machine(world.network, "127.0.3.9", SeededChance(9))
        machine.boot()
        self._client = Client(network=machine.network, clock=machine.clock, chance=machine.chance)

    async def make(self, master: BrokerMachine, number: int) -> int | None:
        """One topic or group; the code of the answer. Whoever gives it is dead when this returns."""
        if number % 2:
            group = SubscriptionGroupConfig(group_name=f"made-{number}", retry_max_times=QUEUES)
            command = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode())
        else:
            header = CreateTopic(
                topic=f"made-{number}", read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6
            )
            command = request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        answered: asyncio.Future[Command | Exception] = asyncio.get_running_loop().create_future()

        def killed_with_it(reply: Command | Exception) -> None:
            master.kill()
            answered.set_result(reply)

        self._client.call_soon(address(master), command, 5.0, killed_with_it)
        reply = await answered
        return reply.code if isinstance(reply, Command) else None


def is_there(master: BrokerMachine, number: int) -> bool:
    assert master.broker is not None
    if number % 2:
        group = master.broker.groups.get(f"made-{number}")
        return group is not None and group.retry_max_times == QUEUES
    topic = master.broker.topics.get(f"made-{number}")
    return topic is not None and topic.write_queue_nums == QUEUES


async def _lost_by_kills(seed: int) -> list[int]:
    """What was said to be made, and is not there when the next one leads."""
    world = await begun(seed)
    maker, lost, made = Maker(world), [], 0
    for number in range(KILLS):
        master = await settled(world)
        code = await maker.make(master, number)
        if code == ResponseCode.SUCCESS:
            made += 1
            await until(world.master, LEADS_SECONDS, "nobody leads")
            heir = world.master()
            assert heir is not None
            assert heir is not master
            if not is_there(heir, number):
                lost.append(number)
        await master.start()
    assert made >= KILLS - 1, "nothing is proved"
    await world.bury()
    return lost


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_was_made_outlasts_its_master(seed: int) -> None:
    assert played(lambda: _lost_by_kills(seed)) == []


def test_an_answer_before_the_slaves_have_it_shows() -> None:
    with mock.patch.object(Primary, "_enough_copied", return_value=True):
        assert played(lambda: _lost_by_kills(2)), "nothing was lost, although nobody waited"
