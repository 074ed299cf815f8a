"""Telling name servers that we exist, and what we have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kourou.nameserver.address_page import AddressPage
from kourou.protocol.bodies import DataVersion, KVTable, RegisterBrokerBody, register_crc
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import BrokerIdentity, DataVersionReply, RegisterBroker
from kourou.protocol.record import encode_batch
from kourou.remoting.answer import Answer
from kourou.remoting.server import Server
from tests.unit.broker.broker_world import BrokerWorld, send

REGISTER, UNREGISTER, QUERY_VERSION = 103, 104, 322


class Registry:
    """A name server that remembers what it was told, and answers as the test wants."""

    def __init__(self, world: BrokerWorld, port: int = 9876) -> None:
        self.address = f"127.0.0.1:{port}"
        self.requests: list[Command] = []
        self.is_silent = False
        self.held: list[Callable[[], None]] | None = None
        self.knows_version = False
        self.ordered: dict[str, str] | None = None
        self.server: Server = world.listener(
            {
                RequestCode.REGISTER_BROKER: self._register,
                RequestCode.UNREGISTER_BROKER: self._unregister,
                RequestCode.QUERY_DATA_VERSION: self._query_version,
            },
            port,
        )

    def _register(self, request: Command, answer: Answer) -> None:
        self.requests.append(request)
        body = b"" if self.ordered is None else KVTable(table=self.ordered).encode()
        if self.held is not None:
            self.held.append(lambda: answer(request.reply(body=body)))
        elif not self.is_silent:
            answer(request.reply(body=body))

    def _unregister(self, request: Command, answer: Answer) -> None:
        self.requests.append(request)
        if not self.is_silent:
            answer(request.reply())

    def _query_version(self, request: Command, answer: Answer) -> None:
        self.requests.append(request)
        answer(request.reply(DataVersionReply(changed=not self.knows_version)))

    def heard(self) -> list[int]:
        """The codes of what came since it was last asked."""
        heard, self.requests = self.requests, []
        return [each.code for each in heard]


@pytest.fixture
def registry(world: BrokerWorld) -> Registry:
    return Registry(world)


def registered(command: Command) -> tuple[RegisterBroker, RegisterBrokerBody]:
    header = command.parse(RegisterBroker)
    return header, RegisterBrokerBody.decode_from(command.body, command.version, bool(header.compressed))


# ---------------------------------------------------------------------------------------------- what is told


@pytest.mark.parametrize("compressed", [False, True])
def test_a_registration_says_who_and_where_we_are_and_all_topics(
    world: BrokerWorld, registry: Registry, compressed: bool
) -> None:
    broker = world.start(registry.address, cluster_name="main", register_compressed=compressed)
    header, body = registered(registry.requests[0])
    assert (header.broker_name, header.cluster_name, header.broker_id) == ("broker-a", "main", 0)
    assert header.broker_address == broker.address == "127.0.0.1:10911"
    assert header.compressed is compressed
    assert header.body_crc32 == register_crc(registry.requests[0].body)
    assert registry.requests[0].body.startswith(b"{") is not compressed
    told = {
        name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm)
        for name, topic in body.topic_table.topic_config_table.items()
    }
    assert told == {
        name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm)
        for name, topic in broker.topics.all.items()
    }
    assert body.topic_table.data_version == broker.topics.data_version


def test_a_one_way_registration_asks_for_no_answer(world: BrokerWorld, registry: Registry) -> None:
    world.start(registry.address, register_one_way=True)
    assert [each.is_one_way for each in registry.requests] == [True]
    reply = world.connect().create_topic("orders")
    assert reply.code == 0
    assert "orders" in registered(registry.requests[-1])[1].topic_table.topic_config_table


# ----------------------------------------------------------------------------------------------- when, whom


def test_it_registers_at_start_after_ten_seconds_and_then_every_thirty(
    world: BrokerWorld, registry: Registry
) -> None:
    world.start(registry.address)
    assert registry.heard() == [REGISTER]
    world.pass_time(9)
    assert registry.heard() == []
    world.pass_time(2)
    assert registry.heard() == [REGISTER]
    world.pass_time(28)
    assert registry.heard() == []
    world.pass_time(62)
    assert registry.heard() == [REGISTER] * 3


def test_a_started_broker_is_known_to_its_name_servers_unless_they_keep_silent(world: BrokerWorld) -> None:
    name_server = world.name_server()
    address = name_server.address
    world.network.delay_seconds = 0.2
    world.start(address)
    assert name_server.routes.broker_count == 1
    world.network.delay_seconds = 0.0
    world.stop()
    silent = Registry(world, 9877)
    silent.is_silent = True
    began = world.clock.monotonic()
    world.start(address, silent.address)
    assert 1.5 < world.clock.monotonic() - began < 2.5


def test_the_interval_can_be_set(world: BrokerWorld, registry: Registry) -> None:
    world.start(registry.address, register_interval_ms=10_000)
    world.pass_time(61)
    assert registry.heard() == [REGISTER] * 7


def test_a_changed_topic_is_told_at_once_with_a_newer_version(world: BrokerWorld, registry: Registry) -> None:
    world.start(registry.address)
    before = registered(registry.requests[0])[1].topic_table.data_version
    registry.heard()
    world.make_topic("orders")
    world.settle()
    table = registered(registry.requests[0])[1].topic_table
    assert "orders" in table.topic_config_table
    assert table.data_version.counter > before.counter


def test_who_sends_to_a_new_topic_is_answered_when_name_servers_know_of_it(
    world: BrokerWorld, registry: Registry
) -> None:
    world.start(registry.address)
    registry.heard()
    registry.held = []
    first = world.connect().begin(send("orders"))
    several = encode_batch([(0, b"one", b""), (0, b"two", b"")])
    batch = world.connect().begin(send("bills", several, code=RequestCode.SEND_BATCH_MESSAGE))
    assert world.connect().send("orders").code == 0  # no news to anybody
    assert registry.heard() == [REGISTER] * 2
    assert not first.is_answered
    assert not batch.is_answered
    for told in registry.held:
        told()
    world.settle()
    assert (first.reply.code, batch.reply.code) == (0, 0)


def test_name_servers_that_keep_silent_hold_a_send_to_a_new_topic_up_for_a_second(
    world: BrokerWorld, registry: Registry
) -> None:
    world.start(registry.address)
    registry.is_silent = True
    first = world.connect().begin(send("orders"))
    world.pass_time(0.9, step=0.1)
    assert not first.is_answered
    world.pass_time(0.2, step=0.1)
    assert first.reply.code == 0
    world.pass_time(30)  # it is known to be silent now
    assert world.connect().send("bills").code == 0


def test_all_name_servers_are_told_side_by_side(world: BrokerWorld) -> None:
    registries = [Registry(world, port) for port in (9876, 9877, 9878)]
    for each in registries:
        each.is_silent = True
    world.start(*[each.address for each in registries])
    assert [each.heard() for each in registries] == [[REGISTER]] * 3


def test_a_dead_name_server_holds_nobody_up(
    world: BrokerWorld, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    world.network.partition("127.0.0.1", 9999)
    world.start("127.0.0.1:9998", "127.0.0.1:9999", registry.address)
    assert registry.heard() == [REGISTER]
    assert world.connect().send("orders").code == 0
    assert registry.heard() == [REGISTER]
    world.pass_time(12)
    assert registry.heard() == [REGISTER]
    assert "not registered at name server 127.0.0.1:9998" in caplog.text


def test_the_log_names_a_silent_name_server_once_and_its_return(
    world: BrokerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kourou.broker")
    world.start("127.0.0.1:9876")
    world.pass_time(100)
    assert caplog.text.count("not registered at name server 127.0.0.1:9876") == 1
    registry = Registry(world)
    world.pass_time(5)
    assert REGISTER in registry.heard(), "a name server that is back knows us soon"
    world.pass_time(60)
    assert registry.heard() == [REGISTER] * 2
    assert caplog.text.count("registered at name server 127.0.0.1:9876 again") == 1


def test_a_refused_registration_is_logged_with_the_reason(
    world: BrokerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: Command, answer: Answer) -> None:
        answer(request.reply(code=1, remark="crc32 not match"))

    world.listener({RequestCode.REGISTER_BROKER: refuse})
    world.start("127.0.0.1:9876")
    assert "SYSTEM_ERROR (1): crc32 not match" in caplog.text


# ----------------------------------------------------------------------------------- only what is not known


def test_with_force_register_off_a_name_server_is_asked_first_and_skipped_when_it_knows(
    world: BrokerWorld, registry: Registry
) -> None:
    broker = world.start(registry.address, register_always=False)
    assert registry.heard() == [REGISTER]
    registry.knows_version = True
    world.pass_time(11)
    assert [each.code for each in registry.requests] == [QUERY_VERSION]
    identity = registry.requests[0].parse(BrokerIdentity)
    assert (identity.broker_name, identity.broker_address) == ("broker-a", broker.address)
    assert DataVersion.decode(registry.requests[0].body) == broker.topics.data_version
    registry.heard()
    registry.knows_version = False  # it was restarted, say
    world.pass_time(30)
    assert registry.heard() == [QUERY_VERSION, REGISTER]


def test_a_name_server_that_cannot_say_what_it_knows_is_told_everything(world: BrokerWorld) -> None:
    told: list[int] = []

    def register(request: Command, answer: Answer) -> None:
        told.append(request.code)
        answer(request.reply())

    def babble(request: Command, answer: Answer) -> None:
        answer(request.reply())  # a success without the field that matters

    world.listener({RequestCode.REGISTER_BROKER: register, RequestCode.QUERY_DATA_VERSION: babble})
    world.start("127.0.0.1:9876", register_always=False)
    world.pass_time(11)
    assert told == [REGISTER] * 2


def test_a_restarted_name_server_learns_everything_with_the_next_turn(world: BrokerWorld) -> None:
    name_server = world.name_server()
    world.start(name_server.address, register_always=False)
    world.make_topic("orders")
    world.pass_time(15)
    world.run(name_server.stop())
    restarted = world.name_server()
    assert restarted.routes.topics() == []
    world.pass_time(31)
    assert "orders" in restarted.routes.topics()


# ------------------------------------------------------------------------------------------------- the order


def test_the_reply_of_a_registration_sets_and_clears_the_order_of_topics(
    world: BrokerWorld, registry: Registry
) -> None:
    registry.ordered = {"orders": "broker-a:4"}
    broker = world.start(registry.address)
    world.make_topic("orders")
    world.make_topic("others")
    world.settle()
    assert (broker.topics.named("orders").order, broker.topics.named("others").order) == (True, False)
    registry.heard()
    world.pass_time(11)
    table = registered(registry.requests[-1])[1].topic_table.topic_config_table
    assert table["orders"].order
    registry.ordered = {}
    world.pass_time(31)
    assert not broker.topics.named("orders").order


def test_a_reply_without_a_body_leaves_the_order_alone(world: BrokerWorld, registry: Registry) -> None:
    broker = world.start(registry.address)
    world.make_topic("orders", order=True)
    world.pass_time(12)
    assert broker.topics.named("orders").order


# -------------------------------------------------------------------------------------------------- goodbye


def test_stopping_says_goodbye_to_every_name_server(world: BrokerWorld) -> None:
    one, two = Registry(world, 9876), Registry(world, 9877)
    world.start(one.address, two.address)
    one.heard(), two.heard()
    world.stop()
    for registry in (one, two):
        assert [each.code for each in registry.requests] == [UNREGISTER]
        assert registry.requests[0].parse(BrokerIdentity).broker_name == "broker-a"


def test_stopping_does_not_wait_for_each_silent_name_server_in_turn(world: BrokerWorld) -> None:
    registries = [Registry(world, port) for port in range(9876, 9881)]
    world.start(*[each.address for each in registries])
    for each in registries:
        each.is_silent = True
    began = world.clock.monotonic()
    world.stop()
    assert world.clock.monotonic() - began < 2.5


def test_after_the_goodbye_a_changed_topic_does_not_bring_the_broker_back(
    world: BrokerWorld, registry: Registry
) -> None:
    broker = world.start(registry.address)
    registry.heard()
    topics = broker.topics
    world.stop()
    topics.ensure("late", 1, 6)
    world.settle()
    assert registry.heard() == [UNREGISTER]


def test_a_stopped_broker_is_gone_from_a_real_name_server(world: BrokerWorld) -> None:
    name_server = world.name_server()
    world.start(name_server.address)
    assert name_server.routes.broker_count == 1
    world.stop()
    assert name_server.routes.broker_count == 0


# -------------------------------------------------------------------- name servers by way of a list (HTTP)


class ListServer:
    """An address server whose list a test can change, take away and spoil."""

    def __init__(self, world: BrokerWorld, text: str) -> None:
        self._world = world
        self.show(text)

    def show(self, text: str) -> None:
        self._page = AddressPage("127.0.0.1:8080", text, network=self._world.network, clock=self._world.clock)
        self._world.run(self._page.start())

    def hide(self) -> None:
        self._world.run(self._page.stop())

    def change(self, text: str) -> None:
        self.hide()
        self.show(text)


def start_with_list(world: BrokerWorld, **settings: Any) -> None:
    world.start(ask_address_server=True, address_server="127.0.0.1:8080", **settings)


def test_the_list_is_asked_for_after_ten_seconds_and_then_every_two_minutes(world: BrokerWorld) -> None:
    one, two = Registry(world, 9876), Registry(world, 9877)
    lists = ListServer(world, one.address)
    start_with_list(world)
    world.pass_time(9)
    assert one.heard() == []
    world.pass_time(1.5)
    assert one.heard() == [REGISTER]
    lists.change(f"{one.address};{two.address}")
    world.pass_time(118)
    assert two.heard() == []
    world.pass_time(3)
    assert two.heard() == [REGISTER]
    assert world.broker.registration.name_servers == (one.address, two.address)


@pytest.mark.parametrize("spoilt", ["", "nowhere", "a:b:c;;;", "127.0.0.1:99999", "<html>oops</html>"])
def test_the_last_good_list_is_kept(world: BrokerWorld, registry: Registry, spoilt: str) -> None:
    lists = ListServer(world, registry.address)
    start_with_list(world)
    world.pass_time(11)
    lists.change(spoilt)
    world.pass_time(125, step=1)
    assert world.broker.registration.name_servers == (registry.address,)
    lists.hide()
    registry.heard()
    world.pass_time(125, step=1)
    assert world.broker.registration.name_servers == (registry.address,)
    assert REGISTER in registry.heard()


def test_name_servers_that_are_configured_make_the_list_unnecessary(world: BrokerWorld) -> None:
    one, two = Registry(world, 9876), Registry(world, 9877)
    ListServer(world, two.address)
    start_with_list(world, name_servers=(one.address,))
    world.pass_time(15)
    assert two.heard() == []


def test_a_broker_without_any_name_server_serves_all_the_same(world: BrokerWorld) -> None:
    world.start()
    assert world.connect().send("orders").code == 0
    assert msgspec.json.decode(world.files.read("store/config/topics.json"))
