from __future__ import annotations

import pytest

from kourou.client.address_map import AddressMap
from kourou.client.routes import NameServers, Route, Routes
from kourou.client.steps import Call, Pause, Wait
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.errors import Busy, Denied, NotFound, ProtocolError, Unreachable
from kourou.protocol.bodies import QUEUES_MAX, MessageQueue, TopicRouteData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import GetRoute, TopicNamed
from tests.unit.client.conversation import TWO_BROKERS, asked, play, reply, route_of

UNKNOWN = reply(code=ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info in name server")


class World:
    """Name servers with a table each; a table of None is a name server that is down."""

    def __init__(self, tables: dict[str, dict[str, object] | None]) -> None:
        self.tables = tables
        self.calls: list[Call] = []

    def __call__(self, step: Call) -> Command:
        self.calls.append(step)
        table = self.tables[step.address]
        if table is None:
            raise Unreachable("connection refused")
        topic = step.command.parse(GetRoute).topic
        known = table.get(topic)
        return UNKNOWN if known is None else reply(body=known.encode())  # type: ignore[attr-defined]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


def servers(clock: SimulatedClock, *addresses: str) -> NameServers:
    return NameServers(addresses, Chance(7), clock)


def test_a_name_server_is_kept_for_as_long_as_it_answers(clock: SimulatedClock) -> None:
    name_servers = servers(clock, "n1:1", "n2:1", "n3:1")
    world = World({address: {"t": route_of(TWO_BROKERS)} for address in name_servers.addresses})
    for _ in range(3):
        play(Routes(name_servers, clock).ask("t", 3.0), world)
    assert {call.address for call in world.calls} == {name_servers.addresses[0]}


def test_when_a_name_server_is_down_the_next_one_is_asked_and_kept(clock: SimulatedClock) -> None:
    name_servers = servers(clock, "n1:1", "n2:1", "n3:1")
    first, second, _ = name_servers.addresses
    world = World({address: {"t": route_of(TWO_BROKERS)} for address in name_servers.addresses})
    world.tables[first] = None
    routes = Routes(name_servers, clock)
    play(routes.ask("t", 3.0), world)
    play(routes.ask("t", 3.0), world)
    assert [call.address for call in world.calls] == [first, second, second]


def test_one_that_is_down_is_not_asked_first_again_when_the_others_know_no_such_topic(
    clock: SimulatedClock,
) -> None:
    name_servers = servers(clock, "n1:1", "n2:1", "n3:1")
    first, second, third = name_servers.addresses
    world = World({first: None, second: {}, third: {}})
    for _ in range(2):
        with pytest.raises(NotFound):
            play(Routes(name_servers, clock).to_read("t", 3.0), world)
    assert [call.address for call in world.calls] == [first, second, third, second, third, first]


@pytest.mark.parametrize(
    "answer",
    [reply(code=ResponseCode.SYSTEM_BUSY, remark="later"), reply(body=b"<html>")],
    ids=["busy", "nonsense"],
)
def test_who_says_nothing_useful_is_not_asked_first_again(clock: SimulatedClock, answer: Command) -> None:
    name_servers = servers(clock, "n1:1", "n2:1")
    useless, good = name_servers.addresses
    routes = Routes(name_servers, clock)
    with pytest.raises((Busy, ProtocolError)):
        play(routes.to_read("t", 3.0), lambda step: answer)
    world = World({useless: {}, good: {"t": route_of(TWO_BROKERS)}})
    play(routes.to_read("t", 3.0), world)
    assert [call.address for call in world.calls] == [good]


def test_each_name_server_gets_an_even_share_of_the_time_that_is_left(clock: SimulatedClock) -> None:
    def slow(step: Call) -> Command:
        clock.advance(step.timeout)
        raise Unreachable("no answer")

    operation = servers(clock, "n1:1", "n2:1", "n3:1").ask(request(RequestCode.GET_BROKER_CLUSTER_INFO), 3.0)
    with pytest.raises(Unreachable, match=r"no name server answers .*n1:1.*is one running there") as failed:
        play(operation, slow)
    assert clock.monotonic() == pytest.approx(3.0)
    assert "n2:1" in str(failed.value)
    assert "n3:1" in str(failed.value)


def test_that_a_topic_does_not_exist_is_believed_only_after_all_were_asked(clock: SimulatedClock) -> None:
    name_servers = servers(clock, "n1:1", "n2:1", "n3:1")
    first, second, third = name_servers.addresses
    world = World({first: {}, second: None, third: {"t": route_of(TWO_BROKERS)}})
    route, _ = play(Routes(name_servers, clock).to_read("t", 3.0), world)
    assert len(route.read_queues) == 8
    assert [call.address for call in world.calls] == [first, second, third]


def test_an_unknown_topic_is_an_error_that_says_how_to_create_it(clock: SimulatedClock) -> None:
    name_servers = servers(clock, "n1:1", "n2:1")
    world = World({"n1:1": {}, "n2:1": {}})
    with pytest.raises(NotFound, match=r"no topic 'orders' at .*kourou topic create orders") as refused:
        play(Routes(name_servers, clock).to_read("orders", 3.0), world)
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert refused.value.remark == "No topic route info in name server"
    assert len(world.calls) == 2


def test_a_topic_that_is_not_there_is_sent_through_the_default_topic_s_brokers(clock: SimulatedClock) -> None:
    world = World({"n1:1": {"TBW102": route_of(TWO_BROKERS, read=8, write=8, perm=7)}})
    route, _ = play(Routes(servers(clock, "n1:1"), clock).to_publish("new", 3.0), world)
    assert [(queue.topic, queue.broker_name, queue.queue_id) for queue in route.write_queues] == [
        ("new", broker, number) for broker in ("broker-a", "broker-b") for number in range(4)
    ]


def test_without_a_default_topic_the_error_is_about_the_topic_that_was_asked_for(
    clock: SimulatedClock,
) -> None:
    with pytest.raises(NotFound, match="'orders'"):
        play(Routes(servers(clock, "n1:1"), clock).to_publish("orders", 3.0), World({"n1:1": {}}))


def test_a_route_is_asked_for_again_after_30_seconds(clock: SimulatedClock) -> None:
    world = World({"n1:1": {"t": route_of(TWO_BROKERS)}})
    routes = Routes(servers(clock, "n1:1"), clock)
    for seconds in (0.0, 29.0, 1.5):
        clock.advance(seconds)
        play(routes.to_read("t", clock.monotonic() + 3), world)
    assert len(world.calls) == 2


def test_a_doubted_route_is_asked_for_at_once(clock: SimulatedClock) -> None:
    world = World({"n1:1": {"t": route_of(TWO_BROKERS)}})
    routes = Routes(servers(clock, "n1:1"), clock)
    play(routes.to_publish("t", 3.0), world)
    routes.doubt("t")
    play(routes.to_publish("t", 3.0), world)
    assert len(world.calls) == 2


@pytest.mark.parametrize("later", [{"n1:1": None}, {"n1:1": {}}], ids=["down", "forgetful"])
def test_a_known_route_stays_in_use_when_no_name_server_can_tell(
    clock: SimulatedClock, later: dict[str, dict[str, object] | None]
) -> None:
    world = World({"n1:1": {"t": route_of(TWO_BROKERS)}})
    routes = Routes(servers(clock, "n1:1"), clock)
    play(routes.to_publish("t", 3.0), world)
    world.tables = later
    routes.doubt("t")
    for _ in range(2):  # the second time it does not even ask
        route, _ = play(routes.to_publish("t", clock.monotonic() + 3), world)
        assert len(route.write_queues) == 8
    assert len(world.calls) == 2
    clock.advance(3.1)
    play(routes.to_publish("t", clock.monotonic() + 3), world)
    assert len(world.calls) == 3


@pytest.mark.parametrize(
    "answer",
    [reply(code=ResponseCode.SYSTEM_BUSY, remark="later"), reply(body=b"<html>")],
    ids=["busy", "nonsense"],
)
def test_a_known_route_stays_in_use_whatever_a_name_server_says_instead_of_one(
    clock: SimulatedClock, answer: Command, caplog: pytest.LogCaptureFixture
) -> None:
    routes = Routes(servers(clock, "n1:1"), clock)
    play(routes.to_publish("t", 3.0), World({"n1:1": {"t": route_of(TWO_BROKERS)}}))
    routes.doubt("t")
    route, _ = play(routes.to_publish("t", 3.0), lambda step: answer)
    assert len(route.write_queues) == 8
    assert "the route of 't' stays as it was" in caplog.text


def test_only_one_asks_for_a_route_again_and_the_others_go_on_with_the_old_one(clock: SimulatedClock) -> None:
    world = World({"n1:1": {"t": route_of(TWO_BROKERS)}})
    routes = Routes(servers(clock, "n1:1"), clock)
    play(routes.to_publish("t", 3.0), world)
    routes.doubt("t")
    asking = routes.to_publish("t", 3.0)
    next(asking)  # its question is on the way
    _, steps = play(routes.to_publish("t", 3.0), world)
    assert steps == []


def test_queues_are_sorted_by_broker_and_those_without_a_master_cannot_be_written_to() -> None:
    data = route_of({"b": {0: "b:1"}, "a": {1: "a1:1"}}, read=2, write=1)
    route = Route("t", data)
    assert route.write_queues == (MessageQueue(topic="t", broker_name="b", queue_id=0),)
    assert [(queue.broker_name, queue.queue_id) for queue in route.read_queues] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]


