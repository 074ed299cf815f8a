"""A whole name server on a network in memory and a clock that only moves when told to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import msgspec
import pytest

from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.doors.simulated_network import SimulatedNetwork
from kourou.errors import ConfigError, Corrupt
from kourou.nameserver.config import NameServerConfig
from kourou.nameserver.server import NameServer
from kourou.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicRouteData, TopicTable
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.command import request as make_request
from kourou.protocol.headers import BrokerIdentity, GetRoute, MinBrokerIdChanged, PutKv, RegisterBroker
from kourou.remoting.client import Client
from kourou.remoting.config import ServerConfig
from kourou.remoting.server import Answer, Server
from kourou.remoting.tick import Tick

CLUSTER = "c"


class World:
    """Clock, disk and network of one test, and a client on it."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.network = SimulatedNetwork(self.clock)
        self.files = SimulatedFiles()
        self.client = self.new_client()
        self._running: list[Any] = []

    def new_client(self) -> Client:
        return Client(network=self.network, clock=self.clock, chance=Chance(1))

    async def name_server(self, **settings: Any) -> NameServer:
        server = NameServer(
            NameServerConfig(**{"kv_config_path": "kv.json", **settings}),
            network=self.network,
            clock=self.clock,
            files=self.files,
            chance=Chance(1),
        )
        await server.start()
        self._running.append(server)
        return server

    async def broker(self, port: int, heard: list[MinBrokerIdChanged]) -> Server:
        """Something that listens as a broker does, and hears of new lowest ids."""

        def hear(request: Command, answer: Answer) -> None:
            assert request.is_one_way
            heard.append(request.parse(MinBrokerIdChanged))

        server = Server(
            {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: hear},
            ServerConfig(port=port),
            network=self.network,
            clock=self.clock,
            tick=Tick(asyncio.get_running_loop()),
            name="broker",
        )
        await server.start()
        self._running.append(server)
        return server

    async def ask(
        self, server: NameServer, code: int, header: msgspec.Struct | None = None, body: bytes = b""
    ) -> Command:
        return await self.soon(self.client.call(server.address, make_request(code, header, body)))

    async def register(
        self,
        server: NameServer,
        *topics: str,
        client: Client | None = None,
        id: int = 0,
        port: int = 10911,
        **more: Any,
    ) -> Command:
        table = TopicTable(
            data_version=DataVersion(counter=1),
            topic_config_table={each: TopicConfig(topic_name=each) for each in topics},
        )
        header = RegisterBroker(
            broker_name="a", broker_id=id, broker_address=f"127.0.0.1:{port}", cluster_name=CLUSTER, **more
        )
        command = make_request(
            RequestCode.REGISTER_BROKER, header, RegisterBrokerBody(topic_table=table).encode()
        )
        return await self.soon((client or self.client).call(server.address, command))

    async def route(self, server: NameServer, topic: str) -> TopicRouteData | None:
        reply = await self.ask(server, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic=topic))
        assert reply.code in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
        return TopicRouteData.decode(reply.body) if reply.code == ResponseCode.SUCCESS else None

    async def soon(self, work: Awaitable[Any]) -> Any:
        """The result of `work`, for which time need not pass; or, if it must, lets it pass."""
        task = asyncio.ensure_future(work)
        for _ in range(100):
            await self.settle()
            if task.done():
                break
            self.clock.advance(0.1)
        return await task

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float, step: float = 1.0) -> None:
        passed = 0.0
        while passed < seconds:
            self.clock.advance(min(step, seconds - passed))
            passed += step
            await self.settle()

    async def close(self) -> None:
        for each in reversed(self._running):
            await self.soon(each.stop(0.0))
        await self.soon(self.client.close())


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[World]:
    made = World()
    try:
        yield made
    finally:
        await made.close()


def test_a_broker_registers_and_a_client_finds_it() -> None:
    async def story() -> None:
        async with world() as w:
            server = await w.name_server()
            assert server.address == "127.0.0.1:9876"
            assert (await w.register(server, "t", "u")).code == ResponseCode.SUCCESS
            route = await w.route(server, "t")
            assert route is not None
            assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}

    asyncio.run(story())


def test_a_broker_whose_connection_drops_is_gone_at_once() -> None:
    async def story() -> None:
        async with world() as w:
            server = await w.name_server()
            broker = w.new_client()
            await w.register(server, "t", "u", client=broker)
            assert await w.route(server, "t") is not None
            await w.soon(broker.close())
            assert await w.route(server, "t") is None

    asyncio.run(story())


def test_a_broker_that_falls_silent_is_gone_with_the_first_scan_after_its_time() -> None:
    async def story() -> None:
        async with world() as w:
            server = await w.name_server(scan_interval_ms=10_000)
            broker = w.new_client()
            await w.register(server, "t", "u", client=broker, heartbeat_timeout_ms=12_000)
            await w.pass_time(14.9)  # scans at 5 and 15 s: at 5 it is alive, at 15 too late
            assert await w.route(server, "t") is not None
            await w.pass_time(1)
            assert await w.route(server, "t") is None
            await w.soon(broker.close())

    asyncio.run(story())


def test_a_scan_interval_changed_remotely_acts_at_once() -> None:
    async def story() -> None:
        async with world() as w:
            server = await w.name_server(scan_interval_ms=600_000)
            await w.pass_time(6)  # the first scan, at 5 s, is over
            await w.register(server, "t", "u", heartbeat_timeout_ms=2_000)
            await w.ask(server, RequestCode.UPDATE_NAMESRV_CONFIG, body=b"scanNotActiveBrokerInterval=1000")
            await w.pass_time(4)
            assert await w.route(server, "t") is None

    asyncio.run(story())


