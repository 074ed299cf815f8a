"""What a slave copies that is not in the log: topics, groups, how far everybody has come.

    every three seconds, and when the master says that something changed

    topics, groups               taken at once
    offsets, delays, timers      taken when this log reaches as far as the master's did when they were true

Asked for on the master's ordinary port with the original's requests, so the master may be the original's. An
offset that consumers committed here while the master was away is handed back to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kourou.doors.clock import Clock, Timer
from kourou.errors import MQError, ProtocolError, Refused
from kourou.protocol.bodies import (
    ConsumerOffsets,
    DelayOffsets,
    GroupTable,
    KVTable,
    TimerCheckpoint,
    TopicTable,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import UpdateOffset
from kourou.remoting.client import Client
from kourou.remoting.complaints import Complaints

TIMEOUT_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 0.3
HAND_BACK_MAX: Final = 1_000

logger = logging.getLogger(__name__)


class TimersDone(NamedTuple):
    """Of the timer topic: messages before `queue_offset` that were due before this are delivered."""

    queue_offset: int
    before_ms: int
    before_place: int


class Commit(NamedTuple):
    """How far a group has come in a queue."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int


class Snapshot(NamedTuple):
    """What was true when the master's log reached to `end`."""

    end: int
    offsets: ConsumerOffsets
    delays: DelayOffsets | None
    timers: TimersDone | None
    """None: the master cannot tell, or not yet."""


class Target(Protocol):
    """Where it goes: a broker's tables."""

    def take_topics(self, table: TopicTable) -> None: ...
    def take_groups(self, table: GroupTable) -> None: ...
    def take_snapshot(self, snapshot: Snapshot) -> list[Commit]:
        """Returns what was committed here, and is further than the master knows."""


class MetadataSync:
    """Keeps a slave's tables like its master's."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        target: Target,
        dispatched: Callable[[], int],
        interval_ms: int,
    ) -> None:
        """`dispatched()`: how far this log is visible."""
        self._client = client
        self._clock = clock
        self._target = target
        self._dispatched = dispatched
        self._interval = interval_ms / 1000
        self._address: str | None = None
        self._timer: Timer | None = None
        self._round: asyncio.Task[None] | None = None
        self._is_wanted = False
        self._then: Callable[[], None] | None = None
        self._waiting: Snapshot | None = None
        self._complaints = Complaints(logger, clock)
        self.rounds = 0
        """How often everything was copied."""
        self.last_ms = 0

    def follow(self, address: str) -> None:
        """Copy from the master that serves its clients at `address`."""
        if address != self._address:
            self.stop()
            self._address = address
            self._timer = self._clock.every(self._interval, self.now)
            self.now()

    def stop(self) -> None:
        self._address = None
        self._waiting = self._then = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._round is not None:
            self._round.cancel()
            self._round = None

    def now(self, then: Callable[[], None] | None = None) -> None:
        """Something may have changed. `then` is called when topics and groups that were asked for after this
        are kept here, unless somebody else asks to be called before."""
        self._then = then or self._then
        self.log_grew()
        if self._address is None:
            return
        if self._round is not None:
            self._is_wanted = True
            return
        self._is_wanted = False
        self._round = asyncio.get_running_loop().create_task(self._copy(self._address))

    async def _copy(self, address: str) -> None:
        try:
            await self._copy_all(address)
        except MQError as error:
            self._complaints.warn("copy", f"topics and offsets are not copied from {address}: {error}")
        except Exception:
            logger.exception("copying topics and offsets from %s failed", address)
        self._round = None
        if self._is_wanted:
            self.now()
        elif self._then is not None:  # it went wrong, and the master waits to hear of it
            self._clock.later(RETRY_SECONDS, self.now)

    async def _copy_all(self, address: str) -> None:
        then = self._then  # asked for before this round: it is kept until a round has come that far
        topics = TopicTable.decode(await self._body(address, RequestCode.GET_ALL_TOPIC_CONFIG))
        self._target.take_topics(topics)
        groups = GroupTable.decode(await self._body(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        self._target.take_groups(groups)
        if then is not None:
            if then is self._then:
                self._then = None
            then()
        offsets = ConsumerOffsets.decode(await self._body(address, RequestCode.GET_ALL_CONSUMER_OFFSET))
        delays = await self._delays(address)
        timers = await self._timers(address)
        figures = KVTable.decode(await self._body(address, RequestCode.GET_BROKER_RUNTIME_INFO)).table
        end = figures.get("commitLogMaxOffset", "")
        if not end.isdecimal():
            raise ProtocolError(f"the master says that its log ends at '{end[:40]}'")
        self._waiting = Snapshot(int(end), offsets, delays, timers)
        self.rounds += 1
        self.last_ms = self._clock.now_ms()
        self.log_grew()

    async def _delays(self, address: str) -> DelayOffsets | None:
        reply = await self._call(address, request(RequestCode.GET_ALL_DELAY_OFFSET))
        if reply.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            return None  # it has become the master only just now
        text = _body_of(reply, RequestCode.GET_ALL_DELAY_OFFSET)
        return DelayOffsets.decode(text) if text.strip() else DelayOffsets()

    async def _timers(self, address: str) -> TimersDone | None:
        reply = await self._call(address, request(RequestCode.GET_TIMER_CHECK_POINT))
        if reply.code != ResponseCode.SUCCESS:
            return None
        fields = reply.fields
        ours = [fields.get(name, "") for name in TIMER_FIELDS]
        if all(each.isdecimal() for each in ours):
            return TimersDone(*map(int, ours))
        if len(reply.body) < TIMER_CHECKPOINT_BYTES:
            return None
        checkpoint = TimerCheckpoint.decode(reply.body)
        return TimersDone(max(0, checkpoint.timer_queue_offset), max(0, checkpoint.last_read_ms - 1_000), 0)

    async def _body(self, address: str, code: RequestCode) -> bytes:
        return _body_of(await self._call(address, request(code)), code)

    async def _call(self, address: str, command: Command) -> Command:
        return await self._client.call(address, command, TIMEOUT_SECONDS)

    def log_grew(self) -> None:
        """Take what waits, if this log has come that far."""
        waiting = self._waiting
        if waiting is None or self._dispatched() < waiting.end:
            return
        self._waiting = None
        for commit in self._target.take_snapshot(waiting)[:HAND_BACK_MAX]:
            self._hand_back(commit)

    def _hand_back(self, commit: Commit) -> None:
        if self._address is None:
            return
        header = UpdateOffset(commit.group, commit.topic, commit.queue_id, commit.queue_offset)
        command = request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        self._client.call_soon(self._address, command, TIMEOUT_SECONDS, lambda _: None)


def _body_of(reply: Command, code: RequestCode) -> bytes:
    if reply.code != ResponseCode.SUCCESS:
        raise Refused(reply.code, f"{code.name}: {reply.remark or 'no reason given'}")
    return reply.body


TIMER_FIELDS: Final = ("kourouQueueOffset", "kourouBeforeMs", "kourouBeforePlace")
TIMER_CHECKPOINT_BYTES: Final = 56