@pytest.mark.parametrize(("perm", "writable", "readable"), [(6, 8, 8), (4, 0, 8), (2, 8, 0)])
def test_permissions_decide_which_queues_there_are(perm: int, writable: int, readable: int) -> None:
    route = Route("t", route_of(TWO_BROKERS, perm=perm))
    assert (len(route.write_queues), len(route.read_queues)) == (writable, readable)


def test_a_topic_that_nobody_may_write_to_is_denied(clock: SimulatedClock) -> None:
    world = World({"n1:1": {"t": route_of(TWO_BROKERS, perm=4)}})
    with pytest.raises(Denied, match="topic 't' may not be written to: its permission is 4") as denial:
        play(Routes(servers(clock, "n1:1"), clock).to_publish("t", 3.0), world)
    assert denial.value.code == ResponseCode.NO_PERMISSION


def test_a_topic_without_a_master_has_nowhere_to_write_to(clock: SimulatedClock) -> None:
    world = World({"n1:1": {"t": route_of({"a": {1: "a1:1"}})}})

    def or_time_passes(step: Call | Pause) -> Command | None:
        if isinstance(step, Pause):
            return clock.advance(step.seconds)
        return world(step)

    with pytest.raises(NotFound, match="no queue that can be written to: its brokers have no master"):
        play(Routes(servers(clock, "n1:1"), clock).to_publish("t", 3.0), or_time_passes)
    assert clock.monotonic() > 2.5, "a replica may become the master meanwhile"


