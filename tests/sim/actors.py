"""Who talks to the brokers: real producers and consumers of ours on simulated machines, and what they note.

    Sender        one message after the other: anywhere, by key, in batches, with delays, in transactions
    Member        a consumer: handles, fails, hands back; those of the group `keepers` in order
    Reader        of the group `readers`: plain pulls, and commits it knows of
    SlowReader    asks for much and reads little

Each lives on a machine of its own, may be killed, and then begins anew with what the brokers know of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from kourou.client.asking import Asking
from kourou.client.consumer_settings import ConsumerSettings
from kourou.client.consuming import Consuming
from kourou.client.delays import DelayLevel
from kourou.client.drive import AsyncDriver
from kourou.client.producer_settings import ProducerSettings
from kourou.client.route_news import route_news
from kourou.client.sending import Sending
from kourou.client.sends import SendAttempt, SendResult, SendStatus
from kourou.client.transaction_producer import AsyncTransactionProducer
from kourou.client.transactions import TransactionState
from kourou.client.workers import Finished, Listener, Task
from kourou.errors import MQError
from kourou.message import Message, ReceivedMessage
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import OffsetReply, PullMessage, PullReply, QueryOffset, UpdateOffset
from kourou.protocol.record import decode_all
from kourou.remoting.client import Client
from tests.chaos.oracle import ANY_QUEUE, Queue, Sent, Stored
from tests.sim.machines import Machine, SeededChance

if TYPE_CHECKING:
    from tests.sim.world import World

FREE, ORDERED, LATER = "free", "ordered", "later"
"""The topics: sent to anywhere; by key, read in order; with delays and in transactions."""

WORKERS, KEEPERS, READERS = "workers", "keepers", "readers"
READS = {WORKERS: (FREE, LATER), KEEPERS: (ORDERED,)}
DELAY_LEVELS_MAX = 3
PROOFS = 6


class SimulatedProducer(AsyncTransactionProducer):
    """A producer of ours, behind simulated doors."""

    def __init__(self, machine: Machine, group: str, check: Any, name_servers: str, **options: Any) -> None:
        chance = SeededChance(machine.chance.getrandbits(32))
        self._check = check
        self._is_answering = False
        self._checks = set()
        self._sending = Sending(group, name_servers, ProducerSettings(**options), machine.clock, chance)
        self._asking = Asking(self._sending, chance)
        self._lingering = None
        news = route_news(self._sending.routes)
        handlers = {**self._asking.handlers, **self._own_handlers(), **news}
        client = Client(
            network=machine.network,
            clock=machine.clock,
            chance=chance,
            handlers=handlers,
            retry_seconds_max=1.0,
        )
        self._driver = AsyncDriver(client)

    def abandon(self) -> None:
        """Its process is dead."""
        for task in in_order_of_birth([*self._driver._tasks, *self._checks]):
            task.cancel()


class Actor:
    """Somebody on a machine, who begins anew after being killed."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.world = world
        self.machine = machine
        self.chance = machine.chance
        self.history = world.history
        self._life: asyncio.Task[Any] | None = None

    def start(self) -> None:
        self.machine.boot()
        self._life = self.machine.spawn(self._live())

    def kill(self) -> None:
        self.machine.kill()
        if self._life is not None:
            self._life.cancel()

    async def _live(self) -> None: ...


