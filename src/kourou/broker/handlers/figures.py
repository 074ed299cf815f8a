"""How things stand, in figures: of a topic, of a group, of the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kourou import __version__
from kourou.broker.config import BrokerConfig
from kourou.broker.delays import Delays
from kourou.broker.members import Members
from kourou.broker.offsets import CommittedOffsets
from kourou.broker.rates import Rates
from kourou.broker.stats import Stats
from kourou.broker.timers import Timers
from kourou.broker.topics import Topics
from kourou.broker.transactions import Transactions
from kourou.doors.clock import Clock
from kourou.doors.files import Files
from kourou.native import native
from kourou.protocol.bodies import (
    ConsumeStats,
    KVTable,
    MessageQueue,
    QueueProgress,
    QueueRange,
    TopicConfig,
    TopicStats,
    TopicTable,
)
from kourou.protocol.command import Command
from kourou.protocol.headers import GetConsumeStats, TopicNamed
from kourou.remoting.answer import Answer
from kourou.store.store import Store

OUR_VERSION = "V4_9_8"
"""What clients take us for: the version in every header, in words."""


class AllTopicsHandler:
    """GET_ALL_TOPIC_CONFIG (21): everything at once, which needs no paging."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def __call__(self, request: Command, answer: Answer) -> None:
        table = TopicTable(data_version=self._topics.data_version, topic_config_table=dict(self._topics.all))
        answer(request.reply(body=table.encode()))


class GetTopicHandler:
    """GET_TOPIC_CONFIG (351)."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def __call__(self, request: Command, answer: Answer) -> None:
        topic = self._topics.named(request.parse(TopicNamed).topic)
        answer(request.reply(body=topic.encode()))


class TopicStatsHandler:
    """GET_TOPIC_STATS_INFO (202): where each queue begins and ends, empty ones too."""

    def __init__(self, config: BrokerConfig, topics: Topics, store: Store, rates: Rates) -> None:
        self._config = config
        self._topics = topics
        self._store = store
        self._rates = rates

    def __call__(self, request: Command, answer: Answer) -> None:
        topic = self._topics.named(request.parse(TopicNamed).topic)
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        stats = TopicStats(
            offset_table={
                queue: self._range(queue) for queue in _queues(self._config.broker_name, topic, queues)
            },
            topic_put_tps=self._rates.put_to(topic.topic_name),
        )
        answer(request.reply(body=stats.encode_fastjson()))

    def _range(self, queue: MessageQueue) -> QueueRange:
        end = self._store.max_offset(queue.topic, queue.queue_id)
        return QueueRange(
            last_update_timestamp=self._store.stored_ms(queue.topic, queue.queue_id, end - 1) or 0
            if end
            else 0,
            max_offset=end,
            min_offset=self._store.min_offset(queue.topic, queue.queue_id),
        )


class ConsumeStatsHandler:
    """GET_CONSUME_STATS (208): how far a group is in each queue of its topics.

    Its topics are those that are named, else all it ever committed for; of these only what it subscribes to
    now, if it has members (`may_want`).
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        topics: Topics,
        members: Members,
        offsets: CommittedOffsets,
        store: Store,
        rates: Rates,
    ) -> None:
        self._config = config
        self._topics = topics
        self._members = members
        self._offsets = offsets
        self._store = store
        self._rates = rates

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(GetConsumeStats)
        stats = ConsumeStats(offset_table={})
        for name in self._topics_asked(header):
            topic = self._topics.get(name)
            if topic is not None:
                for queue in _queues(self._config.broker_name, topic, topic.read_queue_nums):
                    stats.offset_table[queue] = self._progress(header.consumer_group, queue)
                stats.consume_tps += self._rates.got_by(header.consumer_group, name)
        answer(request.reply(body=stats.encode_fastjson()))

    def _topics_asked(self, header: GetConsumeStats) -> list[str]:
        listed = [name for part in (header.topic_list or "").split(";") if (name := part.strip())]
        if listed:
            return listed
        asked = [header.topic] if header.topic else self._offsets.topics_of(header.consumer_group)
        group = self._members.consumer_group(header.consumer_group)
        return [name for name in asked if group is None or group.may_want(name)]

    def _progress(self, group: str, queue: MessageQueue) -> QueueProgress:
        topic, queue_id = queue.topic, queue.queue_id
        committed = self._offsets.get(group, topic, queue_id) or 0
        last_ms = self._store.stored_ms(topic, queue_id, committed - 1) if committed else None
        return QueueProgress(
            broker_offset=self._store.max_offset(topic, queue_id),
            consumer_offset=committed,
            last_timestamp=last_ms or 0,
            pull_offset=self._offsets.pull_offset(group, topic, queue_id),
        )