def test_a_replica_that_becomes_the_master_is_found_within_the_same_send(clock: SimulatedClock) -> None:
    world = World({"n1:1": {"t": route_of({"a": {1: "a1:1", 2: "a2:1"}})}})

    def or_it_is_elected(step: Call | Pause) -> Command | None:
        if isinstance(step, Pause):
            clock.advance(step.seconds)
            if clock.monotonic() > 1.0:
                world.tables["n1:1"] = {"t": route_of({"a": {0: "a2:1", 1: "a1:1"}})}
            return None
        return world(step)

    routes = Routes(servers(clock, "n1:1"), clock)
    route, _ = play(routes.to_publish("t", 3.0), or_it_is_elected)
    assert route.master("a") == "a2:1"
    assert clock.monotonic() < 1.3


@pytest.mark.parametrize("perm", [6, 4])
def test_a_topic_that_some_broker_lets_read_is_readable(perm: int) -> None:
    Route("t", route_of(TWO_BROKERS, perm=perm)).check_readable()
    Route("t", TopicRouteData()).check_readable()  # nobody forbids it


def test_one_reads_from_the_suggested_broker_the_master_or_whoever_is_there() -> None:
    route = Route("t", route_of({"a": {0: "a0:1", 1: "a1:1"}, "b": {2: "b2:1", 1: "b1:1"}}))
    assert route.reader("a") == "a0:1"
    assert route.reader("a", 1) == "a1:1"
    assert route.reader("a", 5) == "a0:1"
    assert route.reader("b") == "b1:1"
    assert route.master("a") == "a0:1"
    with pytest.raises(NotFound, match="'b' has no master for topic 't'; its masters are: a"):
        route.master("b")