class Sender(Actor):
    def __init__(self, world: World, machine: Machine, name: str) -> None:
        super().__init__(world, machine)
        self.name = name
        self._number = 0
        self._trying: list[Sent] = []
        self._tried_at = 0.0
        self._open: set[str] = set()  # transactions whose work is being done
        self._ended: dict[str, TransactionState] = {}
        self.outcomes: dict[str, int] = {}
        self.last_error = ""
        self.producer: SimulatedProducer = None  # type: ignore[assignment]

    def kill(self) -> None:
        super().kill()
        self._open.clear()
        self.producer.abandon()

    async def _live(self) -> None:
        self.producer = SimulatedProducer(
            self.machine,
            f"senders-{self.name}",
            self._checked,
            self.world.name_servers,
            hooks=(self,),
            compress_over=600,
        )
        self.producer._begin_answering()
        ways, weights = zip(*self.world.plan.ways.items(), strict=True)
        while self.world.is_busy:
            way = self.chance.choices(ways, weights)[0]
            await self._attempt(getattr(self, f"_send_{way}")())
            await asyncio.sleep(self.chance.expovariate(1 / self.world.plan.think_seconds))

    async def _attempt(self, sending: Any) -> bool:
        try:
            await sending
        except MQError as error:
            self._count(type(error).__name__)
            self.last_error = f"{type(error).__name__}: {error}"
            return False
        finally:
            self._trying = []
        return True

    def _count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    async def proves_that_it_goes_on(self) -> bool:
        """A few more sends, which succeed unless something is wrong."""
        assert self._life is not None
        await asyncio.wait([self._life])
        return all(
            [
                await self._attempt(send())
                for send in (self._send_anywhere, self._send_by_key)
                for _ in range(PROOFS)
            ],
        )

    # ------------------------------------------------------------------------------------- ways to send

    async def _send_anywhere(self) -> None:
        sent = self._next(FREE)
        self._note(await self.producer.send(_message(sent)), [sent])

    async def _send_by_key(self) -> None:
        sent = self._next(ORDERED)
        self._note(await self.producer.send(_message(sent), key=f"k{self.chance.randrange(4)}"), [sent])

    async def _send_batch(self) -> None:
        several = [self._next(FREE) for _ in range(self.chance.randint(2, 6))]
        self._note(await self.producer.send_batch([_message(each) for each in several]), several)

    async def _send_delayed(self) -> None:
        sent = self._next(LATER)
        if self.chance.random() < 0.5:
            delay: Any = DelayLevel(self.chance.randint(1, DELAY_LEVELS_MAX))
            seconds = self.world.plan.delay_levels_ms[delay - 1] / 1000
        else:
            delay = seconds = self.chance.uniform(0.2, 4.0)
        self.world.due(sent.id, seconds)
        result = await self.producer.send(_message(sent), delay=delay)
        self._promise(result, sent, "I10")

    async def _send_transaction(self) -> None:
        sent = self._next(LATER)
        self._open.add(sent.id)
        try:
            async with self.producer.transaction(_message(sent)) as transaction:
                began = asyncio.get_running_loop().time()
                await asyncio.sleep(self.chance.choice((0.0, 0.05, 0.5, 3.0)))
                state = self.chance.choice((TransactionState.COMMIT, TransactionState.ROLLBACK))
                if state is TransactionState.COMMIT:
                    self._promise(transaction.sent, sent, "I9")
                    if self.world.may_have_lost(transaction.sent.broker_name, began):
                        self.history.excused.add(sent.id)
                else:
                    self.history.was_rolled_back(sent)
                    transaction.rollback()
                self._ended[sent.id] = state
                if self.chance.random() < 0.4:
                    transaction.leave_unknown()
        finally:
            self._open.discard(sent.id)

    def _checked(self, message: ReceivedMessage) -> TransactionState:
        """A broker asks what became of a transaction; one that nobody finished shall not have been."""
        identity = identity_of(message.body)
        if identity in self._open or self.chance.random() < 0.2:
            return TransactionState.UNKNOWN
        if identity not in self._ended:
            self._ended[identity] = TransactionState.ROLLBACK
            self.history.was_rolled_back(Sent(*_named(identity), (LATER, ANY_QUEUE), b"", {}))
        return self._ended[identity]

    # ------------------------------------------------------------------------------------------- its notes

    def _next(self, topic: str) -> Sent:
        number = self._number
        self._number += 1
        body = f"{self.name}/{number}/".encode() + b"." * (self.chance.randrange(25) ** 2)
        properties = {"KEYS": f"{self.name}-{number}", "TAGS": f"tag{number % 3}"}
        sent = Sent(self.name, number, (topic, ANY_QUEUE), body, properties)
        self.history.sends(sent)
        self._trying.append(sent)
        return sent

    def _note(self, result: SendResult, messages: list[Sent]) -> None:
        self._count(result.status.value)
        if self._is_safe(result):
            queue = (f"{messages[0].queue[0]}@{result.broker_name}", result.queue_id)
            for index, message in enumerate(messages):
                self.history.unknown[message.id] -= 1
                self.history.was_acknowledged(message, result.queue_offset + index, queue)

    def _promise(self, result: SendResult, message: Sent, invariant: str) -> None:
        self._count(result.status.value)
        if self._is_safe(result):
            self.history.unknown[message.id] -= 1
            self.history.was_promised(message, invariant)

    def _is_safe(self, result: SendResult) -> bool:
        """Whether it says that the message is there. Not when the power failed, unflushed, while it was under
        way: the start that looked at the disk may have been faster than the answer."""
        is_stored = result.status is SendStatus.SEND_OK
        return is_stored and not self.world.may_have_lost(result.broker_name, self._tried_at)

    # Each try may have stored it, until an answer says so.

    def before_send(self, attempt: SendAttempt) -> None:
        self._tried_at = asyncio.get_running_loop().time()
        for message in self._trying:
            self.history.unknown[message.id] += 1

    def after_send(self, attempt: SendAttempt) -> None:
        if attempt.error is not None:
            for message in self._trying:
                self.history.happened(f"{message.id}: {type(attempt.error).__name__}")


