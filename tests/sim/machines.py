"""Machines, and the processes on them: they start, are killed, lose their power, and start again.

A process is what hangs on one clock, one network door and one disk. To kill it is to stop the clock, to break
or silence its connections, and to go on with a copy of its disk: whatever code of it is still on the stack
runs into `Killed` at its next touch of the old disk, and nobody hears of it any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from kourou.broker.broker import Broker
from kourou.broker.config import BrokerConfig
from kourou.doors.chance import Chance
from kourou.doors.simulated_files import SimulatedFiles
from kourou.doors.simulated_network import SimulatedMachine, SimulatedNetwork
from kourou.errors import MQError
from kourou.nameserver.config import NameServerConfig
from kourou.nameserver.server import NameServer
from tests.sim.virtual_time import Killed, VirtualClock, Wall

Done = Callable[[BaseException | None], None]

NAME_SERVER_PORT, BROKER_PORT = 9876, 10911
DISK_BYTES = 64 << 20


class SeededChance(Chance):
    """Also its secrets can be drawn again: nobody has to keep them here."""

    def secret_bytes(self, count: int) -> bytes:
        return self.randbytes(count)


class Machine:
    """One machine: a host, a wall clock and a disk outlive its processes."""

    def __init__(self, network: SimulatedNetwork, host: str, chance: Chance) -> None:
        self.host = host
        self.chance = chance
        self.wall = Wall()
        self.files = SimulatedFiles(DISK_BYTES)
        self._whole_network = network
        self._tasks: list[asyncio.Task[Any]] = []
        self.is_up = False
        self.ended = ""
        """How its last process ended, and when."""
        self.ended_at = 0.0
        self.last_power_cut = -1.0
        self.power_lost_at: float | None = None
        """When it lost its power, if nobody has looked at its disk since."""
        self.down_since: float | None = None
        """When it first died since somebody has looked at its disk: nothing was brought there since."""
        self.died: Callable[[str], None] = lambda how: None

    def boot(self) -> None:
        """Room for a new process."""
        loop = asyncio.get_running_loop()
        self.clock = VirtualClock(loop, self.wall)
        self.network: SimulatedMachine = self._whole_network.machine(self.host)
        self.files._clock_ms = self.clock.now_ms
        self.is_up = True

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run it as a part of the process that is up."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        return task

    def kill(self) -> None:
        """kill -9: what was written stays."""
        if self.is_up:
            self._end("killed", self.files.crashed(), powerless=False)

    def cut_power(self) -> None:
        """What was not synced may be lost, in parts."""
        if self.is_up:
            self.last_power_cut = self.clock.monotonic()
            self.power_lost_at = self.clock.monotonic() if self.power_lost_at is None else self.power_lost_at
            self._end("without power", self.files.power_cut(self.chance), powerless=True)

    def die_before(self, operations: int, *, powerless: bool) -> None:
        """Kill it, or cut its power, in the midst of its work: before the n-th operation of its disk."""
        left = operations

        def before(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0 and self.is_up:
                (self.cut_power if powerless else self.kill)()
                raise Killed

        self.files.before = before

    def _end(self, how: str, left: SimulatedFiles, *, powerless: bool) -> None:
        self.is_up = False
        self.ended, self.ended_at = how, self.clock.monotonic()
        self.down_since = self.ended_at if self.down_since is None else self.down_since
        self.clock.is_stopped = True
        self.network.close(powerless=powerless)
        self.files.before = _dead
        self.files = left
        self.died(how)


def _dead(operation: str, path: str) -> None:
    raise Killed


class DiskThread:
    """The thread that waits for the disk, one job at a time; each takes time, before and after the deed."""

    def __init__(self, machine: BrokerMachine) -> None:
        self._machine = machine
        self._clock = machine.clock
        self._jobs: deque[tuple[Callable[[], None], Done]] = deque()
        self._is_busy = False

    def run(self, job: Callable[[], None], done: Done) -> None:
        self._jobs.append((job, done))
        if not self._is_busy:
            self._begin()

    def _begin(self) -> None:
        self._is_busy = True
        self._clock.later(self._machine.disk_seconds(), self._work)

    def _work(self) -> None:
        job, done = self._jobs.popleft()
        outcome: BaseException | None = None
        try:
            job()
        except Exception as error:
            outcome = error
        self._clock.later(self._machine.disk_seconds(), lambda: self._told(done, outcome))

    def _told(self, done: Done, outcome: BaseException | None) -> None:
        self._is_busy = False
        if self._jobs:
            self._begin()
        done(outcome)


class BrokerMachine(Machine):
    """A machine with a broker, real but for its doors."""

    def __init__(
        self, network: SimulatedNetwork, name: str, host: str, chance: Chance, settings: dict[str, Any]
    ) -> None:
        super().__init__(network, host, chance)
        self.name = name
        self.settings = settings
        self.usual_disk_delay = self.disk_delay = (0.0, 0.002)
        self.broker: Broker | None = None
        self.starting: asyncio.Task[Any] | None = None
        self.refusals: list[str] = []
        """Why it did not start."""

    def disk_seconds(self) -> float:
        return self.chance.uniform(*self.disk_delay)

    @property
    def is_sync(self) -> bool:
        return self.settings["flush_disk_type"] == "SYNC_FLUSH"

    async def start(self) -> Broker | None:
        """Start the broker; its store is open when this returns. None when it died on the way."""
        self.boot()
        config = BrokerConfig(
            broker_name=self.name,
            host=self.host,
            port=BROKER_PORT,
            fast_port_enabled=False,
            store_path="store",
            **self.settings,
        )
        self.broker = broker = Broker(
            config,
            network=self.network,
            clock=self.clock,
            files=self.files,
            chance=SeededChance(self.chance.getrandbits(32)),
            process_id=7,
            background=DiskThread(self).run,
        )
        self.starting = self.spawn(self._start(broker))
        await asyncio.sleep(0)  # its first step: up to the network, the store is recovered
        return broker if self.is_up else None

    async def _start(self, broker: Broker) -> None:
        try:
            await broker.start()
        except Killed:
            return
        except MQError as error:
            if self.is_up and self.broker is broker:
                self.refusals.append(str(error))
                self._end("refused to start", self.files.crashed(), powerless=False)

    async def stop(self) -> None:
        """A clean stop."""
        broker, self.broker = self.broker, None
        if broker is not None and self.is_up:
            task = self.spawn(_survived(broker.stop()))
            await task
            if self.is_up:
                self._end("stopped", self.files.crashed(), powerless=False)


async def _survived(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Killed:
        return


class NameServerMachine(Machine):
    def start(self) -> None:
        self.boot()
        config = NameServerConfig(
            host=self.host, port=NAME_SERVER_PORT, kv_config_path="namesrv/kvConfig.json"
        )
        self.server = NameServer(
            config, network=self.network, clock=self.clock, files=self.files, chance=SeededChance(2)
        )
        self.spawn(_survived(self.server.start()))

    @property
    def address(self) -> str:
        return f"{self.host}:{NAME_SERVER_PORT}"
