"""A cluster of two brokers with something of everything in it, and a console in front of it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

import kourou
from kourou.broker.broker import Broker
from kourou.broker.config import BrokerConfig
from kourou.console.config import ConsoleConfig
from kourou.console.server import ConsoleServer
from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.doors.memory_files import MemoryFiles
from kourou.doors.network import RealNetwork
from kourou.nameserver.config import NameServerConfig
from kourou.nameserver.server import NameServer

PASSWORD = "correct horse battery"
BROKERS = ("broker-a", "broker-b")


@dataclass
class Running:
    """A console, and the cluster it is for."""

    url: str
    first_password: str
    name_server: str
    folder: Path
    stop_broker: Callable[[str], None] = print
    """Takes one of the brokers away."""
    stop_console: Callable[[], None] = print

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, follow_redirects=True, timeout=20)


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def close(self) -> None:
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


class Everything:
    """A name server, two brokers in memory, and a console with nothing in its folder."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._settings = settings
        self._parts: list[NameServer | Broker | ConsoleServer] = []
        self._brokers: dict[str, Broker] = {}

    async def start(self) -> None:
        network, clock, chance = RealNetwork(), RealClock(), Chance()
        files = MemoryFiles(clock.now_ms)
        config = NameServerConfig(port=0, kv_config_path="/memory/kv.json")
        self.name_server = NameServer(config, network=network, clock=clock, files=files, chance=chance)
        await self._begin(self.name_server)
        for number, name in enumerate(BROKERS):
            broker = BrokerConfig(
                port=0,
                broker_name=name,
                store_path=f"/memory/{name}",
                name_servers=(self.name_server.address,),
                recall_enabled=True,
                delay_levels_ms=(1000,) * 18,  # what is handed back comes again soon
            )
            self._brokers[name] = Broker(
                broker, network=network, clock=clock, files=files, chance=chance, process_id=100 + number
            )
            await self._begin(self._brokers[name])
        settings = {"name_server": self.name_server.address, "folder": str(self._folder), "port": 0}
        self.console = ConsoleServer(ConsoleConfig(**{**settings, **self._settings}))
        await self._begin(self.console)

    async def _begin(self, part: NameServer | Broker | ConsoleServer) -> None:
        await part.start()
        self._parts.append(part)

    async def stop_broker(self, name: str) -> None:
        part = self._brokers.pop(name)
        self._parts.remove(part)
        await part.stop()

    async def stop(self) -> None:
        while self._parts:
            await self._parts.pop().stop()


@contextlib.contextmanager
def running_console(folder: Path, **settings: Any) -> Iterator[Running]:
    thread = LoopThread()
    everything = Everything(folder, settings)
    try:
        thread.run(everything.start())
        console = everything.console
        assert console.first_password is not None
        yield Running(
            console.address,
            console.first_password,
            everything.name_server.address,
            folder,
            lambda name: thread.run(everything.stop_broker(name)),
            lambda: thread.run(everything.console.stop()),
        )
    finally:
        thread.run(everything.stop())
        thread.close()


@contextlib.contextmanager
def console_of(name_server: str, folder: Path, **settings: Any) -> Iterator[Running]:
    """A console for a cluster that is there already."""
    thread = LoopThread()
    console = ConsoleServer(ConsoleConfig(name_server=name_server, folder=str(folder), port=0, **settings))
    try:
        thread.run(console.start())
        assert console.first_password is not None
        yield Running(console.address, console.first_password, name_server, folder)
    finally:
        thread.run(console.stop())
        thread.close()


def csrf_in(page: str) -> str:
    found = re.search(r'name="csrf" value="(\w+)"', page)
    assert found is not None, page
    return found[1]


def notices(page: str) -> list[tuple[str, str]]:
    return re.findall(r'class="notice (\w+)"[^>]*>\s*(.*?)</p>', page, re.DOTALL)


