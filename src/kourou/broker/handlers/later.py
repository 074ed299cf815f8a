"""How far messages that come back later are: by delay level, by time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from kourou.broker.config import BrokerConfig
from kourou.broker.delays import Delays
from kourou.broker.timers import Timers
from kourou.doors.clock import Clock
from kourou.errors import Busy, Refused
from kourou.protocol.bodies import DataVersion, TimerMetrics, TimingCount
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import TimersDoneReply
from kourou.protocol.record import Record
from kourou.remoting.answer import Answer
from kourou.store.store import Store

RECORDS_A_TURN: Final = 1_000
"""So many are looked at before others get their turn: some five milliseconds."""


class DelayOffsetsHandler:
    """GET_ALL_DELAY_OFFSET (45)."""

    def __init__(self, delays: Delays) -> None:
        self._delays = delays

    def __call__(self, request: Command, answer: Answer) -> None:
        answer(request.reply(body=self._delays.offsets.encode_fastjson()))


class TimerCheckpointHandler:
    """GET_TIMER_CHECK_POINT (60)."""

    def __init__(self, config: BrokerConfig, timers: Timers) -> None:
        self._config = config
        self._timers = timers

    def __call__(self, request: Command, answer: Answer) -> None:
        if not self._config.timers_enabled:
            raise _no_timers("The checkpoint is null")
        progress = self._timers.progress  # in our own terms, for our own slaves: more exact
        done = TimersDoneReply(
            kourou_queue_offset=progress.queue_offset,
            kourou_before_ms=progress.delivered_before_ms,
            kourou_before_place=progress.delivered_before_place,
        )
        answer(request.reply(done, self._timers.checkpoint().encode()))


class TimerMetricsHandler:
    """GET_TIMER_METRICS (61): how many messages of each topic wait for their time.

    A timer knows only where its message lies. So the messages are looked at, some each turn of the loop, and
    the answer is given at the end.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        timers: Timers,
        store: Store,
        clock: Clock,
        knows_what_waits: Callable[[], bool],
    ) -> None:
        self._config = config
        self._knows_what_waits = knows_what_waits
        self._timers = timers
        self._store = store
        self._clock = clock

    def __call__(self, request: Command, answer: Answer) -> None:
        if not self._config.timers_enabled:
            raise _no_timers("The timer message store is null")
        if not self._knows_what_waits():
            raise Busy(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"what waits is known to the master of {self._config.broker_name}, once it has taken up its "
                "duties: ask that one, or try again soon",
            )
        self._count(sorted(self._timers.places), 0, Counter(), partial(self._tell, request, answer))

    def _count(
        self, places: list[int], at: int, counts: Counter[str], then: Callable[[Counter[str]], None]
    ) -> None:
        for place in places[at : at + RECORDS_A_TURN]:
            data = self._store.record_at(place)
            topic = None if data is None else Record(data).find(b"REAL_TOPIC")
            if topic is not None:
                counts[topic.decode("utf-8", "replace")] += 1
        at += RECORDS_A_TURN
        if at < len(places):
            self._clock.later(0, partial(self._count, places, at, counts, then))
        else:
            then(counts)

    def _tell(self, request: Command, answer: Answer, counts: Counter[str]) -> None:
        now_ms = self._clock.now_ms()
        metrics = TimerMetrics(
            data_version=DataVersion(counter=self._timers.checkpoint().timer_queue_offset, timestamp=now_ms),
            timing_count={
                topic: TimingCount(count=count, time_stamp=now_ms) for topic, count in sorted(counts.items())
            },
        )
        answer(request.reply(body=metrics.encode()))


def _no_timers(remark: str) -> Refused:
    return Refused(
        ResponseCode.SYSTEM_ERROR, f"{remark}: this broker takes no timers (timerWheelEnable=false)"
    )
