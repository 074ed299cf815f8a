"""A broker's figures under RocketMQ 5's names and labels, and some it does not have.

Read from what the broker counts anyway, when somebody asks; only how long requests take is measured for their
sake (`latency.py`). What the original has and is not here: `rocketmq_pop_*`, for there is no pop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kourou.broker.config import BrokerConfig
from kourou.broker.groups import Groups
from kourou.broker.lag import Lags, TopicLag
from kourou.broker.members import Members
from kourou.broker.stats import MESSAGE_SIZE_BOUNDS, Stats
from kourou.broker.timers import Timers
from kourou.broker.topics import Topics
from kourou.broker.transactions import Transactions
from kourou.doors.clock import Clock
from kourou.protocol.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUPS,
    is_system_topic,
)
from kourou.protocol.versions import version_name
from kourou.remoting.access import Access
from kourou.remoting.figures import Figures, Histogram, gathered
from kourou.remoting.latency import Latencies
from kourou.remoting.server import Server
from kourou.replication.status import LinkStatus
from kourou.store.store import Store

CONSUME_MODES: Final = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull"}

BREATH: Final = 50
"""After so many topics, messages have their turn."""

Links = Callable[[], Iterable[LinkStatus]]
"""Every replica that follows."""


class BrokerMetrics:
    """Makes the page of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        topics: Topics,
        groups: Groups,
        members: Members,
        store: Store,
        stats: Stats,
        timers: Timers,
        transactions: Transactions,
        lags: Lags,
        access: Access,
        servers: Callable[[], Sequence[Server]],
        latencies: Latencies,
        clock: Clock,
    ) -> None:
        self.config = config
        self._topics = topics
        self._groups = groups
        self.members = members
        self._store = store
        self.stats = stats
        self._timers = timers
        self._transactions = transactions
        self.lags = lags
        self._access = access
        self._servers = servers
        self._latencies = latencies
        self._clock = clock
        self.links: Links = tuple
        self.knows_what_waits: Callable[[], bool] = lambda: True
        """Whether what is said of timers and transactions is true: a slave does not know, nor a new master
        of a set that elects before it has taken up its duties."""
        self._had_everything: dict[str, float] = {}  # when a replica was last seen to be up to date

    def now_ms(self) -> int:
        return self._clock.now_ms()

    @property
    def head(self) -> tuple[dict[str, str], int]:
        config = self.config
        common = {"cluster": config.cluster_name, "node_type": "broker", "node_id": config.broker_name}
        return common, config.metrics_series_max

    def steps(self, figures: Figures) -> Iterator[None]:
        """Tell all figures, with a breath now and then."""
        yield from self._traffic(figures)
        yield from self._consumers(figures)
        for step in (self._clients, self._transactional, self._stored, self._timed, self._ports):
            step(figures)
            yield
        self._replicas(figures)

    def figures(self) -> Figures:
        return gathered(self)

    # ------------------------------------------------------------------------------------------ messages

    def _traffic(self, figures: Figures) -> Iterator[None]:
        for number, (topic, flow) in enumerate(self.stats.put_by_topic.items()):
            if number % BREATH == 0:
                yield
            labels = {
                "topic": topic,
                "message_type": self._message_type(topic),
                "is_system": _is(is_system_topic(topic)),
            }
            figures.counter(
                "rocketmq_messages_in_total", "Messages stored since the start.", flow.messages, **labels
            )
            figures.counter(
                "rocketmq_throughput_in_total", "Bytes stored since the start.", flow.size_bytes, **labels
            )
            if topic.startswith(DEAD_LETTER_PREFIX):
                figures.counter(
                    "rocketmq_send_to_dlq_messages_total",
                    "Messages a group gave up since the start.",
                    flow.messages,
                    topic=topic,
                    consumer_group=topic.removeprefix(DEAD_LETTER_PREFIX),
                    is_system="false",
                )
        for number, ((topic, group), flow) in enumerate(self.stats.got_by_topic_and_group.items()):
            if number % BREATH == 0:
                yield
            labels = {**_reader_labels(topic, group)}
            figures.counter(
                "rocketmq_messages_out_total", "Messages handed out since the start.", flow.messages, **labels
            )
            figures.counter(
                "rocketmq_throughput_out_total",
                "Bytes handed out since the start.",
                flow.size_bytes,
                **labels,
            )
        sizes = Histogram(MESSAGE_SIZE_BOUNDS)
        sizes.counts = list(self.stats.sizes)
        sizes.total = self.stats.put_total.size_bytes
        figures.histogram(
            "rocketmq_message_size",
            "Bytes of a stored message; those that came in one go count with their average.",
            sizes,
            message_type="normal",
        )

    def _message_type(self, topic: str) -> str:
        config = self._topics.get(topic)
        return "normal" if config is None else (config.attributes or {}).get("message.type", "NORMAL").lower()

    def _consumers(self, figures: Figures) -> Iterator[None]:
        now_ms = self._clock.now_ms()
        lags: list[TopicLag] = []
        for lag in self.lags.all():
            lags.append(lag)
            if len(lags) % BREATH == 0:
                yield
            labels = _reader_labels(lag.topic, lag.group)
            gauge, latency_ms = figures.gauge, lag.latency_ms(now_ms)
            gauge("rocketmq_consumer_lag_messages", "Messages a group is not done with.", lag.lag, **labels)
            gauge(
                "rocketmq_consumer_lag_latency",
                "How long the first of them waits, in ms.",
                latency_ms,
                **labels,
            )
            gauge("rocketmq_consumer_lag_seconds", "The same in seconds.", latency_ms / 1000, **labels)
            gauge(
                "rocketmq_consumer_inflight_messages",
                "Messages fetched and not committed.",
                lag.in_flight,
                **labels,
            )
            gauge(
                "rocketmq_consumer_ready_messages",
                "Messages not fetched yet.",
                lag.lag - lag.in_flight,
                **labels,
            )
            gauge(
                "rocketmq_consumer_queueing_latency",
                "How long the first of those waits, in ms.",
                lag.queueing_ms(now_ms),
                **labels,
            )
        self._queues(figures, lags)

    def _queues(self, figures: Figures, lags: list[TopicLag]) -> None:
        """Queue by queue, unless there are so many that nobody would look."""
        if sum(len(lag.queues) for lag in lags) > self.config.metrics_queues_max:
            return
        for lag in lags:
            for queue in lag.queues:
                figures.gauge(
                    "rocketmq_consumer_queue_lag_messages",
                    "Messages of one queue a group is not done with.",
                    queue.lag,
                    topic=lag.topic,
                    consumer_group=lag.group,
                    queue=str(queue.queue_id),
                )

    def _clients(self, figures: Figures) -> None:
        counts: dict[tuple[str, str, str, str], int] = {}
        for name, group in self.members.consumer_groups.items():
            figures.gauge(
                "rocketmq_consumer_subscriptions_differ",
                "1 while members of a group do not want the same.",
                float(group.has_different_subscriptions),
                consumer_group=name,
            )
            mode = CONSUME_MODES.get(group.consume_type.name, group.consume_type.name.lower())
            for member in group.members.values():
                key = (name, member.language, version_name(member.version), mode)
                counts[key] = counts.get(key, 0) + 1
        for (name, language, version, mode), count in counts.items():
            figures.gauge(
                "rocketmq_consumer_connections",
                "Consumers that are here.",
                count,
                consumer_group=name,
                language=language.lower(),
                version=version,
                consume_mode=mode,
                is_system=_is(name in SYSTEM_GROUPS),
            )
        producers: dict[tuple[str, str], set[object]] = {}
        for members in self.members.producer_groups.values():
            for connection, member in members.items():
                key_of = (member.language, version_name(member.version))
                producers.setdefault(key_of, set()).add(connection)
        for (language, version), connections in producers.items():
            figures.gauge(
                "rocketmq_producer_connections",
                "Producers that are here.",
                len(connections),
                language=language.lower(),
                version=version,
            )

    def _transactional(self, figures: Figures) -> None:
        transactions = self._transactions
        if self.knows_what_waits():
            figures.gauge(
                "rocketmq_half_messages", "Half messages whose transaction is open.", transactions.open_count
            )
        for topic, count in transactions.committed.items():
            figures.counter(
                "rocketmq_commit_messages_total",
                "Transactions committed since the start.",
                count,
                topic=topic,
            )
        for topic, count in transactions.rolled_back.items():
            figures.counter(
                "rocketmq_rollback_messages_total",
                "Transactions rolled back since the start.",
                count,
                topic=topic,
            )
        figures.histogram(
            "rocketmq_finish_message_latency",
            "How long transactions took, in ms.",
            transactions.finish_ms,
        )

    # ------------------------------------------------------------------------------------------- storage

    def _stored(self, figures: Figures) -> None:
        store, config = self._store, self.config
        now_ms = self._clock.now_ms()
        earliest_ms = store.earliest_store_ms()
        medium = {"storage_type": "local", "storage_medium": "disk"}
        gauge = figures.gauge
        gauge("rocketmq_storage_size", "Bytes of the commit log.", store.wrote - store.start, **medium)
        gauge(
            "rocketmq_storage_flush_behind_bytes",
            "Bytes written and not yet on the disk.",
            store.wrote - store.flushed,
            **medium,
        )
        gauge(
            "rocketmq_storage_dispatch_behind_bytes",
            "Bytes written and not yet in consume queues.",
            store.wrote - store.dispatched,
            **medium,
        )
        gauge(
            "rocketmq_storage_message_reserve_time",
            "Age of the oldest message, in ms.",
            now_ms - earliest_ms if earliest_ms > 0 else 0,
            **medium,
        )
        syncs = Histogram(store.sync_times.bounds)
        syncs.counts, syncs.total = list(store.sync_times.counts), store.sync_times.total
        figures.histogram("rocketmq_fsync_seconds", "How long it took to bring the log to the disk.", syncs)
        figures.counter(
            "rocketmq_corrupt_records_total",
            "Records found damaged since the start, and by it.",
            store.rot.lost + len(store.damage),
        )
        gauge("rocketmq_storage_writable", "1 while messages are taken.", float(store.refusal is None))
        gauge("rocketmq_broker_permission", "2 to write, 4 to read, added up.", config.permission)
        gauge("rocketmq_topic_number", "Topics of this broker.", len(self._topics.all))
        gauge("rocketmq_consumer_group_number", "Consumer groups of this broker.", len(self._groups.all))

    def _timed(self, figures: Figures) -> None:
        timers = self._timers
        if self.knows_what_waits():
            gauge = figures.gauge
            gauge("rocketmq_timer_enqueue_lag", "Timed messages not looked at yet.", timers.not_taken_in)
            gauge("rocketmq_timer_dequeue_lag", "How late the first one is, in ms.", timers.late_ms)
            gauge("rocketmq_timing_messages", "Timed messages that wait.", len(timers))
        figures.counter(
            "rocketmq_timer_enqueue_total", "Timed messages taken in since the start.", timers.taken_in.total
        )
        figures.counter(
            "rocketmq_timer_dequeue_total",
            "Timed messages delivered since the start.",
            timers.delivered.total,
        )

    # --------------------------------------------------------------------------------------------- peers

    def _ports(self, figures: Figures) -> None:
        for server in self._servers():
            counters = server.counters
            port = {"processor": server.name}
            figures.gauge(
                "rocketmq_processor_watermark",
                "Bytes of requests that are being worked on.",
                counters.in_flight_bytes,
                **port,
            )
            figures.gauge("rocketmq_connections", "Open connections.", len(server.connections), **port)
            figures.counter("rocketmq_requests_total", "Requests since the start.", counters.requests, **port)
            for reason, count in (*counters.refused.items(), *counters.held_back.items()):
                figures.counter(
                    "rocketmq_backpressure_total",
                    "How often peers were refused or held back.",
                    count,
                    reason=reason,
                    **port,
                )
        for name, was_parked, histogram in self._latencies.histograms():
            figures.histogram(
                "rocketmq_rpc_latency",
                "How long requests took until they were answered, in ms.",
                histogram,
                protocol_type="remoting",
                request_code=name,
                is_long_polling=_is(was_parked),
            )
        if self._access.is_on:
            guard = self._access.guard
            for reason, count in (("unauthenticated", guard.unauthenticated), ("denied", guard.denied)):
                figures.counter(
                    "rocketmq_access_refused_total",
                    "Requests of nobody known, and of somebody who may not.",
                    count,
                    reason=reason,
                )

    def _replicas(self, figures: Figures) -> None:
        now, had = self._clock.monotonic(), self._had_everything
        self._had_everything = {}
        for link in self.links():
            last = now if link.lag <= 0 else had.get(link.member, now)
            self._had_everything[link.member] = last
            figures.gauge(
                "rocketmq_replica_lag_bytes",
                "Bytes a replica does not have yet.",
                max(0, link.lag),
                replica=link.member,
            )
            figures.gauge(
                "rocketmq_replica_lag_seconds",
                "How long ago it was last seen to have everything.",
                now - last,
                replica=link.member,
            )


def _reader_labels(topic: str, group: str) -> dict[str, str]:
    return {
        "topic": topic,
        "consumer_group": group,
        "is_retry": _is(topic.startswith(RETRY_PREFIX)),
        "is_system": _is(is_system_topic(topic) or group in SYSTEM_GROUPS),
    }


def _is(value: bool) -> str:
    return "true" if value else "false"
