from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import Any

import pytest

from kourou.client.reading import Reading
from kourou.client.steps import Call, Collect, Launch
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.errors import (
    ConfigError,
    ConnectionLost,
    Denied,
    MQError,
    ProtocolError,
    TimedOut,
    Unreachable,
)
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import HeartbeatData, MessageQueue, TopicRouteData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import (
    OffsetReply,
    PullMessage,
    PullReply,
    QueryOffset,
    SearchOffset,
    UpdateOffset,
)
from tests.unit.client.conversation import play, reply, route_of, stored


def queue(number: int, broker: str = "a") -> MessageQueue:
    return MessageQueue(topic="t", broker_name=broker, queue_id=number)


class Broker:
    """A cluster of one broker, whose queues hold what a test says. Time passes only in a Collect."""

    def __init__(self, clock: SimulatedClock, queues: int = 2) -> None:
        self.clock = clock
        self.logs: dict[int, list[str | None]] = {number: [] for number in range(queues)}
        self.min_offset = 0
        self.committed: dict[tuple[str, int], int] = {}
        self.route: TopicRouteData = route_of({"a": {0: "a:1", 1: "a1:1"}}, read=queues)
        self.parked: list[Launch] = []
        self.settled: deque[tuple[Any, Command | MQError]] = deque()
        self.calls: list[Call] = []
        self.launched: list[tuple[str, PullMessage]] = []
        self.heartbeats: list[HeartbeatData] = []
        self.failure: MQError | None = None
        self.holds = True

    def __call__(self, step: Any) -> Any:
        if isinstance(step, Launch):
            return self._launch(step)
        if isinstance(step, Collect):
            return self._collect(step)
        assert isinstance(step, Call)
        self.calls.append(step)
        return self._answer(step)

    def put(self, number: int, *tags: str | None) -> None:
        """Store messages; wakes the pulls that wait for them."""
        self.logs[number] += tags
        parked, self.parked = self.parked, []
        for launch in parked:
            self._launch(launch, again=True)

    def _launch(self, launch: Launch, *, again: bool = False) -> None:
        header = launch.call.command.parse(PullMessage)
        if not again:
            self.launched.append((launch.call.address, header))
        if self.failure is not None:
            self.settled.append((launch.token, self.failure))
            return
        log, offset = self.logs[header.queue_id], header.queue_offset
        if not self.min_offset <= offset <= len(log):
            nearest = max(self.min_offset, 0) if offset < self.min_offset else len(log)
            self._settle(launch, ResponseCode.PULL_OFFSET_MOVED, nearest)
        elif offset < len(log):
            stop = min(offset + header.message_count_max, len(log))
            records = b"".join(stored(at, log[at], queue_id=header.queue_id) for at in range(offset, stop))
            self._settle(launch, ResponseCode.SUCCESS, stop, records)
        elif self.holds:
            self.parked.append(launch)
        else:
            self._settle(launch, ResponseCode.PULL_NOT_FOUND, offset)

    def _settle(self, launch: Launch, code: int, next_offset: int, body: bytes = b"") -> None:
        header = PullReply(0, next_begin_offset=next_offset, min_offset=self.min_offset, max_offset=9)
        self.settled.append((launch.token, reply(header, body, code=code)))

    def _collect(self, step: Collect) -> list[Any]:
        if not self.settled:
            self.clock.advance(step.timeout)
        settled, self.settled = list(self.settled), deque()
        return settled

    def _answer(self, step: Call) -> Command | None:
        command = step.command
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return reply(body=self.route.encode())
        if command.code == RequestCode.HEART_BEAT:
            self.heartbeats.append(HeartbeatData.decode(command.body))
            return None
        if self.failure is not None:
            raise self.failure
        if command.code == RequestCode.QUERY_CONSUMER_OFFSET:
            asked = command.parse(QueryOffset)
            known = self.committed.get((asked.consumer_group, asked.queue_id))
            return reply(code=ResponseCode.QUERY_NOT_FOUND) if known is None else reply(OffsetReply(known))
        if command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            update = command.parse(UpdateOffset)
            self.committed[update.consumer_group, update.queue_id] = update.commit_offset
            return reply()
        number = int(command.fields["queueId"])
        if command.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            return reply(OffsetReply(command.parse(SearchOffset).timestamp // 1000))
        end = command.code == RequestCode.GET_MAX_OFFSET
        return reply(OffsetReply(len(self.logs[number]) if end else self.min_offset))


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def broker(clock: SimulatedClock) -> Broker:
    return Broker(clock)


def reading(
    clock: SimulatedClock, *, tags: str = "*", start: Any = "earliest", announce: bool = True
) -> Reading:
    return Reading("g", "t", "n:9876", tags, start, announce, clock, Chance(3))


def receive(
    reader: Reading, broker: Broker, most: int = 32, timeout: float | None = 5.0
) -> list[ReceivedMessage]:
    return play(reader.receive(most, timeout), broker)[0]


def places(messages: list[ReceivedMessage]) -> list[tuple[int, int]]:
    return [(message.queue_id, message.queue_offset) for message in messages]


# ------------------------------------------------------------------------------------------------ messages


def test_messages_of_all_queues_are_received(broker: Broker, clock: SimulatedClock) -> None:
    broker.put(0, None, None)
    broker.put(1, None)
    messages = receive(reading(clock), broker)
    assert places(messages) == [(0, 0), (0, 1), (1, 0)]
    assert {message.broker_name for message in messages} == {"a"}


def test_no_more_are_handed_out_than_asked_for_and_none_is_lost(
    broker: Broker, clock: SimulatedClock
) -> None:
    broker.put(0, *[None] * 50)
    broker.put(1, *[None] * 50)
    reader = reading(clock)
    received: list[tuple[int, int]] = []
    while batch := receive(reader, broker, 7, 0.5):
        assert len(batch) <= 7
        received += places(batch)
    assert sorted(received) == [(number, at) for number in range(2) for at in range(50)]
    for number in range(2):
        assert [at for each, at in received if each == number] == list(range(50))


def test_a_busy_queue_does_not_starve_a_quiet_one(broker: Broker, clock: SimulatedClock) -> None:
    broker.put(0, *[None] * 1000)
    broker.put(1, None)
    reader = reading(clock)
    first = [place for _ in range(4) for place in places(receive(reader, broker, 16))]
    assert (1, 0) in first


def test_a_message_that_comes_while_waiting_is_received_at_once(
    broker: Broker, clock: SimulatedClock
) -> None:
    reader = reading(clock)
    assert receive(reader, broker, timeout=0.1) == []
    broker.put(1, None)
    began = clock.monotonic()
    assert places(receive(reader, broker, timeout=5.0)) == [(1, 0)]
    assert clock.monotonic() == began


def test_pulls_stay_in_flight_between_two_calls(broker: Broker, clock: SimulatedClock) -> None:
    reader = reading(clock)
    for _ in range(5):
        receive(reader, broker, timeout=1.0)
    assert len(broker.launched) == 2  # one for each queue


def test_the_next_pull_travels_while_the_caller_works(broker: Broker, clock: SimulatedClock) -> None:
    broker.put(0, None)
    receive(reading(clock), broker)
    assert [header.queue_offset for _, header in broker.launched if header.queue_id == 0] == [0, 1]


def test_an_interrupted_receive_loses_nothing(broker: Broker, clock: SimulatedClock) -> None:
    """Whichever step it is interrupted at, the next receive brings the same messages."""
    for steps in range(1, 30):
        world = Broker(clock)
        world.put(0, *[None] * 3)
        world.put(1, *[None] * 3)
        reader = reading(clock)
        interrupted = reader.receive(32, 5.0)
        step = next(interrupted)
        try:
            for _ in range(steps):
                step = interrupted.send(world(step))
        except StopIteration:
            break
        interrupted.close()
        received: list[tuple[int, int]] = []
        while batch := receive(reader, world, timeout=0.5):
            received += places(batch)
        assert sorted(received) == [(number, at) for number in range(2) for at in range(3)]
    assert steps > 5


def test_nothing_in_time_is_an_empty_list(broker: Broker, clock: SimulatedClock) -> None:
    began = clock.monotonic()
    assert receive(reading(clock), broker, timeout=2.0) == []
    assert clock.monotonic() - began == pytest.approx(2.0)


def test_tags_are_filtered_and_skipped_ones_are_passed_by(broker: Broker, clock: SimulatedClock) -> None:
    broker.put(0, "old", "new", "old")
    reader = reading(clock, tags="new")
    assert places(receive(reader, broker)) == [(0, 1)]
    assert reader.positions()[queue(0)] == 3


def test_a_broker_that_does_not_hold_pulls_is_not_asked_all_the_time(
    broker: Broker, clock: SimulatedClock
) -> None:
    broker.holds = False
    receive(reading(clock), broker, timeout=2.0)
    assert len(broker.launched) <= 2 * 21


# --------------------------------------------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("start", "expected"),
    [("earliest", 1), ("latest", 5), (datetime.fromtimestamp(3, UTC), 3)],
    ids=["earliest", "latest", "a moment"],
)
def test_a_new_group_begins_where_it_is_told_to(
    broker: Broker, clock: SimulatedClock, start: Any, expected: int
) -> None:
    for number in range(2):
        broker.put(number, *[None] * 5)
    broker.min_offset = 1
    reader = reading(clock, start=start)
    play(reader.open(), broker)
    assert reader.positions() == {queue(0): expected, queue(1): expected}


def test_latest_means_when_it_was_opened(broker: Broker, clock: SimulatedClock) -> None:
    reader = reading(clock, start="latest")
    play(reader.open(), broker)
    broker.put(0, None)
    assert places(receive(reader, broker)) == [(0, 0)]


def test_a_group_goes_on_where_it_committed(broker: Broker, clock: SimulatedClock) -> None:
    broker.put(0, *[None] * 5)
    first = reading(clock)
    assert places(receive(first, broker, 2)) == [(0, 0), (0, 1)]
    play(first.commit(), broker)
    assert broker.committed["g", 0] == 2
    assert places(receive(reading(clock, start="latest"), broker)) == [(0, 2), (0, 3), (0, 4)]


def test_what_is_buffered_but_not_handed_out_is_not_committed(broker: Broker, clock: SimulatedClock) -> None:
    broker.put(0, *[None] * 20)
    reader = reading(clock)
    receive(reader, broker, 1)
    play(reader.commit(), broker)
    assert broker.committed["g", 0] == 1


def test_a_queue_that_cannot_be_committed_does_not_keep_the_others_from_it(
    broker: Broker, clock: SimulatedClock
) -> None:
    broker.put(0, None)
    broker.put(1, None)
    reader = reading(clock)
    receive(reader, broker)

    def refuse_the_first(step: Any) -> Any:
        if step.command.fields["queueId"] == "0":
            raise ConnectionLost("gone")
        return broker(step)

    with pytest.raises(ConnectionLost):
        play(reader.commit(), refuse_the_first)
    assert broker.committed == {("g", 1): 1}
    play(reader.commit(), broker)
    assert broker.committed == {("g", 0): 1, ("g", 1): 1}


def test_only_what_moved_is_committed_again(broker: Broker, clock: SimulatedClock) -> None:
    broker.put(0, None)
    reader = reading(clock)
    receive(reader, broker)
    play(reader.commit(), broker)
    _, steps = play(reader.commit(), broker)
    assert steps == []


def test_an_offset_that_is_gone_is_corrected(broker: Broker, clock: SimulatedClock) -> None:
    broker.put(0, *[None] * 10)
    broker.min_offset = 6
    broker.committed["g", 0] = 2
    assert places(receive(reading(clock), broker)) == [(0, 6), (0, 7), (0, 8), (0, 9)]


def test_seek_forgets_what_was_buffered_and_what_is_in_flight(broker: Broker, clock: SimulatedClock) -> None:
    broker.put(0, *[None] * 40)
    reader = reading(clock)
    receive(reader, broker, 1)
    play(reader.seek(10, queue(0)), broker)
    assert places(receive(reader, broker, 3)) == [(0, 10), (0, 11), (0, 12)]
    receive(reader, broker, 100)  # to the end; a pull is parked there
    play(reader.seek("earliest", None), broker)
    broker.put(0, None)  # answers the parked pull of before
    assert places(receive(reader, broker, 2)) == [(0, 0), (0, 1)]


@pytest.mark.parametrize(
    ("where", "at"), [(5, None), (-1, queue(0)), (True, queue(0)), ("middle", None), (5, queue(9))]
)
def test_a_seek_to_nowhere_is_an_error(
    broker: Broker, clock: SimulatedClock, where: Any, at: MessageQueue | None
) -> None:
    reader = reading(clock)
    play(reader.open(), broker)
    with pytest.raises(ConfigError):
        play(reader.seek(where, at), broker)


def test_a_queue_that_is_added_later_is_read_as_well(broker: Broker, clock: SimulatedClock) -> None:
    reader = reading(clock)
    receive(reader, broker, timeout=1.0)
    broker.route = route_of({"a": {0: "a:1"}}, read=3)
    broker.logs[2] = [None]
    assert places(receive(reader, broker, timeout=60.0)) == [(2, 0)]


# ------------------------------------------------------------------------------------------------- failures


def test_a_broker_that_comes_back_is_read_on(broker: Broker, clock: SimulatedClock) -> None:
    broker.put(0, None)
    broker.failure = ConnectionLost("gone")
    reader = reading(clock)
    broker.committed = {("g", 0): 0, ("g", 1): 0}
    clock.later(3.0, lambda: setattr(broker, "failure", None))
    assert places(receive(reader, broker, timeout=10.0)) == [(0, 0)]
    assert 3.0 <= clock.monotonic() <= 4.5


def test_when_no_queue_can_be_read_that_is_raised_at_the_deadline(
    broker: Broker, clock: SimulatedClock
) -> None:
    reader = reading(clock)
    play(reader.open(), broker)
    broker.failure = Unreachable("connection refused")
    with pytest.raises(Unreachable, match="connection refused"):
        receive(reader, broker, timeout=5.0)
    assert clock.monotonic() == pytest.approx(5.0)
    broker.failure = None
    broker.put(0, None)
    assert places(receive(reader, broker, timeout=5.0)) == [(0, 0)]


def test_a_broker_that_came_back_and_has_nothing_new_is_no_failure(
    broker: Broker, clock: SimulatedClock
) -> None:
    reader = reading(clock)
    receive(reader, broker, timeout=1.0)
    lost, broker.parked = broker.parked, []
    broker.settled.extend((launch.token, ConnectionLost("gone")) for launch in lost)
    assert receive(reader, broker, timeout=5.0) == []


def test_one_overdue_pull_is_simply_asked_again(broker: Broker, clock: SimulatedClock) -> None:
    reader = reading(clock)
    receive(reader, broker, timeout=1.0)
    overdue, broker.parked = broker.parked, []
    broker.settled.extend((launch.token, TimedOut("late")) for launch in overdue)
    broker.logs[0].append(None)
    began = clock.monotonic()
    assert places(receive(reader, broker, timeout=5.0)) == [(0, 0)]
    assert clock.monotonic() == began


def test_a_failed_pull_puts_the_route_in_doubt(broker: Broker, clock: SimulatedClock) -> None:
    reader = reading(clock)
    receive(reader, broker, timeout=1.0)
    before = sum(call.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC for call in broker.calls)
    launch = broker.parked.pop()
    broker.settled.append((launch.token, ConnectionLost("gone")))
    receive(reader, broker, timeout=1.0)
    after = sum(call.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC for call in broker.calls)
    assert (before, after) == (1, 2)


def test_a_topic_that_may_not_be_read_says_so_when_opened(broker: Broker, clock: SimulatedClock) -> None:
    broker.route = route_of({"a": {0: "a:1"}}, perm=2)
    with pytest.raises(Denied, match="topic 't' may not be read: its permission is 2"):
        play(reading(clock).open(), broker)


def test_a_topic_that_may_no_longer_be_read_says_so_when_all_that_came_is_handed_out(
    broker: Broker, clock: SimulatedClock
) -> None:
    broker.put(0, None, None)
    reader = reading(clock)
    assert len(receive(reader, broker, 1)) == 1
    clock.advance(31)
    broker.route = route_of({"a": {0: "a:1"}}, perm=2)
    assert len(receive(reader, broker, 1)) == 1
    with pytest.raises(Denied):
        receive(reader, broker, 1)


def test_a_refusal_is_raised_and_what_else_came_is_kept(broker: Broker, clock: SimulatedClock) -> None:
    reader = reading(clock)
    receive(reader, broker, timeout=1.0)
    launch = next(each for each in broker.parked if each.token.queue == queue(1))  # type: ignore[attr-defined]
    broker.parked.remove(launch)
    broker.settled.append((launch.token, reply(code=ResponseCode.NO_PERMISSION, remark="not you")))
    broker.put(0, None)
    with pytest.raises(Denied, match="not you"):
        receive(reader, broker)
    assert places(receive(reader, broker)) == [(0, 0)]


def test_garbage_instead_of_messages_is_a_protocol_error(broker: Broker, clock: SimulatedClock) -> None:
    reader = reading(clock)
    receive(reader, broker, timeout=1.0)
    launch = broker.parked.pop()
    broker.settled.append((launch.token, reply(PullReply(0, 1, 0, 1), b"nonsense" * 20)))
    with pytest.raises(ProtocolError):
        receive(reader, broker)


def test_a_busy_broker_is_left_alone_for_a_while(broker: Broker, clock: SimulatedClock) -> None:
    reader = reading(clock)
    receive(reader, broker, timeout=1.0)
    parked, broker.parked = broker.parked, []
    broker.settled.extend((each.token, reply(code=ResponseCode.FLOW_CONTROL)) for each in parked)
    count = len(broker.launched)
    assert receive(reader, broker, timeout=0.9) == []
    assert len(broker.launched) == count
    receive(reader, broker, timeout=0.2)
    assert len(broker.launched) == count + 2


def test_a_suggested_replica_is_read_from(broker: Broker, clock: SimulatedClock) -> None:
    reader = reading(clock)
    receive(reader, broker, timeout=1.0)
    launch = broker.parked.pop()
    broker.settled.append(
        (launch.token, reply(PullReply(1, 0, 0, 9), code=ResponseCode.PULL_RETRY_IMMEDIATELY))
    )
    receive(reader, broker, timeout=1.0)
    assert [address for address, _ in broker.launched] == ["a:1", "a:1", "a1:1"]


# ------------------------------------------------------------------------------------------------- presence


def test_brokers_are_told_who_reads_and_again_after_30_seconds(broker: Broker, clock: SimulatedClock) -> None:
    reader = reading(clock, tags="new")
    receive(reader, broker, timeout=1.0)
    (heartbeat,) = broker.heartbeats
    (consumer,) = heartbeat.consumer_data_set
    (subscription,) = consumer.subscription_data_set
    assert (consumer.group_name, subscription.topic, subscription.sub_string) == ("g", "t", "new")
    clock.advance(31)
    broker.put(0, "new")
    receive(reader, broker, timeout=1.0)
    assert len(broker.heartbeats) == 2


def test_who_does_not_want_to_be_seen_is_not(broker: Broker, clock: SimulatedClock) -> None:
    receive(reading(clock, announce=False), broker, timeout=1.0)
    assert broker.heartbeats == []


def test_pulls_bring_their_own_subscription_and_are_held_15_seconds(
    broker: Broker, clock: SimulatedClock
) -> None:
    receive(reading(clock, tags="a||b"), broker, timeout=1.0)
    _, header = broker.launched[0]
    assert (header.subscription, header.sys_flag, header.suspend_timeout_ms) == ("a || b", 6, 15_000)


def test_a_closed_consumer_says_so(broker: Broker, clock: SimulatedClock) -> None:
    reader = reading(clock)
    assert reader.end()
    assert not reader.end()
    for operation in (reader.receive(1, 1.0), reader.commit(), reader.seek("latest", None)):
        with pytest.raises(ConfigError, match="this consumer is closed"):
            play(operation, broker)


@pytest.mark.parametrize("start", ["middle", None, 3])
def test_an_impossible_start_is_an_error(clock: SimulatedClock, start: Any) -> None:
    with pytest.raises(ConfigError, match="'earliest', 'latest' or a datetime"):
        reading(clock, start=start)
