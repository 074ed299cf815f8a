"""What befalls a simulated world, and how it is healed."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from tests.sim.actors import Actor
from tests.sim.machines import DISK_BYTES, BrokerMachine, Machine
from tests.sim.world import World

DAY_MS = 24 * 3600 * 1000
JUMPS_MS = (1_000, 3_600_000, DAY_MS, -1_000, -3_600_000, -DAY_MS)
JUMPED_MS_MAX = 2 * DAY_MS
"""Beyond three days the log may be forgotten, as is set."""


class Trouble:
    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = world.chance
        self._cures: list[Callable[[], None]] = []
        self._watch = asyncio.get_running_loop().create_task(self._watch_disks())

    async def stir(self, seconds: float) -> None:
        """Let faults come and go for some seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        kinds = self.world.plan.faults
        while kinds and (left := end - loop.time()) > 0:
            await asyncio.sleep(min(left, self.chance.expovariate(1 / self.world.plan.fault_seconds)))
            kind = self.chance.choice(kinds)
            self.world.history.happened(kind)
            getattr(self, f"_{kind}")()
        if not kinds:
            await asyncio.sleep(seconds)

    def heal(self) -> None:
        """All is well from now on; who is down comes back."""
        cures, self._cures = self._cures, []
        for cure in cures:
            cure()
        for machine in self.world.brokers:
            machine.files.before = None
            machine.files.fail("sync", times=0)
            machine.wall.jumped_ms = self.world._jumps_ms
        self.world.history.happened("healed")

    def _for_a_while(self, cure: Callable[[], None], most: float = 4.0) -> None:
        """The fault ends by itself, or when everything heals."""
        self._cures.append(cure)

        def end() -> None:
            if cure in self._cures:
                self._cures.remove(cure)
                cure()

        asyncio.get_running_loop().call_later(self.chance.uniform(0.05, most), end)

    def _some_broker(self) -> BrokerMachine:
        return self.chance.choice(self.world.brokers)

    # --------------------------------------------------------------------------------------- processes

    def _kill(self) -> None:
        self._some_broker().kill()

    def _kill_at_work(self) -> None:
        self._some_broker().die_before(self.chance.randrange(40), powerless=False)

    def _power_cut(self) -> None:
        self._some_broker().cut_power()

    def _power_cut_at_work(self) -> None:
        self._some_broker().die_before(self.chance.randrange(40), powerless=True)

    def _restart(self) -> None:
        machine = self._some_broker()
        if machine.is_up and machine.starting is not None and machine.starting.done():
            asyncio.get_running_loop().create_task(machine.stop())

    def _kill_client(self) -> None:
        client: Actor = self.chance.choice([*self.world.senders, *self.world.members, *self.world.readers])
        if client.machine.is_up:
            client.kill()
            self._for_a_while(lambda: None if client.machine.is_up else client.start())

    def _kill_name_server(self) -> None:
        server = self.chance.choice(self.world.nameservers)
        if server.is_up:
            server.kill()
            self._for_a_while(lambda: None if server.is_up else server.start())

    # -------------------------------------------------------------------------------------------- disks

    def _disk_full(self) -> None:
        machine = self._some_broker()
        machine.files.capacity = machine.files.used() + self.chance.choice((0, 8192, 65536))

        def cure() -> None:
            machine.files.capacity = DISK_BYTES

        self._for_a_while(cure)

    def _slow_disk(self) -> None:
        machine = self._some_broker()
        machine.disk_delay = self.chance.choice(((0.02, 0.1), (0.1, 1.0), (0.5, 3.0)))
        self.world._slow_until = float("inf")

        def cure() -> None:
            machine.disk_delay = machine.usual_disk_delay
            self.world._slow_until = asyncio.get_running_loop().time() + 3.0

        self._for_a_while(cure)

    def _sync_error(self) -> None:
        self._some_broker().files.fail("sync", error=errno.EIO, after=self.chance.randrange(3))

    async def _watch_disks(self) -> None:
        """A broker whose disk failed ends, as `kourou broker` does; perhaps the machine is started anew."""
        while True:
            await asyncio.sleep(0.1)
            for machine in self.world.brokers:
                if machine.is_up and machine.broker is not None and machine.broker.fault is not None:
                    if self.chance.random() < 0.5:
                        machine.cut_power()
                    else:
                        machine.kill()

    # ---------------------------------------------------------------------------------------- the network

    def _reset(self) -> None:
        host = self._some_machine().host
        for transport in list(self.world.network.transports):
            if transport.local[0] == host:
                self.world.network.reset(*transport.local)

    def _partition(self) -> None:
        one, other = self._some_machine().host, self._some_machine().host
        self._cut(one, other)
        self._cut(other, one)

    def _one_way(self) -> None:
        self._cut(self._some_machine().host, self._some_machine().host)

    def _deaf_client(self) -> None:
        client = self.chance.choice(self.world.clients)
        for machine in self.world.brokers:
            self._cut(machine.host, client.machine.host)

    def _cut(self, source: str, target: str) -> None:
        if source != target:
            self.world.network.cut(source, target)
            self._for_a_while(lambda: self.world.network.mend(source, target), most=6.0)

    def _some_machine(self) -> Machine:
        machines: list[Machine] = [*self.world.brokers, *self.world.nameservers]
        return self.chance.choice([*machines, *(client.machine for client in self.world.clients)])

    # --------------------------------------------------------------------------------------------- clocks

    def _clock_jump(self) -> None:
        machine = self.chance.choice([*self.world.brokers, *(each.machine for each in self.world.clients)])
        machine.wall.jumped_ms = min(machine.wall.jumped_ms + self.chance.choice(JUMPS_MS), JUMPED_MS_MAX)
        self.world._jumps_ms = max(self.world._jumps_ms, abs(machine.wall.jumped_ms))
