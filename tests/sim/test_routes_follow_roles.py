"""Who becomes a master, or a slave, is so in the routes within a second, in simulated time."""

from __future__ import annotations

import pytest

from tests.sim.elected_brokers import TOPIC, World
from tests.sim.machines import BrokerMachine
from tests.sim.switches import LEADS_SECONDS, RouteWatcher, address, begun, played, settled, until

SEEN_SECONDS_MAX = 1.0


async def _watched(seed: int) -> tuple[World, BrokerMachine, RouteWatcher]:
    world = await begun(seed)
    master = await settled(world)
    assert master.broker is not None
    master.broker.topics.ensure(TOPIC, 2, 6)
    watcher = RouteWatcher(world, TOPIC)
    await until(
        lambda: watcher.ids.get(address(master)) == 0, LEADS_SECONDS, "the master is not in the route"
    )
    return world, master, watcher


async def _heir(world: World, before: BrokerMachine) -> BrokerMachine:
    def leader() -> BrokerMachine | None:
        """Whoever calls itself the master, lease or not."""
        others = [each for each in world.brokers if each is not before]
        leading = [each for each in others if each.is_up and each.broker and each.broker.role.is_master]
        return leading[0] if leading else None

    await until(leader, LEADS_SECONDS, "nobody leads")
    found = leader()
    assert found is not None
    return found


async def _seen(watcher: RouteWatcher, machine: BrokerMachine, number: int) -> None:
    where = address(machine)
    await until(
        lambda: watcher.ids.get(where) == number,
        SEEN_SECONDS_MAX,
        f"{where} is {watcher.ids.get(where)} in the routes and not {number}",
    )


@pytest.mark.parametrize("seed", range(4))
def test_an_elected_master_is_in_the_routes_within_a_second(seed: int) -> None:
    async def story() -> None:
        world, before, watcher = await _watched(seed)
        before.kill()
        heir = await _heir(world, before)
        await _seen(watcher, heir, 0)
        await before.start()
        await until(lambda: before.broker and before.broker.replicating.has_master, LEADS_SECONDS, "alone")
        assert before.broker is not None
        await _seen(watcher, before, before.broker.role.broker_id)
        assert before.broker.role.broker_id != 0
        await world.bury()

    played(story)


@pytest.mark.parametrize("seed", range(4))
def test_a_lead_that_is_handed_over_is_in_the_routes_within_a_second(seed: int) -> None:
    async def story() -> None:
        world, before, watcher = await _watched(seed)
        after = next(each for each in world.brokers if each is not before)
        assert before.broker is not None
        assert before.broker.switching is not None
        await before.broker.switching.hand_over(address(after))
        heir = await _heir(world, before)
        await _seen(watcher, heir, 0)
        await until(lambda: not before.broker.role.is_master, LEADS_SECONDS, "two masters")  # type: ignore[union-attr]
        await _seen(watcher, before, before.broker.role.broker_id)
        await world.bury()

    played(story)


def test_roles_changed_by_hand_are_in_the_routes_within_a_second() -> None:
    async def story() -> None:
        world = World(0)
        world.name_server.start()
        master, slave = world.brokers[:2]
        for machine, role, number in ((master, "ASYNC_MASTER", 0), (slave, "SLAVE", 1)):
            machine.settings |= {"broker_role": role, "broker_id": number, "election_members": ()}
            await machine.start()
        await until(lambda: slave.broker and slave.broker.replicating.has_master, LEADS_SECONDS, "alone")
        assert master.broker is not None
        assert slave.broker is not None
        master.broker.topics.ensure(TOPIC, 2, 6)
        watcher = RouteWatcher(world, TOPIC)
        await until(lambda: len(watcher.ids) == 2, LEADS_SECONDS, "not both are in the route")
        await master.broker.replicating.become_slave(0)
        await slave.broker.become_master()
        await _seen(watcher, slave, 0)
        await _seen(watcher, master, 1)
        await world.bury()

    played(story)
