"""The consumer groups of this broker, as configured: may they consume, how often do they retry.

Kept in `config/subscriptionGroup.json`, in Apache's shape. Who is a member right now is in `members.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from kourou.broker.config import BrokerConfig
from kourou.broker.state_file import Defer, SaveSoon, StateFile
from kourou.doors.clock import Clock
from kourou.errors import Busy, NotFound, Refused, StoreError
from kourou.protocol.bodies import QUEUES_MAX, DataVersion, GroupTable, SubscriptionGroupConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import SYSTEM_GROUPS, group_fault, printable

FORBIDDEN_READ: Final = 1 << 2
"""The bit of a topic's entry in the forbidden table, as the original numbers it."""

logger = logging.getLogger(__name__)


class Groups:
    """Name to settings, on disk and in memory."""

    def __init__(
        self, config: BrokerConfig, file: StateFile, clock: Clock, defer: Defer = lambda work: work()
    ) -> None:
        """`defer` runs its work at the end of the tick: all groups of a tick are saved at once."""
        self._config = config
        self._file = file
        self._clock = clock
        self._save_soon = SaveSoon("consumer groups", self._changed, defer)
        self._kept = GroupTable()
        self._table = self._kept.subscription_group_table
        self._listeners: list[Callable[[], None]] = []

    def load(self) -> None:
        """Read what was kept, and make sure of the groups every broker has."""
        self._kept = self._file.load(GroupTable) or GroupTable()
        self._table = self._kept.subscription_group_table
        missing = [name for name in SYSTEM_GROUPS if name not in self._table]
        if missing:
            self._table.update((name, SubscriptionGroupConfig(group_name=name)) for name in missing)
            self._changed()

    @property
    def data_version(self) -> DataVersion:
        return self._kept.data_version

    @property
    def all(self) -> Mapping[str, SubscriptionGroupConfig]:
        return self._table

    def get_or_create(self, name: str) -> SubscriptionGroupConfig:
        """The group, made on first sight unless that is switched off."""
        group = self._table.get(name)
        return group if group is not None else self._create(name)

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        return self._table.get(name)

    def named(self, name: str) -> SubscriptionGroupConfig:
        """The group, or a refusal."""
        group = self._table.get(name)
        if group is None:
            raise NotFound(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"no consumer group '{printable(name)}' on broker {self._config.broker_name}",
            )
        return group

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    @property
    def kept(self) -> GroupTable:
        return self._kept

    def save(self, group: SubscriptionGroupConfig) -> None:
        """Create or replace a group, durably before it returns."""
        name = group.group_name
        fault = group_fault(name)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        if group.retry_queue_nums > QUEUES_MAX:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"retryQueueNums is {group.retry_queue_nums}: a topic has at most {QUEUES_MAX} queues",
            )
        before = self._table.get(name)
        self._table[name] = group
        self._try_change(name, before)

    def forbid(self, name: str, topic: str, is_forbidden: bool) -> None:
        """Whether a group may read a topic, durably before it returns."""
        self.named(name)
        table = self._kept.forbidden_table
        before = {group: dict(topics) for group, topics in table.items()}
        bits = table.get(name, {}).get(topic, 0)
        bits = bits | FORBIDDEN_READ if is_forbidden else bits & ~FORBIDDEN_READ
        table.setdefault(name, {})[topic] = bits
        if not bits:
            del table[name][topic]
        if not table[name]:
            del table[name]
        try:
            self._changed()
        except (Busy, StoreError):
            self._kept.forbidden_table = before
            raise

    def is_forbidden(self, name: str, topic: str) -> bool:
        """Whether an operator took the right to read this topic from the group."""
        table = self._kept.forbidden_table
        return bool(table) and table.get(name, {}).get(topic, 0) & FORBIDDEN_READ != 0

    def replace(self, table: GroupTable) -> None:
        """Have a master's groups instead of our own. Raises Busy, StoreError."""
        if table.data_version != self._kept.data_version:
            self._file.save(table)
            self._kept, self._table = table, table.subscription_group_table

    def delete(self, name: str) -> bool:
        """Forget a group, durably before it returns; False when there is none."""
        if name in SYSTEM_GROUPS:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"group '{name}' belongs to the system")
        before = self._table.pop(name, None)
        if before is None:
            return False
        self._try_change(name, before)
        logger.info("consumer group %s deleted", name)
        return True

    def _try_change(self, name: str, before: SubscriptionGroupConfig | None) -> None:
        """All or nothing: what could not be saved did not happen."""
        try:
            self._changed()
        except (Busy, StoreError):
            self._table.pop(name, None)
            if before is not None:
                self._table[name] = before
            raise

    def _create(self, name: str) -> SubscriptionGroupConfig:
        fault = group_fault(name)
        if fault is not None:  # the original's code: such a group cannot be, so it is not
            raise NotFound(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, fault)
        if not self._config.auto_create_group:
            raise NotFound(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"no consumer group '{printable(name)}' on broker {self._config.broker_name}, and groups are "
                f"not created by themselves there (autoCreateSubscriptionGroup=false)",
            )
        if len(self._table) >= self._config.groups_max:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"consumer group '{name}' is not created: there are {len(self._table)}, the most allowed "
                f"(consumerGroupsMax)",
            )
        group = self._table[name] = SubscriptionGroupConfig(group_name=name)
        logger.info("consumer group %s created", name)
        self._save_soon()
        return group

    def _changed(self) -> None:
        self._kept.data_version = self._kept.data_version.next(self._clock.now_ms())
        self._file.save(self._kept)
        for listener in self._listeners:
            listener()