def test_key_values_are_printed_after_a_minute_and_then_every_ten(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kourou.nameserver.kv")

    def printed() -> int:
        return caplog.text.count("n k = v")

    async def story() -> None:
        async with world() as w:
            server = await w.name_server()
            await w.ask(server, RequestCode.PUT_KV_CONFIG, PutKv(namespace="n", key="k", value="v"))
            w.clock.advance(59)
            assert printed() == 0
            w.clock.advance(1)
            assert printed() == 1
            w.clock.advance(599)
            assert printed() == 1
            w.clock.advance(1)
            assert printed() == 2

    asyncio.run(story())


def test_after_a_restart_versions_are_unknown_and_routes_come_back_with_the_next_registrations() -> None:
    async def story() -> None:
        async with world() as w:
            server = await w.name_server()
            await w.register(server, "t", "u")
            identity = BrokerIdentity(broker_name="a", broker_address="127.0.0.1:10911", cluster_name=CLUSTER)
            version = DataVersion(counter=1).encode()
            known = await w.ask(server, RequestCode.QUERY_DATA_VERSION, identity, version)
            assert known.fields["changed"] == "false"
            await w.soon(server.stop())
            server = await w.name_server()
            unknown = await w.ask(server, RequestCode.QUERY_DATA_VERSION, identity, version)
            assert unknown.fields["changed"] == "true"
            assert await w.route(server, "t") is None
            await w.register(server, "t", "u")
            assert await w.route(server, "t") is not None

    asyncio.run(story())


def test_each_of_two_name_servers_serves_alone_and_a_cut_one_heals_with_the_next_registration() -> None:
    async def story() -> None:
        async with world() as w:
            one = await w.name_server(port=9876)
            two = await w.name_server(port=9877, kv_config_path="kv2.json")
            broker = w.new_client()

            async def register_with(*servers: NameServer) -> None:
                for each in servers:
                    await w.register(each, "t", "u", client=broker, heartbeat_timeout_ms=60_000)

            await register_with(one, two)
            w.network.partition("127.0.0.1", 9877)
            for _ in range(3):
                await w.pass_time(30)
                await register_with(one)
                assert await w.route(one, "t") is not None
            w.network.heal("127.0.0.1", 9877)
            assert await w.route(two, "t") is None, "it heard nothing for 90 s"
            await register_with(one, two)
            assert await w.route(two, "t") == await w.route(one, "t")
            await w.soon(broker.close())

    asyncio.run(story())


def test_members_are_told_of_a_new_lowest_id_over_the_network() -> None:
    async def story() -> None:
        async with world() as w:
            server = await w.name_server(notify_min_broker_id_changed=True)
            heard: list[MinBrokerIdChanged] = []
            await w.broker(10912, heard)
            master = w.new_client()
            await w.register(server, "t", "u", client=master, enable_acting_master=True)
            await w.register(server, id=1, port=10912, enable_acting_master=True)
            await w.register(server, id=2, port=10913, enable_acting_master=True)  # nobody listens there
            await w.soon(master.close())
            await w.settle()
            assert [(each.min_broker_id, each.offline_broker_address) for each in heard] == [
                (1, "127.0.0.1:10911")
            ]

    asyncio.run(story())


def production_story(**where: Any) -> None:
    async def story() -> None:
        async with world() as w:
            production = await w.name_server(
                port=9000, address_server="127.0.0.1:8080", kv_config_path="production.json"
            )
            await w.register(production, "only-there", "there-too")
            test = await w.name_server(cluster_test=True, **where)
            await w.register(test, "here", "and-here", port=10921)
            await w.pass_time(1)
            there = await w.route(test, "only-there")
            assert there is not None
            assert there.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}
            here = await w.route(test, "here")
            assert here is not None
            assert here.broker_datas[0].broker_addrs == {0: "127.0.0.1:10921"}
            assert await w.route(test, "nowhere") is None
            assert await w.route(production, "here") is None
            w.network.partition("127.0.0.1", 9000)
            assert await w.route(test, "only-there") is None, "answered, though production is silent"

    asyncio.run(story())


def test_in_a_test_cluster_unknown_topics_are_asked_of_production() -> None:
    production_story(product_env_address="127.0.0.1:9000")


def test_where_production_is_can_come_from_an_address_server() -> None:
    production_story(product_env_address_server="127.0.0.1:8080", product_env_name="center")


def test_a_port_in_use_is_an_error_that_names_it_and_leaves_nothing_behind() -> None:
    async def story() -> None:
        async with world() as w:
            await w.name_server()
            with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9876"):
                await w.name_server()
            with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9876"):
                await w.name_server(port=9877, address_server="127.0.0.1:9876")
            again = await w.name_server(port=9877)
            assert again.address == "127.0.0.1:9877"

    asyncio.run(story())


def test_a_damaged_file_stops_the_start() -> None:
    async def story() -> None:
        async with world() as w:
            w.files.write_atomically("kv.json", b"{")
            with pytest.raises(Corrupt, match=r"kv\.json"):
                await w.name_server()

    asyncio.run(story())


def test_a_stopped_one_leaves_no_timer_that_acts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kourou.nameserver")

    async def story() -> None:
        async with world() as w:
            server = await w.name_server()
            await w.soon(server.stop())
            await w.soon(server.stop())
            caplog.clear()
            await w.pass_time(700, step=100)
            assert caplog.text == ""

    asyncio.run(story())