class Person:
    """Somebody with a browser, as far as forms go."""

    def __init__(self, running: Running, user: str = "admin", password: str = PASSWORD) -> None:
        self.running = running
        self.client = running.client()
        page = self.client.post("/login", data={"user": user, "password": password})
        assert page.status_code == 200, page.text
        self.csrf = csrf_in(page.text)

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path)

    def post(self, path: str, **fields: object) -> httpx.Response:
        page = self.client.post(path, data={"csrf": self.csrf, **fields})
        if found := re.search(r'name="csrf" value="(\w+)"', page.text):
            self.csrf = found[1]
        return page

    def colleague(self, running: Running, user: str, role: str) -> Person:
        """Somebody else, whom this admin lets in; they have chosen their password."""
        found = re.search(r"<code>([a-z2-7-]{19})</code>", self.post("/users/add", user=user, role=role).text)
        assert found is not None
        choose_password(running, user, found[1])
        return Person(running, user)

    def close(self) -> None:
        self.client.close()


class Program(httpx.Client):
    """Something with a token."""

    def __init__(self, running: Running, token: str) -> None:
        super().__init__(
            base_url=running.url + "/api/v1", headers={"authorization": f"Bearer {token}"}, timeout=40
        )


def first_login(running: Running) -> None:
    """Choose the admin's password, as the first one to come has to."""
    choose_password(running, "admin", running.first_password)


def choose_password(running: Running, user: str, one_time: str) -> None:
    with running.client() as client:
        page = client.post("/login", data={"user": user, "password": one_time})
        assert page.url.path == "/password"
        chosen = {"csrf": csrf_in(page.text), "password": PASSWORD, "again": PASSWORD}
        assert client.post("/password", data=chosen).status_code == 200


def token_for(person: Person, label: str = "tests") -> str:
    page = person.post("/account/tokens", label=label).text
    found = re.search(r"<code>(kourou_\w+)</code>", page)
    assert found is not None, page
    return found[1]


def fill(name_server: str) -> None:
    """Messages, a group that is behind, dead letters, something delayed, half a transaction, a trace."""
    with kourou.Producer("shop", name_server, trace=True) as producer:
        for number in range(30):
            body = b'{"order": %d, "item": "espresso", "price": 2.5}' % number
            producer.send(kourou.Message("orders", body, tags="new", keys=f"order-{number}"))
        producer.send(kourou.Message("orders", b"<script>alert('x')</script>", keys="evil"))
        producer.send(kourou.Message("orders", bytes(range(256)), keys="binary"))
        producer.send(kourou.Message("orders", b"not before tomorrow", keys="later"), delay=86_400)
    with kourou.PullConsumer("billing", "orders", name_server, start="earliest") as consumer:
        consumer.receive(8, timeout=5.0)
        consumer.commit()
    follow(name_server)
    give_up(name_server, "mailing", 3)
    undecided(name_server)


def follow(name_server: str) -> None:
    """Somebody handles a few messages, and tells of it."""
    handled = threading.Semaphore(0)
    with kourou.PushConsumer("kitchen", name_server, start="earliest", trace=True) as consumer:

        @consumer.on("orders", tags="new")
        def handle(message: kourou.ReceivedMessage) -> None:
            handled.release()

        consumer.start()
        for _ in range(30):
            assert handled.acquire(timeout=20)


def give_up(name_server: str, group: str, count: int) -> None:
    """Dead letters of a group."""
    with kourou.Producer("shop", name_server) as producer:
        for number in range(count):
            producer.send(kourou.Message("mails", b"to nobody %d" % number, keys=f"mail-{number}"))
    given_up = threading.Semaphore(0)
    with kourou.PushConsumer(group, name_server, start="earliest") as consumer:

        @consumer.on("mails")
        def handle(message: kourou.ReceivedMessage) -> None:
            given_up.release()
            raise kourou.DeadLetter("no such address")

        consumer.start()
        for _ in range(count):
            assert given_up.acquire(timeout=20)


def undecided(name_server: str) -> None:
    """A half message nobody decides about."""

    def nobody_knows(message: kourou.ReceivedMessage) -> kourou.TransactionState:
        return kourou.TransactionState.UNKNOWN

    message = kourou.Message("orders", b"perhaps")
    with (
        kourou.TransactionProducer("bookings", nobody_knows, name_server) as producer,
        producer.transaction(message) as transaction,
    ):
        transaction.leave_unknown()


def stored(name_server: str, body: bytes, keys: str) -> kourou.ReceivedMessage:
    """A message, as it comes back."""
    with kourou.Producer("shop", name_server) as producer:
        sent = producer.send(kourou.Message("scratch", body, keys=keys))
        return producer.view("scratch", sent.message_id)
