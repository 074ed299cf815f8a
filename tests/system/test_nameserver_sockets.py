"""Name servers on real sockets: alone, in pairs, attacked, and as processes that are told to end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.doors.files import RealFiles
from kourou.doors.network import RealNetwork
from kourou.errors import ConfigError, Unreachable
from kourou.nameserver.config import NameServerConfig
from kourou.nameserver.server import NameServer
from kourou.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicRouteData,
    TopicTable,
    register_crc,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.command import request as make_request
from kourou.protocol.headers import BrokerIdentity, GetRoute, KvKey, PutKv, RegisterBroker
from kourou.remoting.address import parse_address
from kourou.remoting.client import Client

BROKER = "127.0.0.1:10911"
IDENTITY = BrokerIdentity(broker_name="a", broker_address=BROKER, cluster_name="c")


@contextlib.asynccontextmanager
async def name_server(folder: Path, name: str = "one", **settings: Any) -> AsyncIterator[NameServer]:
    server = NameServer(
        NameServerConfig(
            port=settings.pop("port", 0), kv_config_path=str(folder / name / "kv.json"), **settings
        ),
        network=RealNetwork(),
        clock=RealClock(),
        files=RealFiles(),
        chance=Chance(),
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[Client]:
    made = Client(network=RealNetwork(), clock=RealClock())
    try:
        yield made
    finally:
        await made.close()


async def ask(
    asker: Client, address: str, code: int, header: msgspec.Struct | None = None, body: bytes = b""
) -> Command:
    return await asker.call(address, make_request(code, header, body), 5.0)


async def register(broker: Client, address: str, *topics: str, **changes: Any) -> Command:
    table = TopicTable(
        data_version=DataVersion(counter=1),
        topic_config_table={each: TopicConfig(topic_name=each) for each in topics},
    )
    body = RegisterBrokerBody(topic_table=table).encode()
    header = RegisterBroker(
        **{
            "broker_name": "a",
            "broker_id": 0,
            "broker_address": BROKER,
            "cluster_name": "c",
            "body_crc32": register_crc(body),
            **changes,
        }
    )
    return await ask(broker, address, RequestCode.REGISTER_BROKER, header, body)


async def route(asker: Client, address: str, topic: str = "t") -> TopicRouteData | None:
    reply = await ask(asker, address, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic=topic))
    return TopicRouteData.decode(reply.body) if reply.code == ResponseCode.SUCCESS else None


async def until(is_so: Any) -> None:
    """Wait for something that sockets will bring about shortly."""
    for _ in range(500):
        if await is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about within 5 s")


class Wire:
    """A cable between a broker and a name server that can be cut and joined again."""

    def __init__(self, target: str) -> None:
        self._target = parse_address(target)
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def join(self, port: int = 0) -> str:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]
        return f"127.0.0.1:{self.port}"

    async def cut(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            pipe = asyncio.ensure_future(self._pump(source, sink))
            self._pipes.add(pipe)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
        sink.close()


def test_two_name_servers_that_never_talk_serve_alone_and_a_cut_one_heals(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            name_server(tmp_path, "one") as one,
            name_server(tmp_path, "two") as two,
            client() as broker,
            client() as asker,
        ):
            wire = Wire(two.address)
            through_wire = await wire.join()
            await register(broker, one.address, "t", "u")
            await register(broker, through_wire, "t", "u")
            assert await route(asker, one.address) == await route(asker, two.address) is not None

            await wire.cut()

            async def two_forgot() -> bool:
                return await route(asker, two.address) is None

            await until(two_forgot)
            assert await route(asker, one.address) is not None
            await register(broker, one.address, "t", "u")
            with pytest.raises(Unreachable):
                await broker.call(through_wire, make_request(RequestCode.QUERY_DATA_VERSION, IDENTITY), 0.5)

            await wire.join(wire.port)

            async def healed() -> bool:
                try:
                    return (await register(broker, through_wire, "t", "u")).code == 0
                except Unreachable:
                    return False

            await until(healed)
            assert await route(asker, two.address) == await route(asker, one.address) is not None
            await wire.cut()

    asyncio.run(story())


def test_after_a_restart_the_version_is_changed_and_key_values_are_there(tmp_path: Path) -> None:
    async def story() -> None:
        version = DataVersion(counter=1).encode()
        async with client() as broker:
            async with name_server(tmp_path) as server:
                await register(broker, server.address, "t", "u")
                known = await ask(broker, server.address, RequestCode.QUERY_DATA_VERSION, IDENTITY, version)
                assert known.fields["changed"] == "false"
                put = PutKv(namespace="n", key="k", value="v")
                assert (await ask(broker, server.address, RequestCode.PUT_KV_CONFIG, put)).code == 0
                port = server.port
            async with name_server(tmp_path, port=port) as server:
                unknown = await ask(broker, server.address, RequestCode.QUERY_DATA_VERSION, IDENTITY, version)
                assert unknown.fields["changed"] == "true"
                assert await route(broker, server.address) is None
                kept = await ask(
                    broker, server.address, RequestCode.GET_KV_CONFIG, KvKey(namespace="n", key="k")
                )
                assert kept.fields["value"] == "v"
                await register(broker, server.address, "t", "u")
                assert await route(broker, server.address) is not None

    asyncio.run(story())


async def get(address: str, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(*parse_address(address))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split(" ")[1]), body


def test_the_address_server_hands_out_the_list_at_the_paths_clients_ask(tmp_path: Path) -> None:
    async def story() -> None:
        async with name_server(tmp_path, address_server="127.0.0.1:0") as server:
            assert server.address_server is not None
            for path in ("/rocketmq/nsaddr", "/rocketmq/nsaddr-unit1?nofix=1", "/rocketmq/nsaddr?a=b"):
                assert await get(server.address_server, path) == (200, server.address + "\n")
            for path in ("/", "/rocketmq", "/rocketmq/nsaddrs", "/rocketmq/nsaddr/x", "/../etc/passwd"):
                assert (await get(server.address_server, path))[0] == 404
        several = {"address_server": "127.0.0.1:0", "address_server_list": "10.0.0.1:9876;10.0.0.2:9876"}
        async with name_server(tmp_path, **several) as server:
            assert server.address_server is not None
            served = await get(server.address_server, "/rocketmq/nsaddr")
            assert served == (200, "10.0.0.1:9876;10.0.0.2:9876\n")

    asyncio.run(story())


def test_bad_registrations_are_refused_and_the_connection_and_others_live_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with name_server(tmp_path) as server, client() as attacker, client() as other:
            await register(other, server.address, "t", "u")
            attempts: list[tuple[dict[str, Any], str]] = [
                ({"body_crc32": 1}, "crc32 not match"),
                ({"broker_address": "nowhere"}, "nowhere"),
                ({"broker_address": "0.0.0.0:10911"}, "0.0.0.0:10911"),
                ({"broker_name": "../../evil"}, "../../evil"),
                ({"cluster_name": ""}, "cluster name"),
                ({"broker_id": -1}, "-1"),
            ]
            for changes, remark in attempts:
                reply = await register(attacker, server.address, "evil", "evil2", **changes)
                assert reply.code == ResponseCode.SYSTEM_ERROR, changes
                assert remark in (reply.remark or ""), changes
                assert "Traceback" not in (reply.remark or "")
            assert await route(attacker, server.address, "evil") is None
            assert await route(attacker, server.address) is not None

    asyncio.run(story())


def test_a_malformed_frame_costs_only_its_own_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with name_server(tmp_path) as server, client() as broker:
            await register(broker, server.address, "t", "u")
            for bytes_sent in (b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x08\0\0\0\x04nope"):
                reader, writer = await asyncio.open_connection(*parse_address(server.address))
                writer.write(bytes_sent)
                assert await asyncio.wait_for(reader.read(), 5) == b""
                writer.close()
            assert await route(broker, server.address) is not None

    asyncio.run(story())


def test_a_port_in_use_is_an_error_that_names_it(tmp_path: Path) -> None:
    async def story() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
                async with name_server(tmp_path, port=port):
                    pass

    asyncio.run(story())


def test_an_ipv6_name_server_is_reached_at_its_bracketed_address(tmp_path: Path) -> None:
    async def story() -> None:
        async with name_server(tmp_path, host="::1") as server, client() as broker:
            assert server.address == f"[::1]:{server.port}"
            assert (await register(broker, server.address, "t", "u", broker_address="[::1]:10911")).code == 0
            assert await route(broker, server.address) is not None

    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"THIS MACHINE HAS NO IPv6 LOOPBACK, so IPv6 is not tested here: {error}")
    asyncio.run(story())


def test_registering_5000_topics_keeps_others_waiting_less_than_100_ms(tmp_path: Path) -> None:
    async def story() -> list[float]:
        waits = []
        async with name_server(tmp_path) as server, client() as broker, client() as asker:
            await register(asker, server.address, "t", "u")
            table = TopicTable(
                data_version=DataVersion(counter=9),
                topic_config_table={f"topic-{n}": TopicConfig(topic_name=f"topic-{n}") for n in range(5000)},
            )
            header = RegisterBroker(
                broker_name="b", broker_id=0, broker_address="127.0.0.1:10921", cluster_name="c"
            )
            big = make_request(
                RequestCode.REGISTER_BROKER, header, RegisterBrokerBody(topic_table=table).encode()
            )
            registered = asyncio.ensure_future(broker.call(server.address, big, 5.0))
            while not registered.done():
                start = time.process_time()  # client and server share this process; others do not count
                assert await route(asker, server.address) is not None
                waits.append(time.process_time() - start)
            assert registered.result().code == ResponseCode.SUCCESS
            assert await route(asker, server.address, "topic-4999") is not None
        return waits

    # The best of three: this process has other tests' garbage, which is collected when it likes.
    assert min(max(asyncio.run(story())) for _ in range(3)) < 0.1


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from kourou.cli.main import main; main()", "nameserver", *arguments]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_told_to_end_drains_and_exits_0(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        command("--port", "0"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]

            async def story() -> None:
                async with client() as broker:
                    assert (await register(broker, address, "t", "u")).code == 0

            asyncio.run(story())
            process.send_signal(number)
            rest, errors = process.communicate(timeout=10)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert rest == ""
    assert "new broker: cluster c, name a, id 0" in errors, "logs go to stderr"
    assert "Traceback" not in errors


def test_the_originals_file_is_read_and_printed_with_one_notice(tmp_path: Path) -> None:
    (tmp_path / "namesrv.conf").write_text(
        "listenPort=9877\nserverWorkerThreads=8\nuseEpollNativeSelector=true\n"
    )
    done = subprocess.run(
        command("-c", "namesrv.conf", "-n", "ignored:1", "-p"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 0
    assert "listenPort=9877\n" in done.stdout
    (notice,) = done.stderr.splitlines()
    assert "serverWorkerThreads, useEpollNativeSelector" in notice


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("listenport=1", "did you mean listenPort?"),
        ("listenPort=x", "namesrv.conf:1: listenPort is 'x', but must be a whole number from 0 to 65535"),
        ("bindAddress=0.0.0.0", "--insecure"),
        ("kvConfigPath=namesrv.conf/kv.json", "cannot read namesrv.conf/kv.json: Not a directory; make it"),
        (None, "cannot read the configuration file namesrv.conf: No such file or directory"),
    ],
)
def test_a_bad_configuration_is_one_clear_line_and_exit_code_2(
    tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "namesrv.conf").write_text(content)
    done = subprocess.run(
        command("-c", "namesrv.conf"), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_settings_tell_the_real_port_when_any_was_asked_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as server, client() as asker:
            reply = await ask(asker, server.address, RequestCode.GET_NAMESRV_CONFIG)
            assert f"listenPort={server.port}\n" in reply.body.decode()

    asyncio.run(scenario())
