"""Where a query began, remembered at the brokers until its first batch is done.

"latest" and moments mean another place each time one asks. Spark asks for the start twice, and again after a
crash before the first batch was committed, and believes the last answer: what lies between the first and the
last would be lost. A Python source is not told where the checkpoint is, so the brokers keep the start, as the
offsets of two groups:

    the group itself      where it is; moves on with each batch
    <group>-start         where it began, and one more; does not move

As long as both say the same the first batch is not done, and the start is the old one. Once the group has
moved, a new query (with a new checkpoint) begins where its options say. (One more, because a 4.9 broker of
Apache's answers 0 for a group it has never heard of.)
"""

from __future__ import annotations

from collections.abc import Collection

from kourou.spark.cluster import Cluster
from kourou.spark.offsets import Offsets, Queue

SUFFIX = "-start"


class StartMemory:
    """Of one group."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group

    def recall(self, queues: Collection[Queue]) -> Offsets | None:
        """The start of a query that was never done with its first batch; None when there is no such thing."""
        told = self._cluster.committed(queues, self._group + SUFFIX)
        began = {queue: place - 1 for queue, place in told.items() if place > 0}
        if not began or self._cluster.committed(began, self._group) != began:
            return None
        return began

    def keep(self, start: Offsets) -> Offsets:
        """Remember it: when this returns, a crash does no harm any more. The group itself goes last."""
        one_more = {queue: place + 1 for queue, place in start.items()}
        self._cluster.commit(one_more, self._group + SUFFIX).all()
        self._cluster.commit(start, self._group).all()
        return start
