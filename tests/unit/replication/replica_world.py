"""A master and its slaves on one simulated network, each with a disk of its own.

world = ReplicaWorld()
master = world.add("master", broker_role="SYNC_MASTER")
slave = world.add("slave", broker_role="SLAVE", broker_id=1)
peer = world.peer(master)            a client made of raw frames, as in `broker_world`
world.pass_time(2)
world.cut(slave)                     nothing reaches the slave or comes from it
world.kill(master)                   its disk stays as it is
"""

from __future__ import annotations

from typing import Any

from kourou.broker.broker import Broker
from kourou.broker.config import BrokerConfig
from kourou.doors.chance import Chance
from kourou.doors.simulated_files import SimulatedFiles
from kourou.doors.simulated_network import SimulatedMachine
from tests.unit.broker.broker_world import BrokerWorld, DiskThread, Peer

SEGMENT_BYTES = 64 * 1024
NAME_SERVER = "127.0.0.9:9876"


class ReplicaWorld(BrokerWorld):
    """Brokers of one replica set, by name; a name server knows them all."""

    def __init__(self) -> None:
        super().__init__()
        self.brokers: dict[str, Broker] = {}
        self.disks: dict[str, SimulatedFiles] = {}
        self.threads: dict[str, DiskThread] = {}
        self.machines: dict[str, SimulatedMachine] = {}
        self._hosts: dict[str, str] = {}
        self._started = 0
        self._settings: dict[str, dict[str, Any]] = {}

    def add(self, name: str, **settings: Any) -> Broker:
        """Start a broker on a machine of its own; again, over its disk as it is."""
        host = self._hosts.setdefault(name, f"127.0.0.{11 + len(self._hosts)}")
        self._started += 1
        number = self._started  # each draws its own lots
        files = self.disks.setdefault(name, SimulatedFiles(clock_ms=self.clock.now_ms))
        thread = self.threads[name] = DiskThread(self._runner.get_loop())
        machine = self.machines[name] = self.network.machine(host)
        self._settings[name] = settings = settings or self._settings.get(name, {})
        config = BrokerConfig(
            **{
                "broker_name": "pair",
                "host": host,
                "store_path": "store",
                "segment_bytes": SEGMENT_BYTES,
                **settings,
            }
        )

        async def make() -> Broker:
            broker = Broker(
                config,
                network=machine,
                clock=self.clock,
                files=files,
                chance=Chance(number),
                process_id=number,
                background=thread.run,
            )
            await broker.start()
            return broker

        broker: Broker = self.run(make())
        self.brokers[name] = broker
        self.settle()
        return broker

    def pair(self, *, slave: dict[str, Any] | None = None, **settings: Any) -> tuple[Broker, Broker]:
        """A master and a slave that follows it."""
        master = self.add("master", **settings)
        follower = self.add(
            "slave", broker_role="SLAVE", broker_id=1, ha_master_address=master.ha_address, **(slave or {})
        )
        self.until(lambda: follower.replicating.replica.is_following)
        return master, follower

    def peer(self, broker: Broker) -> Peer:
        host, _, port = broker.address.rpartition(":")
        return self.connect_to(host, int(port))

    def until(self, happened: Any, seconds: float = 30.0) -> None:
        """Let time pass until it is so."""
        for _ in range(round(seconds / 0.1)):
            self.settle()
            if happened():
                return
            self.pass_time(0.1, 0.1)
        raise AssertionError(f"it never came so, in {seconds} s")

    def until_same(self, one: Broker, other: Broker) -> None:
        self.until(lambda: one.store.wrote == other.store.wrote == other.store.dispatched)

    def log_of(self, name: str) -> bytes:
        """The bytes of a broker's log, from its first file on."""
        files = self.disks[name]
        parts = [files.read(f"store/commitlog/{each}") for each in files.list("store/commitlog")]
        return b"".join(parts).rstrip(b"\0")

    def kill(self, name: str) -> None:
        """kill -9: the disk stays as it is, connections break."""
        del self.brokers[name]
        self.machines[name].close()
        self.disks[name] = self.disks[name].crashed()
        self.settle()

    def end(self, name: str) -> None:
        """Stop it as an operator does."""
        self.run(self.brokers.pop(name).stop())

    def part(self, one: str, other: str) -> None:
        """Nothing goes between the two, either way, until `join`."""
        self.network.cut(self._hosts[one], self._hosts[other])
        self.network.cut(self._hosts[other], self._hosts[one])

    def join(self, one: str, other: str) -> None:
        self.network.mend(self._hosts[one], self._hosts[other])
        self.network.mend(self._hosts[other], self._hosts[one])

    def close(self) -> None:
        for name in list(self.brokers):
            self.end(name)
        super().close()
