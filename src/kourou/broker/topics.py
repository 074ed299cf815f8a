"""The topics of this broker: how many queues each has, and what may be done with them.

Kept in `config/topics.json`, in Apache's shape. Every change gets a new data version, which is how name
servers and slaves notice; `on_change` is how the registration hears of it at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from kourou.broker.config import BrokerConfig
from kourou.broker.state_file import Defer, SaveSoon, StateFile
from kourou.doors.clock import Clock
from kourou.errors import Busy, NotFound, Refused, StoreError
from kourou.protocol import names
from kourou.protocol.bodies import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    QUEUES_MAX,
    DataVersion,
    TopicConfig,
    TopicTable,
)
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import printable

READ_WRITE: Final = PERM_READ | PERM_WRITE
FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")

logger = logging.getLogger(__name__)


class Topics:
    """Name to settings, on disk and in memory."""

    def __init__(
        self, config: BrokerConfig, file: StateFile, clock: Clock, defer: Defer = lambda work: work()
    ) -> None:
        """`defer` runs its work at the end of the tick: what makes itself is saved once for all of a tick."""
        self._config = config
        self._file = file
        self._clock = clock
        self._save_soon = SaveSoon("topics", self._changed, defer)
        self._kept = TopicTable()
        self._table = self._kept.topic_config_table
        self._auto_created = 0
        self.born_with: Final = frozenset(system_topics(config))
        """Topics every broker has from the start; they are not anybody's to make."""
        self._listeners: list[Callable[[], None]] = []

    def load(self) -> None:
        """Read what was kept, and make sure of the topics every broker has."""
        self._kept = self._file.load(TopicTable) or TopicTable()
        self._table = self._kept.topic_config_table
        missing = {
            name: topic for name, topic in system_topics(self._config).items() if name not in self._table
        }
        if missing:
            self._table.update(missing)
            self._changed()

    def settings_changed(self) -> None:
        """Topics that may now be made by sends inherit from one that has to be there."""
        if self._config.auto_create_topic:
            self.ensure(names.DEFAULT_TOPIC, self._config.default_topic_queues, READ_WRITE | PERM_INHERIT)

    @property
    def data_version(self) -> DataVersion:
        return self._kept.data_version

    @property
    def all(self) -> Mapping[str, TopicConfig]:
        return self._table

    def get(self, name: str) -> TopicConfig | None:
        return self._table.get(name)

    def named(self, name: str) -> TopicConfig:
        """The topic, or a refusal that says how to get one."""
        topic = self._table.get(name)
        if topic is None:
            raise NotFound(
                ResponseCode.TOPIC_NOT_EXIST,
                f"no topic '{printable(name)}' on broker {self._config.broker_name}; "
                f"create it with: kourou topic create {printable(name)}",
            )
        return topic

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def save(self, topics: Mapping[str, TopicConfig]) -> None:
        """Create or replace these topics, durably before it returns; all or none."""
        changed = {name: topic for name, topic in topics.items() if self._table.get(name) != topic}
        if changed:
            before = {name: self._table[name] for name in changed if name in self._table}
            self._table.update(changed)
            try:
                self._changed()
            except (Busy, StoreError):
                for name in changed:
                    del self._table[name]
                self._table.update(before)
                raise

    def delete(self, name: str) -> None:
        """Have a topic no more, durably before it returns; harmless when there is none."""
        topic = self._table.pop(name, None)
        if topic is not None:
            try:
                self._changed()
            except (Busy, StoreError):
                self._table[name] = topic
                raise

    def replace(self, table: TopicTable) -> list[str]:
        """Have a master's topics instead of our own; returns which are no more. Raises Busy, StoreError."""
        if table.data_version == self._kept.data_version:
            return []
        gone = [name for name in self._table if name not in table.topic_config_table]
        gone = [name for name in gone if name not in self.born_with and not names.is_system_topic(name)]
        kept = TopicTable(
            topic_config_table={**system_topics(self._config), **table.topic_config_table},
            data_version=table.data_version,
        )
        self._file.save(kept)
        self._kept, self._table = kept, kept.topic_config_table
        for listener in self._listeners:
            listener()
        return gone

    def create_for_send(
        self, name: str, default_topic: str, queues_wanted: int, sys_flag: int
    ) -> TopicConfig:
        """The topic a send asked for and nobody created: inherits from `default_topic` if that allows it."""
        is_retry = name.startswith(names.RETRY_PREFIX)
        template = self._table.get(default_topic)
        if (
            template is None
            or not template.perm & PERM_INHERIT
            or (names.is_system_topic(name) and name != names.TRACE_TOPIC)  # traces come from clients
            or (default_topic == names.DEFAULT_TOPIC and not self._config.auto_create_topic)
        ):
            template = None
            if not is_retry:
                return self.named(name)  # raises, and says how to create it
        if self._auto_created >= self._config.auto_created_topics_max:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"topic '{name}' is not created: sends have created {self._auto_created} topics, the most "
                f"allowed (autoCreatedTopicsMax); create it with: kourou topic create {name}",
            )
        self._auto_created += 1
        if template is None:
            return self.ensure(name, 1, READ_WRITE, sys_flag)
        queues = max(1, min(queues_wanted, template.write_queue_nums))
        topic = _topic(name, queues, template.perm & ~PERM_INHERIT, sys_flag)
        self.save({name: topic})
        logger.info("topic %s created by a send, with %d queues", name, queues)
        return topic

    def ensure(self, name: str, queues: int, perm: int, sys_flag: int = 0) -> TopicConfig:
        """The topic `name`, made with these settings when it is not there.

        For topics that make themselves: it is there at once and saved when the tick ends; on a full disk,
        with the next change.
        """
        topic = self._table.get(name)
        if topic is None:
            topic = self._table[name] = _topic(name, queues, perm, sys_flag)
            self._save_soon()
        return topic

    def set_ordered(self, ordered: Iterable[str]) -> None:
        """A name server said which topics are ordered (namespace ORDER_TOPIC_CONFIG).

        Nobody is told: it goes out with the next periodic registration. Two name servers that disagree
        would otherwise make us register without end.
        """
        wanted = set(ordered)
        changed = {
            name: msgspec.structs.replace(topic, order=name in wanted)
            for name, topic in self._table.items()
            if topic.order != (name in wanted)
        }
        if changed:
            self._table.update(changed)
            try:
                self._keep()
            except Busy as error:
                logger.warning("the order of topics is not saved yet: %s", error)

    def _changed(self) -> None:
        self._keep()
        for listener in self._listeners:
            listener()

    def _keep(self) -> None:
        self._kept.data_version = self._kept.data_version.next(self._clock.now_ms())
        self._file.save(self._kept)


