"""One real name server and many simulated brokers: what a large cluster costs it, and who learns what when.

    500 brokers, 2,000 topics each: 1,000,000 routes  each broker a connection of its own, as a real one has
    churn                                             every broker registers again once in 30 s
    lookups                                           one client after the other, before and during the churn
    loss                                              a connection breaks: until no route names that broker

`python -m bench.scaling` prints the figures, the constants of docs/scaling.md; `make bench` does, too.
"""

from __future__ import annotations

import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from bench.process import cpu_seconds, resident_mib
from kourou.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicRouteData,
    TopicTable,
    register_crc,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import request
from kourou.protocol.headers import GetRoute, RegisterBroker
from tests.kourou_process import Serving, serving_name_server

BROKERS, TOPICS_A_BROKER, BROKERS_A_TOPIC = 500, 2_000, 50
REGISTER_SECONDS = 30.0
LOOKUPS = 2_000
CONNECTIONS = 400
CHURN_SECONDS = 20.0
QUICK: dict[str, Any] = {
    "brokers": 20,
    "topics_a_broker": 100,
    "brokers_a_topic": 5,
    "churn_seconds": 0.5,
    "lookups": 50,
}
CLIENT_PERIOD_SECONDS = 30.0
"""How often a client asks for a route it has, when nothing fails."""


@dataclass(frozen=True)
class Figures:
    """Of one name server, and one size of cluster."""

    brokers: int
    routes: int
    idle_mib: float
    loaded_mib: float
    bytes_a_route: float
    """Of memory, for one topic at one broker."""
    registration_kib: float
    first_registration_ms: float
    """CPU of the name server for a broker it does not know."""
    registration_ms: float
    """The same for one it knows, with nothing new."""
    registration_us_a_topic: float
    churn_cpu: float
    """Share of a core that all brokers together cost, each registering once in 30 s."""
    lookup_ms: float
    lookup_p99_ms: float
    churn_lookup_ms: float
    churn_lookup_p99_ms: float
    lookup_kib: float
    connection_kib: float
    """Of memory, for a client that has asked once."""
    loss_ms: float
    """From a broken connection until no route names the broker."""

    @property
    def all_learn_seconds(self) -> float:
        """Until every client knows, also one that sends nothing there and looks every 30 s."""
        return CLIENT_PERIOD_SECONDS + self.loss_ms / 1000


class SimulatedBroker:
    """A connection and a list of topics."""

    def __init__(self, number: int, topics: list[str], address: str) -> None:
        self.name = f"broker-{number}"
        self._counter = 1
        self.topics = topics
        self._name_server = address
        self._socket: socket.socket | None = None
        self._identity = f"10.{number // 250}.{number % 250}.1:10911"

    def frame(self) -> bytes:
        table = {
            name: TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8) for name in self.topics
        }
        version = DataVersion(counter=self._counter, timestamp=1)
        body = RegisterBrokerBody(
            topic_table=TopicTable(topic_config_table=table, data_version=version)
        ).encode()
        header = RegisterBroker(
            broker_name=self.name,
            broker_address=self._identity,
            cluster_name="big",
            broker_id=0,
            ha_server_address="",
            body_crc32=register_crc(body),
            compressed=False,
        )
        return request(RequestCode.REGISTER_BROKER, header, body).encode()

    def register(self, frame: bytes) -> None:
        if self._socket is None:  # who connects and says nothing is hung up on
            host, _, port = self._name_server.rpartition(":")
            self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.sendall(frame)
        receive(self._socket)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def receive(connection: socket.socket) -> bytes:
    """One frame, without its length."""
    length = struct.unpack(">I", _exactly(connection, 4))[0]
    return _exactly(connection, length)


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        data = connection.recv(min(size, 1 << 20))
        if not data:
            raise ConnectionError("the name server hung up")
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


class Looker:
    """A client that asks for routes."""

    def __init__(self, address: str, topics: int, seed: int = 1) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._chance = Random(seed)
        self._topics = topics
        self.bytes = 0

    def look(self, topic: str | None = None) -> TopicRouteData:
        name = topic or f"topic-{self._chance.randrange(self._topics)}"
        header = GetRoute(name, accept_standard_json_only=True)
        self._socket.sendall(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header).encode())
        frame = receive(self._socket)
        self.bytes += len(frame)
        header_size = struct.unpack(">I", frame[:4])[0] & 0xFFFFFF
        return TopicRouteData.decode(frame[4 + header_size :])

    def close(self) -> None:
        self._socket.close()

    def times_ms(self, count: int, until: float = float("inf")) -> list[float]:
        times = []
        for _ in range(count):
            if time.perf_counter() > until:
                break
            name = f"topic-{self._chance.randrange(self._topics)}"
            ask = request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(name, accept_standard_json_only=True)
            ).encode()
            began = time.perf_counter()
            self._socket.sendall(ask)
            self.bytes += len(receive(self._socket))
            times.append((time.perf_counter() - began) * 1000)
        return times


