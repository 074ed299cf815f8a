"""A slave's tables, brought into line with its master's (`replication.metadata`)."""

from __future__ import annotations

import logging

from kourou.broker.delays import Delays
from kourou.broker.groups import Groups
from kourou.broker.offsets import CommittedOffsets
from kourou.broker.role import BrokerRole
from kourou.broker.timers import TimerProgress, Timers
from kourou.broker.topics import Topics
from kourou.errors import Busy, StoreError
from kourou.protocol.bodies import DataVersion, GroupTable, TopicTable
from kourou.replication.metadata import Commit, Snapshot
from kourou.store.store import Store

logger = logging.getLogger(__name__)


class ReplicaMetadata:
    """Where what is copied from a master goes."""

    def __init__(
        self,
        role: BrokerRole,
        *,
        topics: Topics,
        groups: Groups,
        offsets: CommittedOffsets,
        delays: Delays,
        timers: Timers,
        store: Store,
    ) -> None:
        self._role = role
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delays = delays
        self._timers = timers
        self._store = store

    def take_topics(self, table: TopicTable) -> None:
        if self._role.is_master:
            return
        for name in self._topics.replace(table):
            logger.info("topic %s is deleted, as on the master", name)
            self._store.delete_topic(name)
            self._offsets.remove_topic(name)

    def take_groups(self, table: GroupTable) -> None:
        if not self._role.is_master:
            self._groups.replace(table)

    def take_snapshot(self, snapshot: Snapshot) -> list[Commit]:
        """How far everybody is. Progress of deliveries is believed only because this log has the copies."""
        if self._role.is_master:
            return []
        version = snapshot.offsets.data_version
        epoch = version.state_version if isinstance(version, DataVersion) else 0
        ahead = self._offsets.merge(snapshot.offsets.offset_table, epoch)
        try:
            if snapshot.delays is not None:
                self._delays.take_over(snapshot.delays)
            if snapshot.timers is not None:
                self._timers.take_over(TimerProgress(*snapshot.timers))
        except (Busy, StoreError) as error:
            logger.error("the progress of delayed messages is not kept: %s; trying again soon", error)
        return [Commit(*each) for each in ahead]