def system_topics(config: BrokerConfig) -> dict[str, TopicConfig]:
    """The topics a broker is born with, as the original's."""
    inherited = READ_WRITE | PERM_INHERIT
    shapes = [
        (names.SELF_TEST_TOPIC, 1, READ_WRITE),
        (names.BENCHMARK_TOPIC, 1024, READ_WRITE),
        (names.OFFSET_MOVED_TOPIC, 1, READ_WRITE),
        (names.SCHEDULE_TOPIC, 18, READ_WRITE),
        (names.HALF_TOPIC, 1, READ_WRITE),
        (names.HALF_DONE_TOPIC, 1, READ_WRITE),
        (names.TIMER_TOPIC, 1, READ_WRITE),
        (f"{config.cluster_name}_REPLY_TOPIC", 1, READ_WRITE),
    ]
    if config.auto_create_topic:
        shapes.append((names.DEFAULT_TOPIC, config.default_topic_queues, inherited))
    if config.cluster_topic:
        shapes.append((config.cluster_name, 16, inherited))
    if config.broker_topic:
        shapes.append((config.broker_name, 1, inherited))
    if config.trace_topic:
        shapes.append((config.trace_topic_name, 1, READ_WRITE))
    return {name: _topic(name, queues, perm) for name, queues, perm in shapes}


def _topic(name: str, queues: int, perm: int, sys_flag: int = 0) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_sys_flag=sys_flag,
    )


def check_new_topic(
    name: str,
    read_queues: int,
    write_queues: int,
    perm: int,
    taken: Collection[str] = (),
    filter_type: str = FILTER_TYPES[0],
) -> None:
    """Refuse settings that no topic can have, and the names that are `taken` by the broker itself."""
    if filter_type not in FILTER_TYPES:  # brokers and name servers of Apache's cannot read any other
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"topicFilterType is '{names.printable(filter_type)}', but must be: {', '.join(FILTER_TYPES)}",
        )
    fault = names.topic_fault(name)
    if fault is not None:
        raise Refused(ResponseCode.INVALID_PARAMETER, fault)
    if names.is_system_topic(name) or name in taken:
        raise Refused(
            ResponseCode.INVALID_PARAMETER, f"topic '{name}' belongs to the system; choose another name"
        )
    for what, queues in (("readQueueNums", read_queues), ("writeQueueNums", write_queues)):
        if not 1 <= queues <= QUEUES_MAX:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"{what} is {queues}: a topic has 1 to {QUEUES_MAX} queues"
            )
    if not 0 <= perm <= 7:
        raise Refused(
            ResponseCode.INVALID_PARAMETER, f"perm is {perm}: 2 is write, 4 is read, 6 is both, 1 is inherit"
        )
