"""A real broker on a network, a clock and a disk of the test's own, told about in plain calls.

    world = BrokerWorld()
    world.start(sync_flush…)             settings are those of BrokerConfig
    peer = world.connect()               a client made of raw frames
    reply = peer.send("orders", b"…")    one request and its reply; no time passes
    waiting = peer.begin(pull(…))        a request whose reply may take its time
    world.pass_time(15)                  now it does
    assert waiting.reply.code == 19

Nothing sleeps and nothing listens on a socket: each call turns the event loop until nothing more can happen
without time passing. Jobs for the disk's thread run at once, unless `world.disk.hold()` was called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

import msgspec

from kourou.broker.broker import Broker
from kourou.broker.config import BrokerConfig
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.doors.simulated_network import SimulatedNetwork, SimulatedTransport
from kourou.nameserver.config import NameServerConfig
from kourou.nameserver.server import NameServer
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import FLAG_ONE_WAY, Command, decode
from kourou.protocol.command import request as make_request
from kourou.protocol.frame import FrameReader, join
from kourou.protocol.headers import CreateTopic, PullMessage, SendMessageV2
from kourou.protocol.record import Record, decode_all
from kourou.remoting.answer import Handler
from kourou.remoting.config import ServerConfig
from kourou.remoting.server import Server
from kourou.remoting.tick import Tick

PORT = 10911
STORE = "store"


class BrokerWorld:
    """Everything around one broker."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.clock = SimulatedClock()
        self.network = SimulatedNetwork(self.clock)
        self.files = SimulatedFiles(clock_ms=self.clock.now_ms)
        self.disk = DiskThread(self._runner.get_loop())
        self.broker: Broker = None  # type: ignore[assignment]
        self._servers: list[NameServer | Server] = []

    # ------------------------------------------------------------------------------------ the broker's life

    def start(self, *name_servers: str, **settings: Any) -> Broker:
        """Start a broker over the disk as it is."""
        config = BrokerConfig(
            **{"broker_name": "broker-a", "store_path": STORE, "name_servers": name_servers, **settings}
        )

        async def make() -> Broker:
            broker = Broker(
                config,
                network=self.network,
                clock=self.clock,
                files=self.files,
                chance=Chance(1),
                process_id=7,
                background=self.disk.run,
            )
            await broker.start()
            return broker

        self.broker = self.run(make())
        self.settle()
        return self.broker

    def stop(self) -> None:
        """Stop the broker; the clock runs along, as long as it takes."""
        broker, self.broker = self.broker, None  # type: ignore[assignment]
        if broker is not None:
            self.run(broker.stop())

    def crash(self) -> None:
        """kill -9: the disk stays as it is, everything else is gone."""
        self._end_on(self.files.crashed())

    def lose_power(self) -> None:
        """The same, and nothing is left of what was not synced."""
        self._end_on(self.files.power_cut(Misfortune()))

    def _end_on(self, disk: SimulatedFiles) -> None:
        self.broker = None  # type: ignore[assignment]
        self.files = disk
        self.network = SimulatedNetwork(self.clock)
        self._servers = []

    def close(self) -> None:
        self.stop()
        for server in self._servers:
            self.run(server.stop())
        self._runner.close()

    # --------------------------------------------------------------------------------------- time and turns

    def settle(self) -> None:
        """Let everything happen that can happen now."""
        self._runner.run(_turn(25))

    def pass_time(self, seconds: float, step: float = 0.5) -> None:
        """Let time pass, in steps, with turns of the loop in between."""

        async def passing() -> None:
            left = seconds
            while left > 0:
                self.clock.advance(min(step, left))
                left -= step
                await _turn(6)

        self._runner.run(passing())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The outcome of `work`, with time passing while it waits."""

        async def driven() -> Any:
            task = asyncio.ensure_future(work)
            for _ in range(5_000):
                await _turn(4)
                if task.done():
                    return task.result()
                self.clock.advance(0.01)
            raise AssertionError(f"{work} did not end within 50 seconds of simulated time")

        return self._runner.run(driven())

    # ------------------------------------------------------------------------------------ who else is there

    def connect(self, *, fast: bool = False) -> Peer:
        """A client at the broker's port, or at its fast one."""
        port = int(self.broker.address.rpartition(":")[2]) - 2 * fast
        return self.connect_to("127.0.0.1", port)

    def connect_to(self, host: str, port: int) -> Peer:
        peer = Peer(self)
        self.run(self.network.connect(host, port, peer))
        return peer

    def name_server(self, port: int = 9876) -> NameServer:
        """A real one, on the same network."""

        async def make() -> NameServer:
            config = NameServerConfig(port=port, kv_config_path=f"namesrv-{port}/kvConfig.json")
            server = NameServer(
                config, network=self.network, clock=self.clock, files=self.files, chance=Chance(2)
            )
            await server.start()
            return server

        server: NameServer = self.run(make())
        self._servers.append(server)
        return server

    def listener(self, handlers: Mapping[int, Handler], port: int = 9876) -> Server:
        """A server of the test's own making: a name server that does as it says."""

        async def make() -> Server:
            server = Server(
                handlers,
                ServerConfig(port=port),
                network=self.network,
                clock=self.clock,
                tick=Tick(asyncio.get_running_loop()),
                name="the test's server",
            )
            await server.start()
            return server

        server: Server = self.run(make())
        self._servers.append(server)
        return server

    def make_topic(self, name: str, queues: int = 4, **settings: Any) -> TopicConfig:
        """A topic, without asking anybody."""
        shape = {"read_queue_nums": queues, "write_queue_nums": queues, **settings}
        topic = TopicConfig(topic_name=name, **shape)
        self.broker.topics.save({name: topic})
        return topic