def test_routes_are_asked_for_as_standard_json(clock: SimulatedClock) -> None:
    world = World({"n1:1": {"t": route_of(TWO_BROKERS)}})
    _, (step,) = play(Routes(servers(clock, "n1:1"), clock).ask("t", 3.0), world)
    assert asked(step) == ("n1:1", RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert step.command.fields == {"topic": "t", "acceptStandardJsonOnly": "true"}


# ------------------------------------------------------------------------------ one question at a time


def test_who_wants_a_route_that_is_being_asked_for_waits_for_that_answer(clock: SimulatedClock) -> None:
    routes = Routes(servers(clock, "n:1"), clock)
    first, second, third = (routes.to_publish("t", 3.0) for _ in range(3))
    assert isinstance(next(first), Call)
    waits = [next(second), next(third)]
    assert all(isinstance(wait, Wait) and not wait.from_broker for wait in waits)
    with pytest.raises(StopIteration) as done:
        first.send(reply(body=route_of(TWO_BROKERS).encode()))
    for operation, wait in zip((second, third), waits, strict=True):
        assert isinstance(wait, Wait)
        with pytest.raises(StopIteration) as also_done:
            operation.send(wait.arrival.value)
        assert also_done.value.value is done.value.value


def test_of_many_who_send_to_a_new_topic_one_asks_for_the_default_topic_s_brokers(
    clock: SimulatedClock,
) -> None:
    routes = Routes(servers(clock, "n:1"), clock)
    first, second = routes.to_publish("new", 3.0), routes.to_publish("new", 3.0)
    next(first)
    wait = next(second)
    assert isinstance(first.send(UNKNOWN), Call)
    assert isinstance(wait, Wait)
    wait = second.send(wait.arrival.value)  # for the default topic now, and not for an answer of its own
    assert isinstance(wait, Wait)
    with pytest.raises(StopIteration) as done:
        first.send(reply(body=route_of(TWO_BROKERS).encode()))
    with pytest.raises(StopIteration) as also_done:
        second.send(wait.arrival.value)
    assert also_done.value.value is done.value.value


def test_who_waited_for_a_question_that_failed_gets_its_error(clock: SimulatedClock) -> None:
    routes = Routes(servers(clock, "n:1"), clock)
    first, second = routes.to_read("t", 3.0), routes.to_read("t", 3.0)
    next(first)
    wait = next(second)
    assert isinstance(wait, Wait)
    with pytest.raises(Unreachable, match="no name server answers"):
        first.throw(Unreachable("refused"))
    with pytest.raises(Unreachable, match="no name server answers"):
        second.send(wait.arrival.value)
    play(routes.to_read("t", 3.0), World({"n:1": {"t": route_of(TWO_BROKERS)}}))


def test_a_question_that_is_given_up_is_asked_by_who_waited_for_it(clock: SimulatedClock) -> None:
    routes = Routes(servers(clock, "n:1"), clock)
    first, second, third = (routes.to_read("t", 3.0) for _ in range(3))
    next(first)
    waits = [next(second), next(third)]
    first.close()  # its task was cancelled
    assert isinstance(waits[0], Wait)
    assert isinstance(second.send(waits[0].arrival.value), Call)
    assert isinstance(waits[1], Wait)
    wait = third.send(waits[1].arrival.value)  # for the second one now
    with pytest.raises(StopIteration) as done:
        second.send(reply(body=route_of(TWO_BROKERS).encode()))
    assert isinstance(wait, Wait)
    assert wait.arrival.value is done.value.value


# ------------------------------------------------------------------------------------- queues of an order


def test_a_key_s_queues_stay_while_a_broker_is_away(clock: SimulatedClock) -> None:
    routes = Routes(servers(clock, "n:1"), clock)
    world = World({"n:1": {"t": route_of(TWO_BROKERS)}})
    both, _ = play(routes.to_publish("t", 3.0), world)
    assert both.ordered_queues == both.write_queues
    assert world.tables["n:1"] is not None
    world.tables["n:1"]["t"] = route_of({"broker-b": {0: "b:10911"}}, write=6)
    routes.doubt("t")
    one, _ = play(routes.to_publish("t", 3.0), world)
    assert {queue.broker_name for queue in one.write_queues} == {"broker-b"}
    count = [
        sum(queue.broker_name == name for queue in one.ordered_queues) for name in ("broker-a", "broker-b")
    ]
    assert count == [4, 6]
    assert list(one.ordered_queues) == sorted(one.ordered_queues)


def test_an_administrator_s_order_configuration_is_what_is_written_to() -> None:
    data = route_of(TWO_BROKERS)
    data.order_topic_conf = "broker-b:2;broker-a:1;nonsense"
    route = Route("t", data)
    assert [(queue.broker_name, queue.queue_id) for queue in route.write_queues] == [
        ("broker-b", 0),
        ("broker-b", 1),
        ("broker-a", 0),
    ]


# --------------------------------------------------------------------------------- brokers behind a wall


def test_addresses_are_mapped_where_a_route_is_made(clock: SimulatedClock) -> None:
    routes = Routes(servers(clock, "n:1"), clock, address_map=AddressMap({"a:10911": "localhost:7"}))
    route, _ = play(routes.to_publish("t", 3.0), World({"n:1": {"t": route_of(TWO_BROKERS)}}))
    assert (route.master("broker-a"), route.master("broker-b")) == ("localhost:7", "b:10911")


def test_a_broker_that_cannot_be_reached_is_found_at_the_name_server_s_host(clock: SimulatedClock) -> None:
    routes = Routes(servers(clock, "gate:1"), clock)
    play(routes.to_publish("t", 3.0), World({"gate:1": {"t": route_of(TWO_BROKERS)}}))
    asked_for: list[tuple[str, str]] = []

    def there(step: Call) -> Command:
        asked_for.append((step.address, step.command.parse(TopicNamed).topic))
        return reply()

    found, _ = play(routes.elsewhere("broker-a", "a:10911"), there)
    assert found == "gate:10911"
    assert asked_for == [("gate:10911", "broker-a")]
    assert routes.known("t").master("broker-a") == "gate:10911"


@pytest.mark.parametrize("outcome", [UNKNOWN, Unreachable("refused")])
def test_another_broker_at_that_place_is_not_taken_for_it(
    clock: SimulatedClock, outcome: Command | Unreachable
) -> None:
    routes = Routes(servers(clock, "gate:1"), clock)

    def stranger(step: Call) -> Command:
        if isinstance(outcome, Unreachable):
            raise outcome
        return outcome

    found, steps = play(routes.elsewhere("broker-a", "a:10911"), stranger)
    assert (found, len(steps)) == (None, 1)
    assert play(routes.elsewhere("broker-a", "a:10911"), never) == (None, [])

    clock.advance(30)
    assert len(play(routes.elsewhere("broker-a", "a:10911"), stranger)[1]) == 1


def test_a_replica_beside_the_name_server_is_not_taken_for_its_lost_master(clock: SimulatedClock) -> None:
    """It has the same name, and would be asked to do a master's work ever after."""
    routes = Routes(servers(clock, "gate:1"), clock)
    pair = {"broker-a": {0: "a:10911", 1: "gate:10911"}}
    play(routes.to_publish("t", 3.0), World({"gate:1": {"t": route_of(pair)}}))
    assert play(routes.elsewhere("broker-a", "a:10911"), never) == (None, [])


def test_more_queues_than_a_topic_can_have_are_nonsense() -> None:
    route = Route("t", route_of({"a": {0: "a:1"}}, read=2**31 - 1, write=2**31 - 1))
    assert len(route.write_queues) == len(route.read_queues) == QUEUES_MAX


def never(step: Call) -> Command:
    raise AssertionError(step)


def test_a_place_is_kept_by_the_master_or_by_a_replica_while_that_is_away() -> None:
    route = Route("t", route_of({"a": {0: "a0:1", 2: "a2:1", 1: "a1:1"}, "b": {1: "b1:1"}}))
    assert route.keepers("a") == ["a0:1", "a1:1", "a2:1"]
    assert route.keepers("b") == ["b1:1"]
    with pytest.raises(NotFound, match="broker 'c' has no master"):
        route.keepers("c")