def _message(sent: Sent) -> Message:
    return Message(sent.queue[0], sent.body, keys=sent.properties["KEYS"], tags=sent.properties["TAGS"])


def in_order_of_birth(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Those of a set, in an order that does not hang on where they lie in memory."""
    return sorted(tasks, key=lambda task: int(task.get_name().rpartition("-")[2]))


def identity_of(body: bytes) -> str:
    return b"/".join(body.split(b"/", 2)[:2]).decode()


def _named(identity: str) -> tuple[str, int]:
    sender, _, number = identity.partition("/")
    return sender, int(number)


class Hands:
    """Handlers at work, without threads: each takes its time."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._waiting: list[Task] = []
        self._finished: Finished = lambda tasks: None

    def start(self, finished: Finished) -> None:
        self._finished = finished

    def submit(self, tasks: Iterable[Task]) -> None:
        clock = self._member.machine.clock
        for task in tasks:
            self._waiting.append(task)
            self._member.sees(task.messages())
            task.started_at = clock.monotonic()
            seconds = self._member.chance.expovariate(1 / self._member.world.plan.handling_seconds)
            clock.later(seconds, partial(self._work, task))

    def _work(self, task: Task) -> None:
        if task not in self._waiting:
            return
        for number, unit in enumerate(task.units):
            if number and not task.goes_on:
                break
            try:
                task.listener.handler(unit if task.listener.batch_size else unit[0])
            except Exception as failure:
                task.failure = failure
                break
            task.done += 1
        self._waiting.remove(task)
        self._finished([task])

    def running(self) -> list[Task]:
        return list(self._waiting)

    def cancel_waiting(self) -> list[Task]:
        return []

    def stop(self) -> None:
        self._waiting = []


class _Fails(Exception):
    """What a handler may do."""


class Member(Actor):
    def __init__(self, world: World, machine: Machine, group: str) -> None:
        super().__init__(world, machine)
        self.group = group
        self.engine: Consuming | None = None

    async def _live(self) -> None:
        engine = self.engine = Consuming(
            self.group,
            self.world.name_servers,
            ConsumerSettings(
                start="earliest", rebalance_seconds=5.0, heartbeat_seconds=5.0, commit_seconds=1.0
            ),
            workers=Hands(self),
            clock=self.machine.clock,
            chance=SeededChance(self.chance.getrandbits(32)),
            files=self.machine.files,
        )
        for topic in READS[self.group]:
            engine.subscribe(topic, None, None, Listener(self._handle, ordered=topic == ORDERED))
        while True:
            try:
                await engine.start(self.machine.network)
            except MQError:
                await asyncio.sleep(0.5)
                engine.is_started = engine.is_stopping = False
            else:
                return

    def kill(self) -> None:
        super().kill()
        engine = self.engine
        if engine is not None:
            for task in in_order_of_birth(engine._background):
                task.cancel()

    def sees(self, messages: Iterable[ReceivedMessage]) -> None:
        """These have arrived; from a broker that waits for its disk they can never be gone again."""
        for message in messages:
            place = (f"{message.topic}@{message.broker_name}", message.queue_id, message.queue_offset)
            self.world.saw(self.group, place)
            if self.world.is_sync and not message.reconsume_times:
                self.history.was_shown(identity_of(message.body), place)

    def _handle(self, message: ReceivedMessage) -> None:
        identity = identity_of(message.body)
        place = (f"{message.topic}@{message.broker_name}", message.queue_id, message.queue_offset)
        if message.topic == ORDERED:
            self.world.ordered(place)
        self.world.handing_out(message, identity)
        if self.chance.random() < self.world.plan.failing_handlers:
            self.world.handed_back.add(identity)
            raise _Fails
        if message.topic == ORDERED:
            self.world.done_in_order(place)
        self.history.was_handled(self.group, identity, place)


class Reader(Actor):
    """Reads each queue of a topic at each broker, from where its group is."""

    async def _live(self) -> None:
        self.client = Client(
            network=self.machine.network,
            clock=self.machine.clock,
            chance=SeededChance(self.chance.getrandbits(32)),
            retry_seconds_max=1.0,
        )
        places: dict[tuple[str, int], int] = {}
        while True:
            for broker in self.world.brokers:
                for queue_id in range(self.world.plan.queues):
                    with _whatever_happens():
                        await self._read(broker.name, broker.host, queue_id, places)
            await asyncio.sleep(self.world.plan.reading_seconds)

    async def _read(self, broker: str, host: str, queue_id: int, places: dict[tuple[str, int], int]) -> None:
        address = f"{host}:10911"
        key = (broker, queue_id)
        if key not in places:
            header = QueryOffset(consumer_group=READERS, topic=FREE, queue_id=queue_id)
            reply = await self._ask(address, request(RequestCode.QUERY_CONSUMER_OFFSET, header))
            places[key] = reply.parse(OffsetReply).offset if reply.code == ResponseCode.SUCCESS else 0
        pull = PullMessage(
            consumer_group=READERS,
            topic=FREE,
            queue_id=queue_id,
            queue_offset=places[key],
            message_count_max=16,
            sys_flag=4,
            subscription="*",
            expression_type="TAG",
        )
        asked_at = asyncio.get_running_loop().time()
        reply = await self._ask(address, request(RequestCode.PULL_MESSAGE, pull))
        if self.world.may_have_lost(broker, asked_at):
            return  # as with acknowledgements: the start that looked at the disk may have been faster
        if reply.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_OFFSET_MOVED,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
        ):
            return
        queue: Queue = (f"{FREE}@{broker}", queue_id)
        places[key] = reply.parse(PullReply).next_begin_offset
        if reply.code == ResponseCode.SUCCESS:
            self.history.was_given(stored_of(broker, reply.body))
            self.history.commits(queue, places[key])
            update = UpdateOffset(
                consumer_group=READERS, topic=FREE, queue_id=queue_id, commit_offset=places[key]
            )
            await self._ask(address, request(RequestCode.UPDATE_CONSUMER_OFFSET, update))

    async def _ask(self, address: str, command: Command) -> Command:
        return await self.client.call(address, command, 3.0)


class SlowReader(Reader):
    """Asks and asks, and does not take what it is sent."""

    async def _live(self) -> None:
        self.client = Client(
            network=self.machine.network,
            clock=self.machine.clock,
            chance=SeededChance(3),
            retry_seconds_max=1.0,
        )
        while True:
            for broker in self.world.brokers:
                pull = PullMessage(
                    consumer_group="slow",
                    topic=FREE,
                    queue_id=self.chance.randrange(self.world.plan.queues),
                    queue_offset=0,
                    message_count_max=32,
                    sys_flag=4,
                    subscription="*",
                )
                command = request(RequestCode.PULL_MESSAGE, pull)
                self.client.call_soon(f"{broker.host}:10911", command, 3.0, lambda outcome: None)
            await asyncio.sleep(0.3)


@contextmanager
def _whatever_happens() -> Iterator[None]:
    try:
        yield
    except MQError:
        return  # the broker is away; it will be asked again


def stored_of(broker: str, data: bytes) -> list[Stored]:
    return [
        Stored(
            (f"{record.topic_name()}@{broker}", record.queue_id, record.queue_offset),
            record.plain_body(),
            record.property_table(),
            record.store_ms,
        )
        for record in decode_all(data)
    ]
