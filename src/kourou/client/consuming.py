"""A member of a consumer group at work: the engine under all consumers that brokers feed.

    rebalance.py   which queues are ours; membership.py: that brokers know us; locks.py: ours alone
    fetching.py    reads them
    handling.py    hands messages to handlers, and does what they ask for
    offsets.py     where to begin, and how far the group is
    answers.py     what brokers ask of us
    held_queue.py  what all of these know about a queue that is ours

Everything here runs on one event loop and never blocks it; handlers run elsewhere (`workers.py`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from kourou.client import membership
from kourou.client.answers import Answers
from kourou.client.brokers import Brokers
from kourou.client.consume_hooks import ConsumeHooks
from kourou.client.consumer_settings import ConsumerSettings
from kourou.client.drive import AsyncDriver
from kourou.client.fetching import Fetching
from kourou.client.figures import Figures
from kourou.client.handling import Handling
from kourou.client.held_queue import HeldQueue
from kourou.client.locks import RENEW_SECONDS, Locks
from kourou.client.membership import Membership
from kourou.client.namespaces import queue_without_namespace, with_namespace, without_namespace
from kourou.client.offsets import FileOffsets, Places, default_offsets_file
from kourou.client.operations import SQL92, TAG, Subscription
from kourou.client.presence import client_id
from kourou.client.rebalance import SOON_SECONDS, Rebalance
from kourou.client.route_news import route_news
from kourou.client.routes import LOOKUP_SECONDS, Route
from kourou.client.settings import check_filter, checked_consumer_group, checked_drain, checked_topic
from kourou.client.steps import Operation
from kourou.client.workers import Listener, Task, Workers
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, Timer
from kourou.doors.files import Files
from kourou.doors.network import Network
from kourou.errors import ConfigError, MQError, NotFound, Refused
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message_id import UniqueIds
from kourou.protocol.names import retry_topic
from kourou.remoting.client import Client
from kourou.remoting.complaints import Complaints
from kourou.remoting.limit import Limit

if TYPE_CHECKING:
    from kourou.client.trace import Tracing

RETRY_SECONDS_MAX = 1.0
"""How long a broker that was away may be back before we notice."""
PLACES_SECONDS = 3.0
"""How long a start waits to be told where to begin."""
EXPIRE_SCAN_SECONDS = 10.0
TRACE_SECONDS = 5.0
"""How long a line of the message trace waits for others."""

_log = logging.getLogger("kourou.client")


class Consuming:
    """One member of one group. Belongs to the event loop it is started on."""

    def __init__(
        self,
        group: str,
        name_server: str | Iterable[str] | None,
        settings: ConsumerSettings,
        *,
        workers: Workers,
        clock: Clock,
        chance: Chance,
        files: Files,
        polled: bool = False,
        auto_commit: bool = True,
    ) -> None:
        """A `polled` one has no handlers that could fail: nothing is handed back, nothing comes again.
        Without `auto_commit` the group's place is kept when `commit` says so, and only then."""
        self.group = checked_consumer_group(with_namespace(settings.namespace, checked_consumer_group(group)))
        self.settings = settings
        self.client_id = client_id(clock)
        self.started_at_ms = 0
        self.subscriptions: dict[str, Subscription] = {}
        self.listeners: dict[str, Listener] = {}
        self.held: dict[MessageQueue, HeldQueue] = {}
        self.paused: set[str | MessageQueue] = set()
        self.routes = settings.routes(name_server, clock, chance)
        self._workers = workers
        self._clock = clock
        self._chance = chance
        self._files = files
        self._polled = polled
        self._auto_commit = auto_commit
        self._timers: list[Timer] = []
        self._background: set[asyncio.Task[None]] = set()
        self._owed: set[asyncio.Task[None]] = set()  # those of them that hand messages back
        self._opening: set[asyncio.Task[None]] = set()  # those that find where to begin in a queue
        self._quiet: asyncio.Event | None = None
        self._over: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._direct: dict[Task, Callable[[float], None]] = {}
        self._complaints = Complaints(_log, clock)
        self.figures = Figures(clock)
        self._tracing = self._traced(name_server) if settings.trace else None
        self.hooks = self._all_hooks()
        self.is_started = False
        self.is_stopping = False

    def subscribe(self, topic: str, tags: str | None, sql: str | None, listener: Listener) -> None:
        """Want messages of a topic; also while it is running."""
        topic = checked_topic(with_namespace(self.settings.namespace, checked_topic(topic)))
        if tags is not None and sql is not None:
            raise ConfigError("tags and sql both say which messages are wanted; give one")
        if topic in self.listeners:
            raise ConfigError(f"topic '{topic}' has a handler already; one handler is for one topic")
        if self.is_stopping:
            raise ConfigError("this consumer is closed; make a new one")
        kind, expression = (TAG, "*" if tags is None else tags) if sql is None else (SQL92, sql)
        check_filter(topic, expression)
        self.subscriptions[topic] = Subscription(topic, expression, self._clock.now_ms(), kind)
        if self.hooks is not None and not self._polled:
            listener.observe(self.hooks)
        self.listeners[topic] = listener
        if self.is_started:
            self._membership.say_again()
            self._rebalance.look_soon()

    def _traced(self, name_server: str | Iterable[str] | None) -> Tracing:
        from kourou.client.trace import tracing  # off by default

        return tracing(
            without_namespace(self.settings.namespace, self.group),
            "CONSUME",
            self.settings.trace,
            self.settings,
            name_server,
            self._clock,
            self._chance,
            self._tell_trace,
            lambda chore: None,  # a timer of ours does it
        )

    def _all_hooks(self) -> ConsumeHooks | None:
        hooks = [*self.settings.hooks]
        if self.settings.telemetry is not None:
            hooks.append(self.settings.telemetry)
        if self._tracing is not None:
            from kourou.client.trace import ConsumeTrace

            ids = UniqueIds(self._chance.secret_bytes(4), os.getpid(), self._chance.getrandbits(32))
            hooks.append(ConsumeTrace(self._tracing, ids, self.settings.consume_timeout))
        if not hooks:
            return None
        return ConsumeHooks(without_namespace(self.settings.namespace, self.group), hooks, self._clock)

    def _flush_trace(self, told: Tracing) -> None:
        self._spawn(self.brokers.run(told.flush()))

    def _tell_trace(self, told: Operation[None]) -> None:
        """In whichever thread the trace has become long enough to be sent."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(lambda: self._spawn(self.brokers.run(told)))
        except RuntimeError:  # the loop is closed: nobody can be told any more
            told.close()

    # --------------------------------------------------------------------------------------------- its life

    async def start(self, network: Network) -> None:
        """Become a member, and take up the queues that are ours.

        Raises Unreachable when no name server answers, ConfigError when a broker cannot filter as asked,
        Refused when no broker wants us.
        """
        if self.is_stopping:
            raise ConfigError("this consumer is closed; make a new one")
        if self.is_started:
            raise ConfigError("this consumer is running already")
        if not self.listeners:
            raise ConfigError(
                "nothing is subscribed here; call `subscribe` or `assign` before you poll"
                if self._polled
                else "this consumer has no handler; add one with `on` before it starts"
            )
        self._loop = asyncio.get_running_loop()
        self.started_at_ms = self._clock.now_ms()
        if not self.settings.broadcast and not self._polled:
            topic = retry_topic(self.group)
            self.subscriptions[topic] = Subscription(topic, "*", self._clock.now_ms())
        try:
            self._build(network)
        except MQError:  # a certificate that cannot be read, say: there is nobody to take leave of
            self.is_stopping = True
            raise
        self.is_started = True
        self._workers.start(self._finished)
        try:
            await self._join()
        except BaseException as error:
            was_closed = self._over is not None
            await self.stop(0.0)
            self.is_started = False  # closed, and never was a member: who wants to run it has to hear that
            if was_closed and isinstance(error, MQError):
                raise ConfigError("this consumer was closed while it started; make a new one") from None
            raise
        self._timers += [
            self._clock.every(self.settings.heartbeat_seconds, self._beat),
            self._clock.every(self.settings.commit_seconds, self._keep_places),
            self._clock.every(EXPIRE_SCAN_SECONDS, self.handling.expire),
            self._clock.every(RENEW_SECONDS, lambda: self._locks.renew(self._locked())),
        ]
        if self._tracing is not None:
            flush = partial(self._flush_trace, self._tracing)
            self._timers.append(self._clock.every(TRACE_SECONDS, flush))

    def _beat(self) -> None:
        self._spawn(self._membership.beat())

    async def _join(self) -> None:
        """Become known, and take up what is ours; raises also when it was closed meanwhile."""
        await self._check_expressions()
        await self._rebalance.look()
        if self._membership.refusal is not None and not self.held:
            raise self._membership.refusal
        await self._know_places()
        if self.is_stopping:
            raise ConfigError("this consumer is closed; make a new one")

    async def _know_places(self) -> None:
        """Wait until we know where to begin: a new group that begins with what comes is to have everything
        sent after its start. A broker that does not answer keeps nobody waiting for long."""
        if not self._opening:
            return
        try:
            async with Limit(self._clock, PLACES_SECONDS):
                await asyncio.wait(self._opening)  # goes on with them, should the time be over
        except TimeoutError:
            _log.warning("group %s does not know yet where to begin in every queue it has", self.group)

    async def queues(self, topic: str, network: Network) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read, be it subscribed to or not; also before the start."""
        if self.is_stopping:
            raise ConfigError("this consumer is closed; make a new one")
        settings = self.settings
        topic = checked_topic(with_namespace(settings.namespace, checked_topic(topic)))
        question = self.routes.ask(topic, LOOKUP_SECONDS)
        if self.is_started:
            told = await self.brokers.run(question)
        else:
            client = Client(network=network, clock=self._clock, tls=settings.tls, sign=settings.sign)
            try:
                told = await AsyncDriver(client).run(question)
            finally:
                await client.close()
        found = Route(topic, told).read_queues
        return tuple(queue_without_namespace(settings.namespace, queue) for queue in found)

    def _build(self, network: Network) -> None:
        clock, settings = self._clock, self.settings
        client = Client(
            network=network,
            clock=clock,
            chance=self._chance,
            handlers={**Answers(self).table(), **route_news(self.routes, self._routes_changed)},
            tls=settings.tls,
            sign=settings.sign,
            retry_seconds_max=RETRY_SECONDS_MAX,
        )
        self.brokers = brokers = Brokers(client, self.routes, clock)
        self._membership = Membership(
            self.group,
            self.client_id,
            brokers,
            clock,
            seconds=settings.heartbeat_seconds,
            consumer_data=self.consumer_data,
            forgotten=lambda: self._rebalance.be_alert(SOON_SECONDS / 4),
        )
        self._rebalance = Rebalance(
            self.group,
            self.client_id,
            self.subscriptions,
            brokers,
            self._membership,
            settings,
            clock,
            held=self.held,
            spawn=self._spawn,
            take_up=self._take_up,
            give_up=self._give_up,
        )
        self._locks = Locks(
            self.group,
            self.client_id,
            brokers,
            clock,
            spawn=self._spawn,
            renewed=self._lock_renewed,
            lost=self._lock_lost,
        )
        self._places = Places(self.group, brokers, settings.start, clock, self._spawn, self._offsets_file())
        self.handling = Handling(
            self.group,
            self.listeners,
            brokers,
            self._workers,
            settings,
            clock,
            figures=self.figures,
            spawn=self._owe,
            went_on=self._went_on,
        )
        self.fetching = Fetching(
            self.group,
            brokers,
            settings,
            clock,
            paused=self.paused,
            commits=self._auto_commit and not settings.broadcast,
            figures=self.figures,
            arrived=self.handling.arrived,
            moved=self._keep_place,
            failed=self._rebalance.be_alert,
        )

    def _offsets_file(self) -> FileOffsets | None:
        if not self.settings.broadcast:
            return None
        path = self.settings.offsets_file or default_offsets_file(self.group)
        return FileOffsets(self._files, os.path.abspath(path))  # a bare name has no folder to be made

    async def _check_expressions(self) -> None:
        for subscription in list(self.subscriptions.values()):
            if subscription.kind == SQL92:
                try:
                    route = await self.brokers.look_up(subscription.topic)
                except NotFound:
                    continue  # it is waited for, as any other topic
                for address in sorted(route.addresses()):
                    await self._check_expression(address, subscription)

    async def _check_expression(self, address: str, subscription: Subscription) -> None:
        check = partial(
            membership.check_expression,
            client_id=self.client_id,
            group=self.group,
            subscription=subscription,
        )
        try:
            await self.brokers.run(check(address))
        except MQError as error:
            found = await self.brokers.find_elsewhere(error, address)
            if found is None:
                raise
            await self.brokers.run(check(found))

    async def stop(self, drain_seconds: float) -> None:
        """Let handlers that are at work end, up to `drain_seconds`; keep the place; take leave.

        Who comes while that is under way waits for it.
        """
        checked_drain("drain", drain_seconds)
        was_running = self.is_started and not self.is_stopping
        self.is_stopping = True
        if was_running:
            self._over = asyncio.Event()
            try:
                await self._stop(drain_seconds)
            finally:
                self._over.set()
        elif self._over is not None:
            await self._over.wait()

    async def _stop(self, drain_seconds: float) -> None:
        self.fetching.is_stopped = self.handling.is_stopped = True
        self._rebalance.stop()
        for timer in self._timers:
            timer.cancel()
        for held in self.held.values():
            held.is_ending = True
        self._workers.cancel_waiting()
        await self._drain(drain_seconds)
        await self._give_up_everything()
        if self._tracing is not None:
            await self.brokers.run(self._tracing.leave())
        for running in list(self._background):
            running.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.brokers.client.close()
        self._workers.stop()

    async def _drain(self, seconds: float) -> None:
        self._quiet = asyncio.Event()
        self._perhaps_quiet()
        try:
            async with Limit(self._clock, seconds):
                await self._quiet.wait()
        except TimeoutError:
            if running := self._workers.running():
                _log.warning("%d handlers did not end within %g s", len(running), seconds)

    def _perhaps_quiet(self) -> None:
        if self._quiet is not None and not self._workers.running() and not self._owed:
            self._quiet.set()

    async def _give_up_everything(self) -> None:
        if self._auto_commit:
            await self.commit()
        await self._locks.unlock(self._locked())
        for held in self.held.values():
            held.is_dropped = True
        await self._membership.leave()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it beside everything else."""
        running = asyncio.get_running_loop().create_task(work)
        self._background.add(running)
        running.add_done_callback(self._ended)
        return running

    def _owe(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside everything else, and let it end before we go."""
        self._owed.add(self._spawn(work))

    def _ended(self, running: asyncio.Task[None]) -> None:
        self._background.discard(running)
        self._owed.discard(running)
        if not running.cancelled() and (error := running.exception()) is not None:
            _log.error("a part of a consumer of group %s failed", self.group, exc_info=error)
        self._perhaps_quiet()

    # ---------------------------------------------------------------------------------- queues come and go

    def _take_up(self, queue: MessageQueue) -> None:
        held = HeldQueue(queue, self.subscriptions[queue.topic], ordered=self._is_ordered(queue.topic))
        if self.settings.broadcast:
            held.locked_until = math.inf
        self.held[queue] = held
        _log.info("group %s reads %s from now on", self.group, queue)
        opening = self._spawn(self._open(held))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    def _is_ordered(self, topic: str) -> bool:
        """Messages that come again come in no order, unless nothing here is without one."""
        listener = self.listeners.get(topic)
        if listener is None:
            return all(each.ordered for each in self.listeners.values())
        return listener.ordered

    async def _open(self, held: HeldQueue) -> None:
        """Find where to begin in a queue that is ours, after locking it if it is ordered."""
        generation = held.generation
        try:
            if held.ordered and not self.settings.broadcast and not await self._locks.lock(held):
                self._open_later(held)
                return
            offset = await self._places.find(held)
        except MQError as error:
            self._complaints.warn(f"begin {held.queue}", f"cannot begin with {held.queue}: {error}")
            self._open_later(held)
            self._rebalance.be_alert()
            return
        if held.counts(generation) and held.fetch_offset is None:
            held.fetch_offset = offset
            self.fetching.go_on(held)

    def _open_later(self, held: HeldQueue) -> None:
        self._clock.later(SOON_SECONDS, partial(self._open_again, held))

    def _open_again(self, held: HeldQueue) -> None:
        if not held.is_ending and not self.is_stopping and held.fetch_offset is None:
            self._spawn(self._open(held))

    def _give_up(self, held: HeldQueue) -> None:
        """It is somebody else's; an ordered one only after the handler that is at work has ended."""
        if not held.is_ending:
            held.is_ending = True
            _log.info("group %s gives up %s", self.group, held.queue)
            self._release_when_done(held)

    def _release_when_done(self, held: HeldQueue) -> None:
        if held.ordered and held.is_busy:
            return
        if self.held.get(held.queue) is held:
            del self.held[held.queue]
            held.is_dropped = True
            self._spawn(self._release(held))

    async def _release(self, held: HeldQueue) -> None:
        if self._auto_commit:
            await self._places.keep(held)
        if held.ordered and not self.settings.broadcast:
            await self._locks.unlock([held])

    def _went_on(self, held: HeldQueue) -> None:
        if held.is_ending and not self.is_stopping:
            self._release_when_done(held)
        else:
            self.fetching.go_on(held)

    def _locked(self) -> list[HeldQueue]:
        if self.settings.broadcast:
            return []
        return [held for held in self.held.values() if held.ordered]

    def _lock_renewed(self, held: HeldQueue) -> None:
        self.handling.go_on(held)
        self.fetching.go_on(held)

    def _lock_lost(self, held: HeldQueue) -> None:
        """Somebody else has it. Should it become ours again, we begin where the group is by then."""
        _log.warning("group %s has lost the lock of %s", self.group, held.queue)
        held.forget_in_flight()
        self._open_later(held)
        self._rebalance.look_soon()

    # ------------------------------------------------------------------------------------- messages in hand

    def _finished(self, tasks: list[Task]) -> None:
        if self._direct:
            tasks = [task for task in tasks if not self._told_directly(task)]
        self.handling.finished(tasks)
        self._perhaps_quiet()

    def consume_directly(
        self, message: ReceivedMessage, listener: Listener, report: Callable[[Task, float], None]
    ) -> None:
        """Have one message handled, outside of all queues and places; `report` is told how that went."""
        if self._polled:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this consumer is polled: it has no handler to call")
        queue = MessageQueue(topic=message.topic, broker_name=message.broker_name, queue_id=message.queue_id)
        aside = HeldQueue(queue, Subscription(message.topic, "*", 0), ordered=False)
        task = Task(aside, listener, [[message]])
        self._direct[task] = partial(report, task)
        self._workers.submit([task])

    def _told_directly(self, task: Task) -> bool:
        report = self._direct.pop(task, None)
        if report is None:
            return False
        began = task.started_at
        report(0.0 if began is None else self._clock.monotonic() - began)
        return True

    # ----------------------------------------------------------------------- for the program and the brokers

    def pause(self, topics: Iterable[str]) -> None:
        """Read no more of these topics; without any, of none at all."""
        self.paused.update(self._named(topics))

    def resume(self, topics: Iterable[str]) -> None:
        """Read them again; without any, all."""
        self.paused.difference_update(self._named(topics))
        for held in self.held.values():
            self.fetching.go_on(held)

    def _named(self, topics: Iterable[str]) -> set[str]:
        named = {with_namespace(self.settings.namespace, topic) for topic in topics}
        if unknown := named - self.subscriptions.keys():
            raise ConfigError(f"not subscribed here: {', '.join(sorted(unknown))}")
        return named or set(self.subscriptions)

    def positions(self) -> dict[MessageQueue, int]:
        """The queues that are ours, and how far the group is in each."""
        return {
            queue_without_namespace(self.settings.namespace, queue): offset
            for queue, held in sorted(self.held.items())
            if (offset := held.commit_offset) is not None
        }

    async def commit(self) -> MQError | None:
        """Store how far the group is, wherever that has changed; return when that is done, or why it failed.

        Every queue is tried.
        """
        failures = await asyncio.gather(*map(self._places.keep, self.held.values()))
        self._places.save()
        return next(filter(None, failures), None)

    def _keep_places(self) -> None:
        for held in self.held.values():
            self._keep_place(held)
        self._places.save()

    def _keep_place(self, held: HeldQueue) -> None:
        if self._auto_commit:
            self._places.keep_soon(held)

    def members_changed(self, topic: str | None = None) -> None:
        """A broker says so, or that `topic` has other queues. Whoever takes a queue over needs to know now
        how far we are."""
        if self.is_started and not self.is_stopping:
            self._keep_places()
            if topic is not None:
                self.routes.doubt(topic)
            self._rebalance.look_soon()

    def _routes_changed(self, seconds: float) -> None:
        """A name server says so: there may be queues for us, or somebody for ours."""
        if not self.is_stopping:
            self._keep_places()
            self._rebalance.look_soon(seconds)

    def move(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on elsewhere in these queues, as far as they are ours: an administrator has reset the group."""
        for queue, offset in offsets.items():
            held = self.held.get(queue)
            if held is not None and not held.is_ending:
                _log.warning("group %s was reset to %d in %s", self.group, offset, queue)
                self.move_to(held, offset)

    def move_to(self, held: HeldQueue, offset: int) -> None:
        """Go on there; what is in flight no longer counts."""
        held.move_to(offset)
        self._keep_place(held)
        self.fetching.go_on(held)

    def consumer_data(self) -> ConsumerData:
        """What a heartbeat says of us."""
        start = self.settings.start
        if isinstance(start, datetime):
            where = ConsumeFromWhere.TIMESTAMP
        elif start == "earliest":
            where = ConsumeFromWhere.FIRST_OFFSET
        else:
            where = ConsumeFromWhere.LAST_OFFSET
        model = MessageModel.BROADCASTING if self.settings.broadcast else MessageModel.CLUSTERING
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.PULL if self._polled else ConsumeType.PUSH,
            message_model=model,
            consume_from_where=where,
            subscription_data_set=[
                membership.subscription_data(each) for _, each in sorted(self.subscriptions.items())
            ],
        )