class Misfortune(Chance):
    """Of all that can happen, the worst."""

    def random(self) -> float:
        return 0.999

    def randrange(self, *args: Any, **kwargs: Any) -> int:
        return 0


class DiskThread:
    """The thread that waits for the disk, without a thread: jobs run one after the other, when they may."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_held = False
        self._jobs: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def run(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self._jobs.append((job, done))
        if not self._is_held:
            self._work()

    def hold(self) -> None:
        """The disk hangs: nothing is synced until `release`."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._work()

    def finish_one(self) -> None:
        """The disk does what it was asked first, and hangs again."""
        self._finish(*self._jobs.pop(0))

    def _work(self) -> None:
        jobs, self._jobs = self._jobs, []
        for job, done in jobs:
            self._finish(job, done)

    def _finish(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        outcome: BaseException | None = None
        try:
            job()
        except BaseException as error:
            outcome = error
        self._loop.call_soon(done, outcome)


class Waiting:
    """A request that was written, and its reply once it is there."""

    def __init__(self) -> None:
        self.replies: list[Command] = []

    @property
    def is_answered(self) -> bool:
        return bool(self.replies)

    @property
    def reply(self) -> Command:
        assert self.replies, "no reply yet"
        assert len(self.replies) == 1, f"{len(self.replies)} replies to one request"
        return self.replies[0]


class Peer(asyncio.Protocol):
    """A client: writes requests, collects replies and what the broker asks or tells by itself."""

    def __init__(self, world: BrokerWorld) -> None:
        self._world = world
        self._reader = FrameReader()
        self._waiting: dict[int, Waiting] = {}
        self._last_opaque = 100
        self.told: list[Command] = []
        """Requests of the broker's own: NOTIFY_CONSUMER_IDS_CHANGED, say."""
        self.is_lost = False
        self.transport: SimulatedTransport = None  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            command = decode(frame)
            if command.is_reply:
                self._waiting[command.opaque].replies.append(command)
            else:
                self.told.append(command)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def close(self) -> None:
        self.transport.close()
        self._world.settle()

    # ------------------------------------------------------------------------------------------- any request

    def begin(self, *commands: Command) -> Waiting:
        """Write them all at once; the last one's reply may come later."""
        return self.begin_all(commands)[-1]

    def begin_all(self, commands: Iterable[Command]) -> list[Waiting]:
        """Write them all at once; their replies may come later."""
        frames, waiting = [], []
        for command in commands:
            self._last_opaque += 1
            command.opaque = self._last_opaque
            waiting.append(Waiting())
            self._waiting[command.opaque] = waiting[-1]
            frames.append(command.encode())
        self.transport.write(b"".join(frames))
        self._world.settle()
        return waiting

    def reply_to(self, command: Command) -> Command | None:
        """What came of a request that was begun, by now."""
        waiting = self._waiting.get(command.opaque)
        return waiting.reply if waiting is not None and waiting.is_answered else None

    def begin_raw(self, header: Mapping[str, object], body: bytes = b"") -> Waiting:
        """A JSON header exactly as a peer of another language writes it."""
        self._last_opaque += 1
        waiting = self._waiting[self._last_opaque] = Waiting()
        text = msgspec.json.encode({**header, "opaque": self._last_opaque})
        self.transport.write(join(0, text, body))
        self._world.settle()
        return waiting

    def ask(
        self, code: int, header: msgspec.Struct | None = None, body: bytes = b"", *, serialization: int = 0
    ) -> Command:
        """One request and its reply."""
        command = make_request(code, header, body)
        command.serialization = serialization
        return self.begin(command).reply

    def tell(self, code: int, header: msgspec.Struct | None = None, body: bytes = b"") -> None:
        """One request that nobody answers."""
        waiting = self.begin(make_request(code, header, body, flag=FLAG_ONE_WAY))
        assert not waiting.is_answered

    # ------------------------------------------------------------------------------------- the usual requests

    def send(self, topic: str = "orders", body: bytes = b"hello", **more: Any) -> Command:
        return self.begin(send(topic, body, **more)).reply

    def pull(self, topic: str = "orders", queue_id: int = 0, queue_offset: int = 0, **more: Any) -> Command:
        return self.begin(pull(topic, queue_id, queue_offset, **more)).reply

    def records(
        self, topic: str = "orders", queue_id: int = 0, queue_offset: int = 0, **more: Any
    ) -> list[Record]:
        """The messages a pull finds; none when it finds nothing."""
        return decode_all(self.pull(topic, queue_id, queue_offset, **more).body)

    def bodies(self, topic: str = "orders", queue_id: int = 0, queue_offset: int = 0) -> list[bytes]:
        return [record.body for record in self.records(topic, queue_id, queue_offset)]

    def create_topic(self, name: str, queues: int = 4, perm: int = 6) -> Command:
        header = CreateTopic(topic=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        return self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def send(
    topic: str = "orders",
    body: bytes = b"hello",
    *,
    properties: Mapping[str, str] | str = "",
    code: int = RequestCode.SEND_MESSAGE_V2,
    serialization: int = 0,
    **more: Any,
) -> Command:
    """A send as Java writes it."""
    if not isinstance(properties, str):
        properties = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    usual = {
        "producer_group": "senders",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_600_000_000_000,
        "flag": 0,
        "properties": properties,
        "reconsume_times": 0,
        "unit_mode": False,
        "batch": False,
    }
    command = make_request(code, SendMessageV2(**{**usual, **more}), body)
    command.serialization = serialization
    return command


SUSPEND, OWN_SUBSCRIPTION, COMMIT = 0x2, 0x4, 0x1


def pull(
    topic: str = "orders",
    queue_id: int = 0,
    queue_offset: int = 0,
    *,
    group: str = "readers",
    tags: str | None = "*",
    wait_ms: int = 0,
    serialization: int = 0,
    **more: Any,
) -> Command:
    """A pull that brings its own subscription; with `wait_ms` it is willing to wait."""
    usual = {
        "consumer_group": group,
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "message_count_max": 32,
        "sys_flag": OWN_SUBSCRIPTION | (SUSPEND if wait_ms else 0),
        "suspend_timeout_ms": wait_ms,
        "subscription": tags,
    }
    command = make_request(RequestCode.PULL_MESSAGE, PullMessage(**{**usual, **more}))
    command.serialization = serialization
    return command


async def _turn(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