def _queues(broker_name: str, topic: TopicConfig, count: int) -> Iterable[MessageQueue]:
    return (
        MessageQueue(broker_name=broker_name, queue_id=queue_id, topic=topic.topic_name)
        for queue_id in range(count)
    )


class RuntimeInfoHandler:
    """GET_BROKER_RUNTIME_INFO (28), under the keys that admin tools read.

    There are no thread pools here and no queues before them: what is said of these is 0, which is true.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: Store,
        members: Members,
        delays: Delays,
        timers: Timers,
        transactions: Transactions,
        knows_what_waits: Callable[[], bool],
        stats: Stats,
        rates: Rates,
        files: Files,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store = store
        self._members = members
        self._delays = delays
        self._timers = timers
        self._transactions = transactions
        self._knows_what_waits = knows_what_waits
        self._stats = stats
        self._rates = rates
        self._files = files
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._started = clock.monotonic()

    def __call__(self, request: Command, answer: Answer) -> None:
        table = {**self._traffic(), **self._log(), **self._later(), **self._self(), **_NO_POOLS}
        answer(request.reply(body=KVTable(table=dict(sorted(table.items()))).encode()))

    def _traffic(self) -> dict[str, str]:
        rates, days = self._rates, self._rates.days
        put, got = self._stats.put_total, self._stats.got_total
        got_tps = _three(rates.got(10), rates.got(60), rates.got(600))
        return {
            "putTps": _three(rates.put(10), rates.put(60), rates.put(600)),
            "getTransferredTps": got_tps,
            "getTransferedTps": got_tps,  # as 4.9 spells it
            "getFoundTps": got_tps,
            "getTotalTps": got_tps,
            "msgPutTotalYesterdayMorning": str(days.put_yesterday_morning),
            "msgPutTotalTodayMorning": str(days.put_today_morning),
            "msgPutTotalTodayNow": str(put.messages),
            "msgGetTotalYesterdayMorning": str(days.got_yesterday_morning),
            "msgGetTotalTodayMorning": str(days.got_today_morning),
            "msgGetTotalTodayNow": str(got.messages),
            "putMessageTimesTotal": str(put.messages),
            "putMessageSizeTotal": str(put.size_bytes),
            "putMessageAverageSize": str(put.size_bytes / put.messages if put.messages else 0.0),
            "getMessageTransferredMsgCount": str(got.messages),
        }

    def _log(self) -> dict[str, str]:
        store = self._store
        space = self._files.space(self._config.store_path)
        ratio = str(space.used / max(1, space.used + space.free))
        return {
            "commitLogMinOffset": str(store.start),
            "commitLogMaxOffset": str(store.wrote),
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {space.used + space.free} B, Free : {space.free} B.",
            "dispatchBehindBytes": str(store.wrote - store.dispatched),
            "dispatchMaxBuffer": "0",
            "remainHowManyDataToFlush": f"{store.wrote - store.flushed} B",
            "remainTransientStoreBufferNumbs": "0",
            "earliestMessageTimeStamp": str(store.earliest_store_ms()),
            "pageCacheLockTimeMills": "0",
        }

    def _later(self) -> dict[str, str]:
        """Of each delay level the next message and the end of its queue; of timers how late they are."""
        timers = self._timers
        levels = {
            f"scheduleMessageOffset_{level}": f"{following},{end}"
            for level, (following, end) in self._delays.progress().items()
        }
        if self._knows_what_waits():
            levels["kourouOpenTransactions"] = str(self._transactions.open_count)
        return {
            **levels,
            "timerReadBehind": str(timers.late_ms // 1000),
            "timerOffsetBehind": str(timers.not_taken_in),
            "timerCongestNum": str(len(timers)),
            "timerEnqueueTps": str(timers.taken_in.per_second()),
            "timerDequeueTps": str(timers.delivered.per_second()),
        }

    def _self(self) -> dict[str, str]:
        return {
            "brokerVersionDesc": OUR_VERSION,
            "kourouVersion": __version__,
            "kourouNative": "false" if native is None else "true",
            "kourouNowMillis": str(self._clock.now_ms()),
            "brokerActive": "true",
            "bootTimestamp": str(self._started_ms),
            "runtime": _duration(self._clock.monotonic() - self._started),
            "startAcceptSendRequestTimeStamp": "0",
            "groupsWithDifferentSubscriptions": str(self._members.different_groups()),
        }


_NO_POOLS = {
    f"{pool}{what}": "0"
    for pool in ("send", "pull", "query", "ack", "litePull")
    for what in ("ThreadPoolQueueSize", "ThreadPoolQueueCapacity", "ThreadPoolQueueHeadWaitTimeMills")
} | {"EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": "0"}


def _three(ten_seconds: float, minute: float, ten_minutes: float) -> str:
    return f"{ten_seconds} {minute} {ten_minutes}"


def _duration(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {left} seconds ]"