def measure(
    folder: Path,
    *,
    brokers: int = BROKERS,
    topics_a_broker: int = TOPICS_A_BROKER,
    brokers_a_topic: int = BROKERS_A_TOPIC,
    churn_seconds: float = CHURN_SECONDS,
    lookups: int = LOOKUPS,
    tell: Callable[[str], None] = print,
) -> Figures:
    folder.mkdir(parents=True, exist_ok=True)
    topics = brokers * topics_a_broker // brokers_a_topic
    with serving_name_server(folder) as server:
        time.sleep(0.5)
        idle = resident_mib(server.pid)
        address = server.address("listens on")
        tell(f"{brokers} simulated brokers, {topics} topics, {brokers * topics_a_broker:,} routes")
        crowd = [
            SimulatedBroker(number, _topics_of(number, topics, topics_a_broker), address)
            for number in range(brokers)
        ]
        frames = [broker.frame() for broker in crowd]
        first = _cpu(server, lambda: _register(crowd, frames))
        loaded = resident_mib(server.pid)
        known = frames[: max(1, brokers // 5)]
        again = _cpu(server, lambda: _register(crowd[: len(known)], known)) / len(known)
        looker = Looker(address, topics)
        quiet = looker.times_ms(lookups)
        kib = looker.bytes / 1024 / len(quiet)
        churned, churn_cpu = _under_churn(server, crowd, frames, looker, churn_seconds)
        connection_kib = _connection_kib(server, address, topics, min(CONNECTIONS, brokers))
        loss = _loss_ms(crowd, looker)
        for broker in crowd:
            broker.close()
    routes = brokers * topics_a_broker
    return Figures(
        brokers=brokers,
        routes=routes,
        idle_mib=idle,
        loaded_mib=loaded,
        bytes_a_route=(loaded - idle) * 1024 * 1024 / routes,
        registration_kib=len(frames[0]) / 1024,
        first_registration_ms=first * 1000 / brokers,
        registration_ms=again * 1000,
        registration_us_a_topic=again * 1e6 / topics_a_broker,
        churn_cpu=churn_cpu,
        lookup_ms=median(quiet),
        lookup_p99_ms=_p99(quiet),
        churn_lookup_ms=median(churned),
        churn_lookup_p99_ms=_p99(churned),
        lookup_kib=kib,
        connection_kib=connection_kib,
        loss_ms=loss,
    )


def _topics_of(number: int, topics: int, count: int) -> list[str]:
    return [f"topic-{(number * count + each) % topics}" for each in range(count)]


def _register(crowd: list[SimulatedBroker], frames: list[bytes]) -> None:
    for broker, frame in zip(crowd, frames, strict=True):
        broker.register(frame)


def _cpu(server: Serving, work: Callable[[], None]) -> float:
    before = cpu_seconds(server.pid)
    work()
    return cpu_seconds(server.pid) - before


def _under_churn(
    server: Serving, crowd: list[SimulatedBroker], frames: list[bytes], looker: Looker, seconds: float
) -> tuple[list[float], float]:
    """Lookup times, and the CPU it took, while every broker registers once in 30 s."""
    is_over = threading.Event()

    def churn() -> None:
        number, pause = 0, REGISTER_SECONDS / len(crowd)
        due = time.perf_counter()
        while not is_over.is_set():
            crowd[number].register(frames[number])
            number = (number + 1) % len(crowd)
            due += pause
            is_over.wait(max(0.0, due - time.perf_counter()))

    thread = threading.Thread(target=churn)
    began, before = time.perf_counter(), cpu_seconds(server.pid)
    thread.start()
    times: list[float] = []
    while time.perf_counter() < began + seconds:
        times += looker.times_ms(20)
        time.sleep(0.05)  # the CPU is to be that of registrations
    used = cpu_seconds(server.pid) - before
    took = time.perf_counter() - began
    is_over.set()
    thread.join()
    return times, used / took


def _connection_kib(server: Serving, address: str, topics: int, count: int) -> float:
    before = resident_mib(server.pid)
    lookers = [Looker(address, topics, seed) for seed in range(count)]
    for looker in lookers:
        looker.times_ms(1)
    kib = (resident_mib(server.pid) - before) * 1024 / count
    for looker in lookers:
        looker.close()
    return kib


def _loss_ms(crowd: list[SimulatedBroker], looker: Looker) -> float:
    lost = crowd.pop()
    topic = lost.topics[0]
    began = time.perf_counter()
    lost.close()
    while lost.name in {each.broker_name for each in looker.look(topic).broker_datas}:
        time.sleep(0.001)
    return (time.perf_counter() - began) * 1000


def _p99(times: list[float]) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def as_json(figures: Figures) -> dict[str, Any]:
    return asdict(figures)


def shown(figures: Figures) -> str:
    f = figures
    return (
        f"{f.routes:,} routes of {f.brokers} brokers: {f.loaded_mib:.0f} MiB, {f.bytes_a_route:.0f} bytes a "
        f"route; a registration of {f.registration_kib:.0f} KiB takes {f.registration_ms:.1f} ms of CPU, "
        f"a new one {f.first_registration_ms:.1f}, all {f.churn_cpu * 100:.0f} % of a core; lookup of "
        f"{f.lookup_kib:.1f} KiB p50 {f.lookup_ms:.2f}, p99 {f.lookup_p99_ms:.2f} ms, with churn "
        f"{f.churn_lookup_ms:.2f} and {f.churn_lookup_p99_ms:.2f}; a lost broker leaves the routes after "
        f"{f.loss_ms:.0f} ms, and every client knows after {f.all_learn_seconds:.0f} s; "
        f"a client's connection takes {f.connection_kib:.1f} KiB"
    )


def main() -> None:
    sizes = [int(each) for each in sys.argv[1:3]] or [BROKERS, TOPICS_A_BROKER]
    with tempfile.TemporaryDirectory(prefix="kourou-scaling-") as folder:
        print(shown(measure(Path(folder), brokers=sizes[0], topics_a_broker=sizes[1])))


if __name__ == "__main__":
    main()
