"""What the brokers have, asked by the driver: topics, queues, where they begin and end, where a group is.

Questions about many queues go out together and are answered together: for sixteen queues it takes as long as
for one. A broker that cannot be reached is named in the answer, and does not keep others from answering.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from kourou.client import operations
from kourou.client.drive import BlockingDriver
from kourou.client.namespaces import with_namespace, without_namespace
from kourou.client.operations import Subscription
from kourou.client.routes import Route
from kourou.client.steps import Call, Collect, Launch, Operation, Settled
from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.errors import MQError, NotFound, Unreachable
from kourou.protocol import record
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.extensions import Capabilities
from kourou.remoting.blocking import BlockingClient
from kourou.spark.access import ClusterAccess
from kourou.spark.moments import Bounds, Place, first_at
from kourou.spark.offsets import Offsets, Queue

LOOKUP_SECONDS = 10.0
CAPABILITIES_SECONDS = 3.0
IN_FLIGHT_MAX = 256

Result = TypeVar("Result")


class Answers(NamedTuple):
    """What came of asking about many queues."""

    found: dict[Queue, int]
    failed: dict[Queue, MQError]

    def all(self) -> dict[Queue, int]:
        """Every answer; raises the first failure there is."""
        for error in self.failed.values():
            raise error
        return self.found


class Cluster:
    """One cluster, as a driver sees it. For one thread at a time; sockets are opened when first needed."""

    def __init__(self, access: ClusterAccess) -> None:
        settings = access.settings()
        self.clock = RealClock()
        self.client = BlockingClient(tls=settings.tls, sign=settings.sign)
        self.routes = settings.routes(access.name_server, self.clock, Chance())
        self._namespace = access.namespace
        self._driver = BlockingDriver(self.client, self.clock)
        self._bulk_bytes: dict[str, int] = {}

    def close(self) -> None:
        self._driver.close()

    def run(self, operation: Operation[Result]) -> Result:
        """Any operation of the client's, at this cluster."""
        return self._driver.run(operation)

    def bulk_pull_bytes(self, address: str) -> int:
        """How many bytes of records the broker there gives at once; 0 when it is not one of ours.

        One that cannot be asked now is taken for any broker, and asked again the next time.
        """
        known = self._bulk_bytes.get(address)
        if known is None:
            try:
                reply = self.client.call(
                    address, request(RequestCode.KOUROU_CAPABILITIES), CAPABILITIES_SECONDS
                )
            except Unreachable:
                return 0
            is_ours = reply.code == ResponseCode.SUCCESS
            known = reply.parse(Capabilities).bulk_pull_bytes_max if is_ours else 0
            self._bulk_bytes[address] = known
        return known

    # ------------------------------------------------------------------------------- topics and queues

    def topics(self, pattern: str, *, also: Collection[str] = ()) -> list[str]:
        """The users' topics whose whole name matches; of the system's those that begin with one of `also`."""
        names = self.run(operations.topic_names(self.routes.name_servers))
        if also:
            everything = self.run(operations.topic_names(self.routes.name_servers, everything=True))
            names = sorted({*names, *(name for name in everything if name.startswith(tuple(also)))})
        expression = re.compile(pattern)
        shown = (without_namespace(self._namespace, name) for name in names)
        return [name for name in shown if expression.fullmatch(name)]

    def queues(self, topic: str, *, fresh: bool = False) -> list[Queue]:
        """Those that can be read, as the name servers tell; raises NotFound when there is no such topic."""
        route = self.route(topic, fresh=fresh)
        route.check_readable()
        return [Queue(topic, queue.broker_name, queue.queue_id) for queue in route.read_queues]

    def route(self, topic: str, *, fresh: bool = False) -> Route:
        real = with_namespace(self._namespace, topic)
        if fresh:
            self.routes.doubt(real)
        return self.run(self.routes.to_read(real, self.clock.monotonic() + LOOKUP_SECONDS))

    def address(self, queue: Queue) -> str:
        """The broker to ask about a queue."""
        return self.route(queue.topic).reader(queue.broker_name)

    def doubt(self, queues: Iterable[Queue]) -> None:
        """Something about these failed: their routes are asked for again."""
        for topic in {queue.topic for queue in queues}:
            self.routes.doubt(with_namespace(self._namespace, topic))

    def wire(self, queue: Queue) -> MessageQueue:
        """The queue as brokers know it."""
        return MessageQueue(
            topic=with_namespace(self._namespace, queue.topic),
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
        )

    # ----------------------------------------------------------------------------- one answer per queue

    def ends(self, queues: Iterable[Queue]) -> Answers:
        """Where the next message will be."""
        return self._of_each(queues, operations.max_offset)

    def begins(self, queues: Iterable[Queue]) -> Answers:
        """Where the oldest message is that is still there."""
        return self._of_each(queues, operations.min_offset)

    def bounds(self, queues: Iterable[Queue]) -> dict[Queue, Bounds]:
        """Both; raises what the first broker failed with that did."""
        low = self.begins(queues).all()
        high = self.ends(low).all()
        return {queue: Bounds(low[queue], high[queue]) for queue in low}

    def at_times(self, moments_ms: Mapping[Queue, int], group: str) -> dict[Queue, int]:
        """The first message stored at that moment or later; the end where there is none.

        A broker's own answer is where to begin looking: a 4.9 broker of Apache's tells the nearest message,
        be it before or after, and of several of one millisecond any.
        """

        def ask(address: str, queue: MessageQueue) -> Operation[int]:
            return operations.offset_at(address, queue, by_wire[queue])

        by_wire = {self.wire(queue): moment for queue, moment in moments_ms.items()}
        guesses = self._of_each(moments_ms, ask).all()
        return first_at(moments_ms, guesses, self.bounds(moments_ms), lambda at: self.store_times(at, group))

    def committed(self, queues: Iterable[Queue], group: str) -> dict[Queue, int]:
        """Where the group is; queues it has never been in are left out."""
        name = with_namespace(self._namespace, group)

        def ask(address: str, queue: MessageQueue) -> Operation[int]:
            place = yield from operations.committed_offset(address, queue, name)
            return -1 if place is None else place

        answers = self._of_each(queues, ask).all()
        return {queue: place for queue, place in answers.items() if place >= 0}

    def commit(self, offsets: Offsets, group: str) -> Answers:
        """Store where the group is."""
        name = with_namespace(self._namespace, group)
        by_wire = {self.wire(queue): offset for queue, offset in offsets.items()}

        def ask(address: str, queue: MessageQueue) -> Operation[int]:
            try:
                yield from operations.commit_offset([address], queue, name, by_wire[queue])
            except NotFound as error:
                if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                # A 5.x broker of Apache's makes a group when it first pulls, but not when it first commits.
                everything = Subscription(queue.topic, "*", 0)
                yield from operations.pull(address, queue, by_wire[queue], everything, name, count=1)
                yield from operations.commit_offset([address], queue, name, by_wire[queue])
            return by_wire[queue]

        return self._of_each(offsets, ask, of_master=True)

    def record_bytes(self, places: Iterable[Place], group: str) -> dict[Place, int]:
        """How large the one record at each place is; places that cannot be read are left out."""
        return self._of_records(places, group, len)

    def store_times(self, places: Iterable[Place], group: str) -> dict[Place, int]:
        """When the one record at each place was stored; places that cannot be read are left out."""
        return self._of_records(places, group, lambda data: record.decode(data).store_ms)

    def _of_records(
        self, places: Iterable[Place], group: str, told: Callable[[bytes], int]
    ) -> dict[Place, int]:
        name = with_namespace(self._namespace, group)
        questions: dict[Any, tuple[Queue, Callable[[str, MessageQueue], Operation[int]]]] = {}
        for queue, offset in places:
            everything = Subscription(with_namespace(self._namespace, queue.topic), "*", 0)

            def ask(
                address: str, queue: MessageQueue, offset: int = offset, everything: Subscription = everything
            ) -> Operation[int]:
                command = operations.pull_request(queue, offset, everything, name, count=1)
                reply: Command = yield Call(address, command, operations.TIMEOUT_SECONDS)
                return told(reply.body) if reply.code == ResponseCode.SUCCESS else -1

            questions[queue, offset] = (queue, ask)
        found, _ = self._asked(questions)
        return {place: answer for place, answer in found.items() if answer >= 0}

    def _of_each(
        self,
        queues: Iterable[Queue],
        ask: Callable[[str, MessageQueue], Operation[int]],
        *,
        of_master: bool = False,
    ) -> Answers:
        return Answers(*self._asked({queue: (queue, ask) for queue in queues}, of_master))

    def _asked(
        self,
        questions: Mapping[Any, tuple[Queue, Callable[[str, MessageQueue], Operation[int]]]],
        of_master: bool = False,
    ) -> tuple[dict[Any, int], dict[Any, MQError]]:
        operations_by_key: dict[Hashable, Operation[int]] = {}
        failed: dict[Any, MQError] = {}
        for key, (queue, ask) in questions.items():
            try:
                route = self.route(queue.topic)
                address = route.master(queue.broker_name) if of_master else route.reader(queue.broker_name)
            except (NotFound, Unreachable) as error:
                failed[key] = error
            else:
                operations_by_key[key] = ask(address, self.wire(queue))
        results = self.run(_side_by_side(operations_by_key))
        found: dict[Any, int] = {}
        for key, outcome in results.items():
            if isinstance(outcome, MQError):
                failed[key] = outcome
            else:
                found[key] = outcome
        return found, failed


def _side_by_side(questions: Mapping[Hashable, Operation[int]]) -> Operation[dict[Hashable, int | MQError]]:
    """Run operations that each make calls one after the other, many of them at a time."""
    results: dict[Hashable, int | MQError] = {}
    waiting = list(questions.items())[::-1]
    under_way: dict[Hashable, Operation[int]] = {}

    def advanced(
        key: Hashable, operation: Operation[int], outcome: Command | MQError | None
    ) -> Operation[None]:
        try:
            step = operation.throw(outcome) if isinstance(outcome, MQError) else operation.send(outcome)
            assert isinstance(step, Call)
            under_way[key] = operation
            yield Launch(key, step)
        except StopIteration as done:
            results[key] = done.value
        except MQError as error:
            under_way.pop(key, None)
            results[key] = error

    while waiting or under_way:
        while waiting and len(under_way) < IN_FLIGHT_MAX:
            key, operation = waiting.pop()
            yield from advanced(key, operation, None)
        if under_way:
            settled: Settled = yield Collect(1.0)
            for token, outcome in settled:
                yield from advanced(token, under_way.pop(token), outcome)
    return results
