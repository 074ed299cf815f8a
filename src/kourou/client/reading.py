"""Reading several queues at once, fairly, and knowing where one is in each.

    a lane, one per queue

      ... consumed | buffered ............ | in flight: a pull the broker may hold until a message comes
                   ^ position                ^ fetch_offset
                   what `commit` stores       where the next pull begins

Every lane has at most one pull in flight and one batch in its buffer, and asks for the next batch when the
last one has been handed out. Batches are handed out in the order they came, so a busy queue cannot starve a
quiet one. Pulls stay in flight while the caller works: what they bring is there when it comes back.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kourou.client import operations, settings
from kourou.client.cluster_settings import ClusterSettings
from kourou.client.home import Home
from kourou.client.namespaces import (
    queue_with_namespace,
    queue_without_namespace,
    with_namespace,
    without_namespace,
)
from kourou.client.operations import SQL92, Pulled, Start, Subscription, checked_start
from kourou.client.presence import Presence, client_id
from kourou.client.routes import LOOKUP_SECONDS, MASTER, REFRESH_SECONDS, Route
from kourou.client.steps import Call, Collect, Launch, Operation, Settled
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock
from kourou.errors import Busy, ConfigError, MQError, Unreachable
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageQueue,
    SubscriptionData,
)
from kourou.protocol.command import Command
from kourou.protocol.java_hash import tag_code

SUSPEND_SECONDS = 15.0
"""How long a broker may hold a pull that finds nothing."""
PULL_TIMEOUT_SECONDS = 30.0
PULL_CALL_SECONDS = 10.0
"""For a single pull, on top of what the broker may wait."""
BATCH_MESSAGES = 32
CONNECT_SECONDS_MAX = 3.0
AGAIN_SECONDS = 1.0
"""Until a lane that failed, or whose broker is busy, is tried again."""
NOT_HELD_SECONDS = 0.1
"""A broker that does not hold pulls is asked ten times a second, not ten thousand times."""

_log = logging.getLogger("kourou.client")


class _InFlight(NamedTuple):
    """Which pull of which queue: after a seek, or another pull, its outcome is worthless."""

    queue: MessageQueue
    generation: int


class Lane:
    """One queue, and how far we are in it."""

    __slots__ = (
        "broker_id",
        "buffered",
        "committed",
        "failure",
        "fetch_offset",
        "generation",
        "launched_at",
        "not_before",
        "pulling",
        "queue",
    )

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.fetch_offset: int | None = None  # not known yet
        self.committed: int | None = None
        self.buffered: deque[ReceivedMessage] = deque()
        self.pulling = False
        self.generation = 0
        self.launched_at = 0.0
        self.not_before = 0.0
        self.failure: MQError | None = None
        self.broker_id = MASTER

    @property
    def position(self) -> int | None:
        """The next message to hand out; None before the first look."""
        return self.buffered[0].queue_offset if self.buffered else self.fetch_offset

    def current_failure(self, now: float) -> MQError | None:
        """What keeps this queue from being read. A pull that is out for long is being held: all is well."""
        is_held = self.pulling and now - self.launched_at > CONNECT_SECONDS_MAX
        return None if is_held else self.failure

    def move_to(self, queue_offset: int) -> None:
        """Go on there; what is buffered or in flight is forgotten."""
        self.fetch_offset = queue_offset
        self.buffered.clear()
        self.pulling = False
        self.generation += 1
        self.not_before = 0.0


class Reading:
    """All readable queues of one topic, read by one consumer. For one thread, or task, at a time."""

    def __init__(
        self,
        group: str,
        topic: str,
        name_server: str | Iterable[str] | None,
        tags: str,
        start: Start,
        announce: bool,
        clock: Clock,
        chance: Chance,
        cluster: ClusterSettings | None = None,
        sql: str | None = None,
    ) -> None:
        self.settings = cluster or ClusterSettings()
        self._namespace = self.settings.namespace
        self.group = with_namespace(self._namespace, settings.checked_consumer_group(group))
        self.topic = with_namespace(self._namespace, settings.checked_topic(topic))
        if sql is not None and tags != "*":
            raise ConfigError("tags and sql both say which messages are wanted; give one")
        settings.check_filter(self.topic, tags if sql is None else sql)
        self._start = checked_start(start)
        self._clock = clock
        self.routes = self.settings.routes(name_server, clock, chance)
        self._route: Route | None = None
        self._subscription = (
            Subscription(self.topic, tags, clock.now_ms())
            if sql is None
            else Subscription(self.topic, sql, clock.now_ms(), SQL92)
        )
        self._lanes: dict[MessageQueue, Lane] = {}
        self._ready: deque[Lane] = deque()  # lanes with something buffered, in the order it came
        self.home = Home("consumer")
        self._ended = False
        self._announced = announce
        self.started_at_ms = clock.now_ms()
        self.presence = Presence(client_id(clock), clock, consumer=self.consumer_data())

    # ------------------------------------------------------------------------------------- for the caller

    def open(self) -> Operation[None]:
        """Find the queues and where to begin in each, so that `latest` means now, not the first receive."""
        yield from self._look_up_queues()
        self._check_readable()
        for lane in self._present():
            yield from self._find_start(lane)

    def receive(self, messages_max: int, timeout: float | None) -> Operation[list[ReceivedMessage]]:
        """The next messages, as soon as there is one; none when `timeout` seconds brought nothing.

        Raises what is wrong when that was not for want of messages, but because no queue could be read.
        """
        settings.checked_count("max_messages", messages_max, 1)
        self._check_open()
        deadline = None
        if timeout is not None:
            deadline = self._clock.monotonic() + settings.checked_timeout(timeout)
        while True:
            if not (self._ready and len(self._ready[0].buffered) > messages_max):
                yield from self._launch_pulls(self._soon_empty(messages_max))
            # No step lies between taking messages and returning them: nothing can fail or be cancelled there.
            if taken := self._take(messages_max):
                return taken
            self._check_readable()
            settled: Settled = yield Collect(self._time_to_wait(deadline))
            self._settle(settled)
            if deadline is not None and not self._ready and self._clock.monotonic() >= deadline:
                self._raise_if_all_failed()
                return []

    def commit(self) -> Operation[None]:
        """Store at the brokers, for the group, that everything handed out so far is done.

        Every queue is tried; then the first failure is raised, if there was one.
        """
        self._check_open()
        failure: MQError | None = None
        for lane in self._lanes.values():
            position = lane.position
            if position is None or position == lane.committed:
                continue
            try:
                assert self._route is not None
                keepers = self._route.keepers(lane.queue.broker_name)
                yield from operations.commit_offset(keepers, lane.queue, self.group, position)
            except MQError as error:
                failure = failure or error
            else:
                lane.committed = position
        if failure is not None:
            raise failure

    def seek(self, where: int | Start, queue: MessageQueue | None) -> Operation[None]:
        """Go on somewhere else, in one queue or in all."""
        self._check_open()
        if isinstance(where, int):
            if queue is None or isinstance(where, bool) or where < 0:
                raise ConfigError(f"seek to {where!r}: an offset is a number from 0 on, and needs queue=")
        else:
            checked_start(where)
        if not self._lanes:
            yield from self._look_up_queues()
        if queue is not None:
            queue = self._at_broker(queue)
            if queue not in self._lanes:
                raise ConfigError(f"{queue} is not read here; `positions` tells the queues that are")
        for lane in [self._lanes[queue]] if queue is not None else list(self._present()):
            offset = where if isinstance(where, int) else (yield from self._offset_of(lane.queue, where))
            lane.move_to(offset)
        self._ready = deque(lane for lane in self._ready if lane.buffered)

    # Queue by queue, beside everything above: nothing is buffered, no place is moved.

    def queues(self) -> Operation[tuple[MessageQueue, ...]]:
        """Every queue that can be read."""
        self._check_open()
        yield from self._look_up_queues()
        assert self._route is not None
        return tuple(queue_without_namespace(self._namespace, queue) for queue in self._route.read_queues)

    def pull(
        self, queue: MessageQueue, queue_offset: int, messages_max: int, suspend: float
    ) -> Operation[Pulled]:
        """What lies there now; with `suspend` the broker waits so many seconds for something to come."""
        settings.checked_count("max_messages", messages_max, 1)
        settings.checked_count("offset", queue_offset)
        suspend = settings.checked_timeout(suspend)
        queue = self._at_broker(queue)
        address = yield from self._address_of(queue)
        if self._announced:
            yield from self.presence.announce(address)
        pulled = yield from operations.pull(
            address,
            queue,
            queue_offset,
            self._subscription,
            self.group,
            count=messages_max,
            suspend=suspend,
            timeout=PULL_CALL_SECONDS,
        )
        self._show(pulled.messages)
        return pulled

    def offset_of(self, queue: MessageQueue, where: Start) -> Operation[int]:
        """The offset that "earliest", "latest" or a moment stands for in a queue right now."""
        queue = self._at_broker(queue)
        address = yield from self._address_of(queue)
        return (yield from operations.place(address, queue, checked_start(where)))

    def committed(self, queue: MessageQueue) -> Operation[int | None]:
        """Where the group goes on in a queue; None when it was never there."""
        queue = self._at_broker(queue)
        address = yield from self._address_of(queue)
        return (yield from operations.committed_offset(address, queue, self.group))

    def commit_at(self, offsets: Mapping[MessageQueue, int]) -> Operation[None]:
        """Store that the group goes on at these offsets."""
        if not isinstance(offsets, Mapping):
            raise ConfigError(f"offsets is {offsets!r}; give an offset for each queue: {{queue: 42}}")
        for given, queue_offset in offsets.items():
            queue = self._at_broker(given)
            yield from self._address_of(queue)
            assert self._route is not None
            yield from operations.commit_offset(
                self._route.keepers(queue.broker_name),
                queue,
                self.group,
                settings.checked_count("offset", queue_offset),
            )

    def _address_of(self, queue: MessageQueue) -> Operation[str]:
        self._check_open()
        if self._route is None:
            yield from self._look_up_queues()
        assert self._route is not None
        if queue.topic != self.topic:
            raise ConfigError(f"{queue} is not one of topic '{self.topic}', which is what is read here")
        return self._route.reader(queue.broker_name)

    def _at_broker(self, queue: object) -> MessageQueue:
        if not isinstance(queue, MessageQueue):
            raise ConfigError(f"queue is {queue!r}; give one of those that `queues` tells")
        return queue_with_namespace(self._namespace, queue)

    def _show(self, messages: list[ReceivedMessage]) -> None:
        """To the program, a topic is without its namespace."""
        if self._namespace is not None:
            for message in messages:
                message.show_as(without_namespace(self._namespace, message.topic))

    def positions(self) -> dict[MessageQueue, int]:
        """The next message to be handed out, by queue."""
        return {
            queue_without_namespace(self._namespace, queue): position
            for queue, lane in sorted(self._lanes.items())
            if (position := lane.position) is not None
        }

    def lanes(self) -> list[Lane]:
        """Every queue, by its broker's name for it, and how far we are in it."""
        return [lane for _, lane in sorted(self._lanes.items())]

    def end(self) -> bool:
        """From now on nothing is read; whether there is anybody to take leave of."""
        was_open, self._ended = not self._ended, True
        return was_open and self.home.is_here  # a fork must not take leave in its parent's name

    # ---------------------------------------------------------------------------------- queues and places

    def _look_up_queues(self) -> Operation[None]:
        deadline = self._clock.monotonic() + LOOKUP_SECONDS
        route = yield from self.routes.to_read(self.topic, deadline)
        if route is self._route:
            return
        self._route = route
        for queue in route.read_queues:
            # A queue that left the route (its broker is down) keeps its lane, and its place.
            self._lanes.setdefault(queue, Lane(queue))

    def _check_readable(self) -> None:
        assert self._route is not None
        self._route.check_readable()

    def _present(self) -> list[Lane]:
        assert self._route is not None
        return [self._lanes[queue] for queue in self._route.read_queues]

    def _find_start(self, lane: Lane) -> Operation[None]:
        if lane.fetch_offset is None:
            committed = yield from self._committed(lane)
            lane.committed = committed
            if committed is None:
                lane.fetch_offset = yield from self._offset_of(lane.queue, self._start)
            else:
                lane.fetch_offset = committed

    def _committed(self, lane: Lane) -> Operation[int | None]:
        """The first thing a broker is asked, so here it turns out that it is not where it says."""
        queue, address = lane.queue, self._reader(lane)
        try:
            return (yield from operations.committed_offset(address, queue, self.group))
        except Unreachable as error:
            found = yield from self.routes.elsewhere_after(error, queue.broker_name, address)
            if found is None:
                raise
            self._route = self.routes.known(self.topic)
            return (yield from operations.committed_offset(found, queue, self.group))

    def _offset_of(self, queue: MessageQueue, where: Start) -> Operation[int]:
        assert self._route is not None
        return (yield from operations.place(self._route.reader(queue.broker_name), queue, where))

    def _reader(self, lane: Lane) -> str:
        assert self._route is not None
        return self._route.reader(lane.queue.broker_name, lane.broker_id)

    # --------------------------------------------------------------------------------------------- pulling

    def _launch_pulls(self, soon_empty: set[MessageQueue]) -> Operation[None]:
        """Ask for more wherever nothing is left, or will be when the caller has got what it asked for."""
        yield from self._look_up_queues()
        now = self._clock.monotonic()
        for lane in self._present():
            if lane.pulling or lane.not_before > now:
                continue
            if lane.buffered and lane.queue not in soon_empty:
                continue
            try:
                yield from self._find_start(lane)
                yield from self._launch(lane)
            except Unreachable as error:
                self._set_back(lane, error)
            except MQError:
                lane.not_before = now + AGAIN_SECONDS  # others shall not suffer for it all the time
                raise

    def _soon_empty(self, messages_max: int) -> set[MessageQueue]:
        """The queues whose buffer the next `messages_max` messages exhaust."""
        exhausted = set()
        for lane in self._ready:
            messages_max -= len(lane.buffered)
            if messages_max < 0:
                break
            exhausted.add(lane.queue)
        return exhausted

    def _launch(self, lane: Lane) -> Operation[None]:
        assert lane.fetch_offset is not None
        address = self._reader(lane)
        if self._announced:
            yield from self.presence.announce(address)
        command = operations.pull_request(
            lane.queue,
            lane.fetch_offset,
            self._subscription,
            self.group,
            count=BATCH_MESSAGES,
            suspend=SUSPEND_SECONDS,
        )
        lane.generation += 1
        lane.launched_at = self._clock.monotonic()
        yield Launch(_InFlight(lane.queue, lane.generation), Call(address, command, PULL_TIMEOUT_SECONDS))
        lane.pulling = True

    def _settle(self, settled: Settled) -> None:
        """Take in what pulls have brought; raises what is beyond repair only after all of it is in."""
        beyond_repair: MQError | None = None
        for token, outcome in settled:
            assert isinstance(token, _InFlight)
            lane = self._lanes[token.queue]
            if token.generation != lane.generation:
                continue
            lane.pulling = False
            try:
                if isinstance(outcome, MQError):
                    raise outcome
                self._take_in(lane, outcome)
            except (Unreachable, Busy) as error:
                self._set_back(lane, error)
            except MQError as error:
                lane.not_before = self._clock.monotonic() + AGAIN_SECONDS
                beyond_repair = beyond_repair or error
        if beyond_repair is not None:
            raise beyond_repair

    def _take_in(self, lane: Lane, reply: Command) -> None:
        pulled = operations.pulled(reply, lane.queue, self._subscription)
        before = lane.fetch_offset
        lane.failure = None
        lane.broker_id = pulled.suggested_broker_id
        lane.fetch_offset = pulled.next_offset
        if pulled.moved:
            _log.warning(
                "queue %d of %s at %s holds offsets %d to %d, not %s: going on at %d",
                lane.queue.queue_id,
                self.topic,
                lane.queue.broker_name,
                pulled.min_offset,
                pulled.max_offset,
                before,
                pulled.next_offset,
            )
        if pulled.messages:
            self._show(pulled.messages)
            lane.buffered.extend(pulled.messages)
            self._ready.append(lane)
        elif pulled.next_offset == before and self._clock.monotonic() - lane.launched_at < NOT_HELD_SECONDS:
            lane.not_before = self._clock.monotonic() + NOT_HELD_SECONDS

    def _set_back(self, lane: Lane, error: MQError) -> None:
        """Something failed that may pass: ask for the route again, and try this lane a little later.

        The first failure of a lane does not count: a connection that was idle for long may be gone, and a
        caller that was away for long finds its pulls overdue.
        """
        if lane.failure is not None or isinstance(error, Busy):
            lane.not_before = self._clock.monotonic() + AGAIN_SECONDS
            _log.warning(
                "cannot read queue %d of %s at %s, trying again: %s",
                lane.queue.queue_id,
                self.topic,
                lane.queue.broker_name,
                error,
            )
        lane.failure = None if isinstance(error, Busy) else error
        lane.pulling = False
        lane.broker_id = MASTER
        self.routes.doubt(self.topic)

    def _take(self, messages_max: int) -> list[ReceivedMessage]:
        taken: list[ReceivedMessage] = []
        while self._ready and len(taken) < messages_max:
            lane = self._ready[0]
            while lane.buffered and len(taken) < messages_max:
                taken.append(lane.buffered.popleft())
            if not lane.buffered:
                self._ready.popleft()
        return taken

    def _time_to_wait(self, deadline: float | None) -> float:
        """Until the deadline, or something is to be done: try a lane again, renew the route, see whether a
        name server said that it has changed."""
        now = self._clock.monotonic()
        moments = [lane.not_before for lane in self._present() if not lane.pulling and not lane.buffered]
        is_calm = self._present() and not self.routes.hears_news
        moments.append(now + (REFRESH_SECONDS if is_calm else AGAIN_SECONDS))
        if deadline is not None:
            moments.append(deadline)
        return max(min(moments) - now, 0.0)

    def _raise_if_all_failed(self) -> None:
        lanes, now = self._present(), self._clock.monotonic()
        failures = [failure for lane in lanes if (failure := lane.current_failure(now)) is not None]
        if failures and len(failures) == len(lanes):
            raise failures[0]

    def _check_open(self) -> None:
        if self._ended:
            raise ConfigError("this consumer is closed; make a new one")
        self.home.check()

    def consumer_data(self) -> ConsumerData:
        """What a heartbeat says of us."""
        subscription = self._subscription
        tags = sorted(subscription.tags)
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.PULL,
            consume_from_where=ConsumeFromWhere.LAST_OFFSET
            if self._start == "latest"
            else ConsumeFromWhere.FIRST_OFFSET,
            subscription_data_set=[
                SubscriptionData(
                    topic=self.topic,
                    expression_type=subscription.kind,
                    sub_string=subscription.expression,
                    tags_set=tags,
                    code_set=[tag_code(tag) for tag in tags],
                    sub_version=subscription.version,
                )
            ],
        )
