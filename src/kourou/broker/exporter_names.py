"""The same figures under the names of rocketmq-exporter, for dashboards that were made for it.

Served at `/metrics/exporter` when `metricsExporterPage=true`. Only names for which there is something true to
say: thread pools and the page cache of a Java broker have no counterpart here.
"""

from __future__ import annotations

from collections.abc import Iterator

from kourou.broker.metrics import BREATH, BrokerMetrics
from kourou.broker.rates import Rates
from kourou.broker.topics import Topics
from kourou.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, dead_letter_topic, retry_topic
from kourou.remoting.figures import Figures
from kourou.store.store import Store

_NO_HELP = "See rocketmq-exporter."


class ExporterNames:
    """Makes the page."""

    def __init__(self, metrics: BrokerMetrics, rates: Rates, topics: Topics, store: Store) -> None:
        self._metrics = metrics
        self._rates = rates
        self._topics = topics
        self._store = store

    @property
    def head(self) -> tuple[dict[str, str], int]:
        config = self._metrics.config
        return {"cluster": config.cluster_name, "broker": config.broker_name}, config.metrics_series_max

    def steps(self, figures: Figures) -> Iterator[None]:
        figures.gauge("rocketmq_broker_tps", _NO_HELP, self._rates.put(60))
        figures.gauge("rocketmq_broker_qps", _NO_HELP, self._rates.got(60))
        yield from self._producers(figures)
        yield from self._consumers(figures)
        yield from self._groups(figures)
        self._runtime(figures)

    def _producers(self, figures: Figures) -> Iterator[None]:
        for number, (topic, flow) in enumerate(self._metrics.stats.put_by_topic.items()):
            if number % BREATH == 0:
                yield
            figures.gauge("rocketmq_producer_tps", _NO_HELP, self._rates.put_to(topic), topic=topic)
            average = flow.size_bytes / flow.messages if flow.messages else 0
            figures.gauge("rocketmq_producer_message_size", _NO_HELP, average, topic=topic)
        for number, topic in enumerate(list(self._topics.all)):
            if number % BREATH == 0:
                yield
            name = _offset_name(topic)
            figures.gauge(name, _NO_HELP, self._end_of(topic), topic=topic)

    def _consumers(self, figures: Figures) -> Iterator[None]:
        for number, ((topic, group), flow) in enumerate(self._metrics.stats.got_by_topic_and_group.items()):
            if number % BREATH == 0:
                yield
            labels = {"topic": topic, "group": group}
            figures.gauge("rocketmq_consumer_tps", _NO_HELP, self._rates.got_by(group, topic), **labels)
            average = flow.size_bytes / flow.messages if flow.messages else 0
            figures.gauge("rocketmq_consumer_message_size", _NO_HELP, average, **labels)

    def _groups(self, figures: Figures) -> Iterator[None]:
        now_ms = self._metrics.now_ms()
        for number, lag in enumerate(self._metrics.lags.all()):
            if number % BREATH == 0:
                yield
            labels = {"topic": lag.topic, "group": lag.group}
            is_retry = lag.topic.startswith(RETRY_PREFIX)
            name = "rocketmq_group_retrydiff" if is_retry else "rocketmq_group_diff"
            figures.gauge(name, _NO_HELP, lag.lag, **labels)
            figures.gauge("rocketmq_consumer_offset", _NO_HELP, self._end_of(lag.topic) - lag.lag, **labels)
            figures.gauge(
                "rocketmq_group_get_latency_by_storetime", _NO_HELP, lag.latency_ms(now_ms), **labels
            )
        for name, group in self._metrics.members.consumer_groups.items():
            figures.gauge("rocketmq_group_count", _NO_HELP, len(group.members), group=name)
            dead, again = dead_letter_topic(name), retry_topic(name)
            figures.gauge("rocketmq_group_dlqdiff", _NO_HELP, self._end_of(dead), group=name)
            sent_back = self._metrics.stats.put_to(again)
            figures.gauge(
                "rocketmq_send_back_nums", _NO_HELP, sent_back.messages if sent_back else 0, group=name
            )

    def _runtime(self, figures: Figures) -> None:
        store, put, got = self._store, self._metrics.stats.put_total, self._metrics.stats.got_total
        values: dict[str, float] = {
            "msg_put_total_today_now": put.messages,
            "msg_gettotal_today_now": got.messages,
            "putmessage_times_total": put.messages,
            "putmessage_size_total": put.size_bytes,
            "putmessage_average_size": put.size_bytes / put.messages if put.messages else 0.0,
            "dispatch_behind_bytes": store.wrote - store.dispatched,
            "remain_howmanydata_toflush": store.wrote - store.flushed,
            "commitlog_minoffset": store.start,
            "commitlog_maxoffset": store.wrote,
            "earliest_message_timestamp": store.earliest_store_ms(),
            "puttps_10s": self._rates.put(10),
            "puttps_60s": self._rates.put(60),
            "puttps_600s": self._rates.put(600),
            "gettransferedtps_10s": self._rates.got(10),
            "gettransferedtps_60s": self._rates.got(60),
            "gettransferedtps_600s": self._rates.got(600),
        }
        for name, value in values.items():
            figures.gauge(f"rocketmq_brokeruntime_{name}", _NO_HELP, value)

    def _end_of(self, topic: str) -> int:
        config = self._topics.get(topic)
        queues = range(0 if config is None else max(config.read_queue_nums, config.write_queue_nums))
        return sum(self._store.max_offset(topic, queue_id) for queue_id in queues)


def _offset_name(topic: str) -> str:
    if topic.startswith(RETRY_PREFIX):
        return "rocketmq_topic_retry_offset"
    if topic.startswith(DEAD_LETTER_PREFIX):
        return "rocketmq_topic_dlq_offset"
    return "rocketmq_producer_offset"
